import csv
import gzip
import json
import os
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.odd_tags import ODD_TAGS
from tests.parquet_damage import flip_in

from headwater.cli import export
from headwater.cli.main import REFUSED
from headwater.client import RemoteLog, connect
from headwater.core import Event, SequencedEvent
from headwater.core.event import Encoding
from headwater.formats.envelope import ndjson_events
from headwater.formats.foreign import fit_tag

TABLE = "case,activity,timestamp\n" + "".join(f"c{n % 7},step {n},2024-01-01T00:00:{n:02}Z\n" for n in range(50, 0, -1))
OCEL = {
    "ocel:objects": {"o1": {"ocel:type": "order"}},
    "ocel:events": {
        str(n): {"ocel:activity": "pay", "ocel:timestamp": f"2024-01-0{n}T00:00:00Z", "ocel:omap": ["o1"]}
        for n in range(1, 4)
    },
}
CLOUDEVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "A", "tags": "order:17", "data": {"n": 1}}


def imported(headwater, *arguments: str) -> tuple[int, int]:
    """How many events were appended, and how many already existed."""
    done = headwater("import", *arguments, "--json")
    assert done.code == 0, done.err
    counts = json.loads(done.out)
    return counts["appended"], counts["stored"]


def test_a_table_is_imported_once_however_often(headwater, log: RemoteLog) -> None:
    Path("cases.csv").write_text(TABLE)
    arguments = ("cases.csv", "orders", "--tag", "case", "--batch", "20")
    assert imported(headwater, *arguments) == (50, 0)
    assert imported(headwater, *arguments) == (0, 50)
    first = next(log.read())
    assert (first.type, first.tags, first.source) == ("step 50", ("case:c1",), "cases.csv")
    assert first.attributes["time"] == "2024-01-01T00:00:50Z"


def test_an_interrupted_import_goes_on(headwater, log: RemoteLog) -> None:
    Path("half").mkdir()
    Path("half/cases.csv").write_text("".join(TABLE.splitlines(keepends=True)[:28]))
    Path("cases.csv").write_text(TABLE)
    assert imported(headwater, "half/cases.csv", "orders", "--batch", "10") == (27, 0)
    assert imported(headwater, "cases.csv", "orders", "--batch", "10") == (23, 27)
    assert [event.type for event in log.read()] == [f"step {n}" for n in range(50, 0, -1)]


def test_a_packed_table_is_sorted_by_time_if_asked(headwater, log: RemoteLog) -> None:
    Path("cases.csv.gz").write_bytes(gzip.compress(TABLE.encode(), mtime=0))
    assert imported(headwater, "cases.csv.gz", "orders", "--sort") == (50, 0)
    assert [event.type for event in log.read(limit=2)] == ["step 1", "step 2"]
    assert next(log.read()).source == "cases.csv"


def test_any_time_that_a_log_takes_is_sorted_and_equal_times_stay_as_they_stand(headwater, log: RemoteLog) -> None:
    times = {
        "leap": "2016-12-31T23:59:60Z",
        "before": "2016-12-31T23:59:59Z",
        "lower": "2017-06-01t00:00:00z",
        "same": "2017-06-01T02:00:00+02:00",
        "after": "2017-01-01T00:00:01Z",
        "last": "2017-06-02T00:00:00.1234567Z",
    }
    lines = [json.dumps({"type": name, "attributes": {"time": time}}) for name, time in times.items()]
    Path("e.ndjson").write_text("\n".join(lines))
    assert imported(headwater, "e.ndjson", "orders", "--sort") == (6, 0)
    assert [event.type for event in log.read()] == ["before", "leap", "after", "lower", "same", "last"]


TIMES = ["2016-12-31T23:59:59Z", "2016-12-31T23:59:60Z", "2017-06-01t00:00:00z", "9999-12-31T23:59:59-05:00"]
OCEL_OF_TIMES = [{"id": str(n), "type": "A", "time": time} for n, time in reversed(list(enumerate(TIMES)))]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("e.ndjson", "\n".join(json.dumps({"type": "A", "attributes": {"time": time}}) for time in TIMES)),
        ("e.csv", "\n".join(["type,time", *(f"A,{time}" for time in TIMES)])),
        ("e.jsonocel", json.dumps({"eventTypes": [], "events": OCEL_OF_TIMES})),
    ],
)
def test_every_format_takes_the_times_that_a_log_takes(headwater, log: RemoteLog, name: str, content: str) -> None:
    Path(name).write_text(content)
    assert imported(headwater, name, "orders") == (4, 0)
    taken = [event.attributes["time"] for event in log.read()]
    assert [time.upper() for time in taken] == [time.upper() for time in TIMES]


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [
        ("events.ndjson", b'{"type":"A"}\n{"type":"B"}\n', 2),
        ("log.jsonocel", json.dumps(OCEL).encode(), 3),
        ("log.json", json.dumps(OCEL, indent=2).encode(), 3),
        ("lines.json", json.dumps(CLOUDEVENT).encode() + b"\n", 1),
        ("batch.json", json.dumps([CLOUDEVENT]).encode(), 1),
        ("table.txt", b"\xef\xbb\xbftype;x\nA;1\n", 1),
        ("bom.ndjson", b'\xef\xbb\xbf{"type":"A"}\n{"type":"B"}\n', 2),
        ("bom.cloudevents", b"\xef\xbb\xbf" + json.dumps(CLOUDEVENT).encode(), 1),
        ("bom.json", b"\xef\xbb\xbf" + json.dumps([CLOUDEVENT, CLOUDEVENT | {"id": "2"}]).encode(), 2),
        ("bom.jsonocel", b"\xef\xbb\xbf" + json.dumps(OCEL).encode(), 3),
        ("a.ndjson", b'{"type":"A","data":{"specversion":"1.0","type":"x"}}', 1),
        ("b.ndjson", b'{"id":"1","data":{"eventTypes":[],"a":"\\"ocel:events\\":{}"},"type":"A"}', 1),
    ],
)
def test_the_format_is_guessed(headwater, log: RemoteLog, name: str, content: bytes, count: int) -> None:
    Path(name).write_bytes(content)
    assert imported(headwater, name, "orders") == (count, 0)
    assert imported(headwater, name, "orders") == (0, count)


def test_the_log_is_created_if_asked(headwater) -> None:
    Path("e.ndjson").write_text('{"type":"A"}\n')
    assert headwater("import", "e.ndjson", "new").code == REFUSED
    assert imported(headwater, "e.ndjson", "new", "--create") == (1, 0)
    assert imported(headwater, "e.ndjson", "new", "--create") == (0, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.csv", b"type,time\nA,soon\n", "bad.csv: line 2: expected a time as ISO 8601"),
        ("bad.csv", b"a,b\n1,2\n", "bad.csv: line 1: no event type column found"),
        ("bad.csv", b"type,x\nA,\xff\n", "bad.csv: line 2: it is not UTF-8: byte 0xff"),
        ("bad.csv.gz", b"no gzip", "bad.csv.gz: the gzip file is truncated or damaged"),
        (
            "bad.csv.gz",
            gzip.compress(TABLE.encode(), mtime=0)[:-20],
            "bad.csv.gz: the gzip file is truncated or damaged",
        ),
        (
            "bad.ndjson",
            b'{"type":"A"}\n{"type":""}\n',
            "bad.ndjson: line 2: type: a type must have 1 to 200 characters",
        ),
        ("bad.ndjson", b'{"type":"A"}\n{"typ":""}\n', "bad.ndjson: line 2: "),
        ("bad.ndjson", b'not, json\n{"type":"A"}\n', "bad.ndjson: line 1: "),
        ("bad.jsonl.gz", gzip.compress(b'{"typ":"A"}\n{"type":"A"}\n', mtime=0), "bad.jsonl.gz: line 1: "),
        ("bad.ndjson", b'oops\n{"specversion":"1.0"}\n{"type":"A"}', "bad.ndjson: line 1: "),
        ("bad.json", b'[{"specversion":"1.0"}]', "bad.json: [0]: id: a CloudEvent must have this attribute"),
        ("bad.json", b'{"specversion":"1.0"}', "bad.json: line 1: id: a CloudEvent must have this attribute"),
        ("bad.bin", b"\x00\x01", "the format of 'bad.bin' cannot be guessed; give one of ndjson, csv, cloudevents,"),
        (
            "bad.ndjson",
            b'{"type":"A","id":"1"}\n{"type":"B","id":"1"}\n',
            "bad.ndjson: line 2: id '1' already belongs to event 1, which differs",
        ),
        ("deep.ndjson", b'{"type":"A","data":%b}' % (b"[" * 3000), "line 1: data: the JSON is nested too deeply"),
        ("compact.csv", b"type,time\nA,20240310023000\n", "line 2: '20240310023000' is ambiguous: YYYYMMDDhhmmss"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(headwater, log, name: str, content: bytes, message: str) -> None:
    Path(name).write_bytes(content)
    done = headwater("import", name, "orders")
    assert done.code == REFUSED
    assert message in done.err


EVENTS = [
    Event("A", b'{"n":1}', ("x:1", "y"), "1", "shop", {"time": "2024-01-01T00:00:00Z"}),
    Event("B", b"\xff", (), "2", "shop"),
]


@pytest.mark.parametrize("name", ["e.ndjson", "e.jsonl.gz", "e.cloudevents"])
def test_what_was_exported_can_be_imported_elsewhere(headwater, log: RemoteLog, name: str) -> None:
    log.append(EVENTS)
    assert headwater("export", "orders", name).code == 0
    assert list(Path().glob("*.part")) == []
    assert imported(headwater, name, "copy", "--create") == (2, 0)
    exported = json.loads(headwater("read", "copy", "--json", "--limit", "1").out)["event"]
    assert (exported["id"], exported["source"], exported["tags"]) == ("1", "shop", ["x:1", "y"])


def test_two_exports_of_one_file_at_the_same_time_do_not_mix(headwater, log: RemoteLog, monkeypatch) -> None:
    log.append(EVENTS)
    write, codes = export.encode_event, []

    def export_again(event: SequencedEvent) -> bytes:
        if not codes:
            codes.append(0)
            codes[0] = headwater("export", "orders", "e.ndjson", "--limit", "1").code
        return write(event)

    monkeypatch.setattr(export, "encode_event", export_again)
    done = headwater("export", "orders", "e.ndjson")
    assert codes == [0] and done.code == REFUSED and "the file already exists" in done.err
    assert len(Path("e.ndjson").read_bytes().splitlines()) == 1 and list(Path().glob("*.part")) == []


def test_a_table_is_exported(headwater, log: RemoteLog) -> None:
    log.append(EVENTS)
    headwater("export", "orders", "e.csv")
    with Path("e.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["sequence_number"], first["type"], first["tags"], first["data"]) == ("1", "A", "x:1,y", '{"n":1}')
    assert (second["data"], second["data_base64"]) == ("", "/w==")


def test_a_parquet_file_has_the_events_columns(headwater, log: RemoteLog) -> None:
    log.append(EVENTS)
    assert headwater("export", "orders", "e.parquet", "--type", "A").code == 0
    (row,) = pq.read_table("e.parquet").to_pylist()
    assert (row["sequence_number"], row["type"], row["data"], row["tags"]) == (1, "A", b'{"n":1}', ["x:1", "y"])
    assert row["attributes"] == [("time", "2024-01-01T00:00:00Z")]


def test_a_parquet_file_has_checksums(headwater, log: RemoteLog) -> None:
    log.append(EVENTS)
    assert headwater("export", "orders", "e.parquet").code == 0
    flip_in(Path("e.parquet"), "data")
    with pytest.raises(OSError, match="checksum"):
        pq.read_table("e.parquet", page_checksum_verification=True)


def test_standard_output_is_a_file_too(headwater, log: RemoteLog) -> None:
    log.append(EVENTS)
    assert headwater("export", "orders", "-", "--format", "csv", "--limit", "1").out.count("\n") == 2


def test_a_file_without_known_ending_is_refused(headwater, log: RemoteLog) -> None:
    done = headwater("export", "orders", "e.xls")
    assert (done.code, Path("e.xls").exists()) == (REFUSED, False)
    assert "the extension of 'e.xls' does not name a known format; use one of ndjson" in done.err


@pytest.mark.parametrize("file", ["e.ndjson", "e.cloudevents", "e.csv"])
def test_odd_tags_come_back_from_a_file(headwater, log: RemoteLog, file: str) -> None:
    log.append([Event("A", b"{}", (tag,), id=str(number), source="s") for number, tag in enumerate(ODD_TAGS)])
    assert headwater("export", "orders", file).code == 0
    assert headwater("import", file, "again", "--create").code == 0
    with connect(os.environ["HEADWATER_URL"]) as server:
        assert [event.tags for event in server.log("again").read()] == [(tag,) for tag in ODD_TAGS]


def test_odd_tags_are_in_a_table(headwater, log: RemoteLog) -> None:
    log.append([Event("A", b"", tuple(ODD_TAGS))])
    assert headwater("export", "orders", "e.csv").code == 0
    with open("e.csv", encoding="utf-8", newline="") as file:
        [row] = csv.DictReader(file)
    assert sorted(unquote(tag) for tag in row["tags"].split(",")) == sorted(ODD_TAGS)
    assert headwater("export", "orders", "e.parquet").code == 0
    assert sorted(pq.read_table("e.parquet").to_pylist()[0]["tags"]) == sorted(ODD_TAGS)


def test_odd_values_of_tables_and_odd_objects_become_the_tags_that_they_ever_became(headwater, log: RemoteLog) -> None:
    """A file that an older version imported is recognised when it is imported again."""
    values = [tag for tag in ODD_TAGS if tag != "null"]
    expected = [(fit_tag("tenant.id", value),) for value in values]
    with open("e.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("type", "tenant.id"), *[("A", value) for value in values]])
    assert headwater("import", "e.csv", "orders", "--tag", "tenant.id").code == 0
    objects = {value: {"ocel:type": "tenant.id"} for value in values}
    events = {
        str(n): {
            "ocel:activity": "pay",
            "ocel:timestamp": f"2024-01-01T{n // 60:02}:{n % 60:02}:00Z",
            "ocel:omap": [value],
        }
        for n, value in enumerate(values)
    }
    Path("e.jsonocel").write_text(json.dumps({"ocel:objects": objects, "ocel:events": events}))
    assert headwater("import", "e.jsonocel", "orders").code == 0
    assert [event.tags for event in log.read()] == expected * 2
    assert expected[0] == ("tenant_id:order/17",)


ATTRIBUTES = {"subject": "s", "time": "2024-01-01T00:00:00Z"}


def test_a_table_comes_back_as_it_went(headwater, log: RemoteLog) -> None:
    events = [
        *EVENTS,
        Event("C", b'line\r\n"quoted", \r and \n', ("a:b,%", "z:1"), "3", "", ATTRIBUTES, "g"),
        Event("D", b"", (), "4"),
        Event("E", b"x" * 300_000, (), "5"),
        Event("F", b"\xa0\0", (), "6", "", {}, "", b"\0Su", Encoding.AMQP),
    ]  # fmt: skip
    log.append(events)
    stored = [event.event for event in log.read()]
    assert headwater("export", "orders", "e.csv.gz").code == 0
    assert imported(headwater, "e.csv.gz", "copy", "--create") == (6, 0)
    assert headwater("export", "copy", "copy.ndjson").code == 0
    assert list(ndjson_events(Path("copy.ndjson").read_bytes().splitlines())) == stored
    assert imported(headwater, "e.csv.gz", "orders") == (0, 6)


ODD = [
    *EVENTS,
    Event("C", b'{"a":\n1}\n', ("a:b,%", "z:1"), "3", "", {"subject": "s", "sequence": "7"}, "g"),
    Event("D", b"1e400", (), "4", "", {"partitionkey": "p"}),
    Event("E", b"\x00\x53\x75\xa0\x01x", (), "5", "", {}, "", b"", Encoding.AMQP),
    Event("ocel:F", b'{"specversion":"1.0"}', (), "6", "/s", {"headwaterdata": "!"}),
]


@pytest.mark.parametrize("name", ["e.ndjson", "e.cloudevents.gz", "e.parquet", "e.parquet.gz", "e.csv"])
def test_odd_events_come_back_from_a_file(headwater, log: RemoteLog, name: str) -> None:
    log.append(ODD)
    assert headwater("export", "orders", name).code == 0
    assert imported(headwater, name, "copy", "--create") == (len(ODD), 0)
    assert headwater("export", "copy", "copy.ndjson").code == 0
    assert list(ndjson_events(Path("copy.ndjson").read_bytes().splitlines())) == ODD


def test_a_parquet_file_of_another_program_is_refused_with_what_to_do(headwater, log: RemoteLog) -> None:
    pq.write_table(pa.table({"type": ["A"]}), "e.parquet")
    done = headwater("import", "e.parquet", "orders")
    assert done.code == REFUSED
    assert "attributes, data, encoding" in done.err
    assert "headwater pipeline import" in done.err
    Path("e.parquet").write_bytes(b"PAR1 and no more")
    assert "the file is damaged or not an export" in headwater("import", "e.parquet", "orders").err


def test_what_is_no_event_or_refused_goes_to_quarantine_with_its_place(headwater, log: RemoteLog) -> None:
    lines = [
        '{"type":"A","id":"1"}',
        "",
        "{",
        '{"type":"","id":"2"}',
        '{"type":"B","id":"3"}',
        '{"type":"C","tags":[""]}',
    ]
    Path("e.ndjson").write_text("\n".join(lines))
    for counts in ((2, 0), (0, 2)):
        Path("bad.ndjson").unlink(missing_ok=True)
        done = headwater("import", "e.ndjson", "orders", "--quarantine", "bad.ndjson", "--batch", "2", "--json")
        assert done.code == 0, done.err
        found = json.loads(done.out)
        assert (found["appended"], found["stored"], found["quarantined"]) == (*counts, 3)
        kept = [json.loads(line) for line in Path("bad.ndjson").read_text().splitlines()]
        assert sorted((each["place"], each["reason"].partition(":")[0]) for each in kept) == [
            ("line 3", "Input data was truncated"), ("line 4", "type"), ("line 6", "tags[0]")]  # fmt: skip
        assert [each["raw"] for each in kept if each["place"] == "line 3"] == ["{"]
    assert [event.type for event in log.read()] == ["A", "B"]


@pytest.mark.parametrize("batch", ["1", "2", "1000"])
@pytest.mark.parametrize("more", [(), ("--quarantine", "bad.ndjson")])
def test_an_event_that_is_twice_in_a_file_is_stored_once_in_whatever_batches(
    headwater, log: RemoteLog, batch: str, more: tuple[str, ...]
) -> None:
    lines = ['{"type":"A","id":"1"}', '{"type":"A","id":"1"}', '{"type":"B","id":"2"}', '{"type":"A","id":"1"}']
    Path("e.ndjson").write_text("\n".join(lines))
    assert imported(headwater, "e.ndjson", "orders", "--batch", batch, *more) == (2, 2)
    Path("other.ndjson").write_text("\n".join(['{"type":"C","id":"3"}', *lines, '{"type":"D","id":"2"}', lines[0]]))
    done = headwater("import", "other.ndjson", "orders", "--batch", batch)
    assert done.code == REFUSED
    assert "other.ndjson: line 6: id '2' already belongs to event 2, which differs" in done.err
    assert [event.type for event in log.read()] == ["A", "B", "C"]


ROWS = "".join(f"a{n},1\n" for n in range(3000))


@pytest.mark.parametrize(("row", "reason"), [
    (b'b,"2"3\n', "',' expected after '\"'"), (b"b,\xe9\n", "it is not UTF-8: byte 0xe9"),
    (b"b\n", "expected 2 cells, got 1"),
])  # fmt: skip
def test_a_bad_row_of_a_table_costs_itself_alone(headwater, log: RemoteLog, row: bytes, reason: str) -> None:
    Path("e.csv").write_bytes(b"type,x\n" + ROWS.encode() + row + b"c,4\n")
    done = headwater("import", "e.csv", "orders", "--quarantine", "bad.ndjson")
    assert (done.code, log.head()) == (0, 3001), done.err
    [kept] = map(json.loads, Path("bad.ndjson").read_text().splitlines())
    assert (kept["place"], kept["reason"]) == ("line 3002", reason)
    assert kept["raw"] == row.decode(errors="backslashreplace").rstrip()
    done = headwater("import", "e.csv", "again", "--create")
    assert done.code == REFUSED
    assert done.out.startswith("3,000 events: 3,000 appended") and f"e.csv: line 3002: {reason}" in done.err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.csv", b"type,x\n" + ROWS.encode() + b'b,"2\nc,4\n', "line 3002: unexpected end of data: unterminated"),
        ("e.csv.gz", gzip.compress(b"type,x\n" + ROWS.encode(), mtime=0)[:-8], "the gzip file is truncated or"),
        ("e.csv.gz", gzip.compress(b"type,x\n" + ROWS.encode(), mtime=0)[:-8] + bytes(8), "the gzip file is"),
        ("e.csv.gz", gzip.compress(b"type,x\n" + ROWS.encode(), mtime=0) + b"more", "the gzip file is truncated or"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("more", [(), ("--quarantine", "bad.ndjson")])
def test_all_before_what_cannot_be_read_is_stored_and_counted(
    headwater, log: RemoteLog, name: str, content: bytes, message: str, more: tuple[str, ...]
) -> None:
    Path(name).write_bytes(content)
    done = headwater("import", name, "orders", *more)
    assert (done.code, log.head()) == (REFUSED, 3000)
    assert done.out.startswith("3,000 events: 3,000 appended")
    assert f"{name}: {message}" in done.err
    assert Path("bad.ndjson").exists() == bool(more)


def test_what_comes_before_a_refused_event_is_stored(headwater, log: RemoteLog) -> None:
    Path("e.ndjson").write_text('{"type":"A"}\n\n{"type":"B"}\n{"type":"C","attributes":{"time":"now"}}\n{"type":"D"}')
    done = headwater("import", "e.ndjson", "orders")
    assert done.code == REFUSED
    assert "e.ndjson: line 4: attributes.time: expected an RFC 3339 time, got 'now'" in done.err
    assert [event.type for event in log.read()] == ["A", "B"]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("e.csv", b"type,time\nA,2026-01-01T00:00:00Z\nB,soon\n", "line 3"),
        ("e.json", json.dumps([CLOUDEVENT, {"specversion": "1.0"}]).encode(), "[1]"),
    ],
)
def test_the_place_in_quarantine_is_that_of_the_format(headwater, log, name: str, content: bytes, place: str) -> None:
    Path(name).write_bytes(content)
    assert headwater("import", name, "orders", "--quarantine", "bad.ndjson").code == 0
    assert json.loads(Path("bad.ndjson").read_text())["place"] == place


def test_a_table_of_the_columns_before_comes_back_without_what_it_left_out(headwater, log: RemoteLog) -> None:
    header = "sequence_number,recorded_at,partition,type,tags,id,source,time,data,data_base64"
    Path("old.csv").write_text(f"{header}\n1,2024-01-01T00:00:00.000Z,0,A,x:1,1,shop,,hello,\n")
    assert imported(headwater, "old.csv", "orders") == (1, 0)
    (event,) = log.read()
    assert event.event == Event("A", b"hello", ("x:1",), "1", "shop")


def test_a_table_of_which_columns_are_named_is_a_table_like_any_other(headwater, log: RemoteLog) -> None:
    log.append(EVENTS[:1])
    headwater("export", "orders", "e.csv")
    assert imported(headwater, "e.csv", "orders", "--type-column", "id") == (1, 0)
    assert [event.type for event in log.read()] == ["A", "1"]
