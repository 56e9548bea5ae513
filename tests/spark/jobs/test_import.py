"""Files into a log of a real server, by Spark: every format, once, with what is no event kept aside."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headwater.client import connect
from headwater.core import Event, SequencedEvent
from headwater.core.errors import InvalidInput, LogNotFound
from headwater.core.limits import check_append
from headwater.core.mark import BATCH_MAX, Mark
from headwater.core.settings import LogSettings
from headwater.flight.client import BulkClient
from headwater.formats.files import csv_rows
from headwater.formats.files.tabular import TableMapping, row_reader, table_events
from headwater.spark.jobs.import_ import reader, tables
from headwater.spark.jobs.import_.files import find_files, fingerprint, look_at
from headwater.spark.jobs.import_.pieces import batches_of, pieces_of
from headwater.spark.jobs.import_.quarantine import BadRow
from headwater.spark.jobs.import_.reader import fitting, read_piece
from headwater.spark.jobs.import_.tables import TableReader
from headwater.spark.pipeline import run as run_module
from headwater.spark.pipeline.run import Ending, Run, Summary
from headwater.spark.pipeline.run import Server as BulkServer
from headwater.spark.pipelines import load, names
from headwater.storage import Engine
from tests.night import night
from tests.server.running import RunningServer, environment, headwater

from ..conftest import spark_environment
from ..pipeline.test_run import Shown

WITH_FLIGHT = ("--flight-enabled", "true", "--flight-port", "0")
Load = Callable[..., Summary]
IMPORT = load("import")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer("--data", "data", *WITH_FLIGHT, cwd=tmp_path_factory.mktemp("server")) as run_module:
        yield run_module


@pytest.fixture(scope="module")
def url(server: RunningServer) -> str:
    return server.further_url("grpc")


@pytest.fixture
def log(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", request.node.name.removeprefix("test_"))[-50:].strip("-.")


@pytest.fixture
def start(spark: SparkSession, url: str, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """`start(file=("a.csv",), tag=("x",))`: run the import into a log of the test's own, in a directory of its own."""
    monkeypatch.chdir(tmp_path)

    def start(**options: object) -> Summary:
        wanted = IMPORT.options(**{"log": log, "create": True, **options})
        return IMPORT.start(wanted, spark, server=BulkServer(url))

    return start


def counts(summary: Summary) -> tuple[object, ...]:
    return tuple(summary.details[name] for name in ("appended", "there_already", "quarantined"))


def stored(server: RunningServer, log: str) -> list[Event]:
    with connect(server.url) as client:
        return [event.event for event in client.log(log).read()]


def by_command(server: RunningServer, *arguments: str) -> dict[str, int]:
    done = headwater("import", *arguments, "--json", "--url", server.url, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Pieces, without Spark.

CELLS = ["", "a", "b c", "x,y", 'say "hi"', "two\nlines", "cr\r\nlf", "ü", "NA", "7.5", "\u2028"]


def table(seed: int, rows: int, end: str) -> str:
    """A table with all that CSV can have: quotes, line ends in cells, empty lines, a last line without end."""
    random_ = random.Random(seed)
    lines = ["kind,case,note"]
    for _ in range(rows):
        cells = ["T", random_.choice(CELLS), random_.choice(CELLS)]
        lines.append(
            ",".join('"' + cell.replace('"', '""') + '"' if set(cell) & set(',"\r\n') else cell for cell in cells)
        )
        if random_.random() < 0.05:
            lines.append("")
    return end.join(lines)


def read_in_pieces(path: Path, mapping: TableMapping, piece_bytes: int) -> tuple[list[dict[str, object]], list[BadRow]]:
    bad: list[BadRow] = []
    rows: list[dict[str, object]] = []
    for piece in pieces_of(look_at(path, None, mapping), piece_bytes):
        for batch in read_piece(piece, LogSettings(), bad):
            rows += batch.to_pylist()
    return rows, bad


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("seed", range(5))
def test_a_table_in_pieces_has_the_same_events_as_in_one(tmp_path: Path, seed: int, end: str) -> None:
    text = table(seed, 200, end)
    mapping = TableMapping("t.csv", "kind", tags=(("case", "case"),))
    events = table_events(io.StringIO(text, newline=""), mapping)
    expected = [(event.id, event.data, list(event.tags)) for event in events]
    (path := tmp_path / "t.csv").write_bytes(text.encode())
    for piece_bytes in (1, 37, 400, 10**6):
        rows, bad = read_in_pieces(path, mapping, piece_bytes)
        assert [(row["id"], row["data"], row["tags"]) for row in rows] == expected
        assert bad == []


TIMES = ["2024-01-02", "2024-01-02T03:04:05.6+01:00", " 1704164645 ", "1704164645678", "", "NA", "20240102T030405Z"]
KEYS = [("a", "k"), ("b", "k-b"), ("c", "k:c"), ("a", "k_c")]


@pytest.mark.parametrize("tags", [(), KEYS[:3], [*KEYS[2:], ("b", "k_c"), ("c", "k_c")]], ids=["none", "keys", "same"])
@pytest.mark.parametrize("id_column", [None, "id"])
def test_columns_of_rows_are_the_events_of_each_row(id_column: str | None, tags: list[tuple[str, str]]) -> None:
    random_ = random.Random(7)
    cells = ["", "NULL", "x", "y%", "two\nlines", "\x7f\u2028\0", 'say "\\"', "ü", "long " * 99, "\U0001f600"]
    header = ["type", "at", "id", "a", "b", "c", "a"]
    rows = [[f"T{n}", random_.choice(TIMES), f"i{n}", *random_.choices(cells, k=4)] for n in range(300)]
    mapping = TableMapping("src", "type", "at", id_column, tuple(tags))
    found = TableReader(header, mapping).events(rows, range(5, 305))
    assert found.problems == [] and found.is_event.all()
    event_of = row_reader(header, mapping)
    assert [
        (row["type"], row["data"], tuple(row["tags"]), row["id"], row["source"], dict(row["attributes"]))
        for row in found.events.to_pylist()
    ] == [event_of(row, number)[:6] for number, row in enumerate(rows, 5)]


def test_rows_that_are_no_events_are_told_of_as_by_themselves() -> None:
    header, mapping = ["type", "at", "id", "x"], TableMapping("src", "type", "at", "id", (("x", ""),))
    rows = [["T", "NA", "1", ""], ["T", "NA", "1"], ["", "soon", "", ""], ["T", "soon", "", ""], ["T", "0", "", ""],
            ["T", "", "", ""], ["T", "", "2", "y"], ["T", "2024-01-01", "3", "NA"]]  # fmt: skip
    found = TableReader(header, mapping).events(rows, range(1, 9))
    assert found.is_event.tolist() == [True, *[False] * 6, True]
    assert found.events.column("id").to_pylist() == ["1", "3"]
    event_of = row_reader(header, mapping)
    for at, problem in found.problems:
        with pytest.raises(InvalidInput) as error:
            event_of(rows[at], at + 1)
        assert str(error.value) == problem
    none = TableReader(header, mapping).events([["T"]], [1])
    assert (none.events.num_rows, len(none.problems)) == (0, 1)


def test_plain_tables_are_cut_without_a_look_at_their_rows(tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_text("type,n\n" + "".join(f"T,{n}\n" for n in range(1000)))
    pieces = list(pieces_of(look_at(path, None, TableMapping("")), 100))
    assert len(pieces) > 50
    assert [len(batch) for batch in batches_of(pieces, 1000)][:3] == [10, 10, 10]
    rows, _ = read_in_pieces(path, TableMapping(""), 100)
    assert [json.loads(row["data"])["n"] for row in rows] == [str(n) for n in range(1000)]  # type: ignore[arg-type]


def test_bad_rows_are_told_with_their_place_and_do_not_move_the_ids_of_others(tmp_path: Path) -> None:
    lines = [b"type,time,x\n", b"A,2024-01-01,1\n", b"A,soon,2\n", b"A,2024-01-01\n", b",2024-01-01,4\n",
             b"A,2024-01-01,\xff5\n", b'A,2024-01-01,"6"6\n', b"A,2024-01-01,7\n",
             b"A" * 201 + b",2024-01-01,8\n"]  # fmt: skip
    (path := tmp_path / "t.csv").write_bytes(b"".join(lines))
    for piece_bytes in (1, 10**6):
        rows, bad = read_in_pieces(path, TableMapping(""), piece_bytes)
        assert [json.loads(row["data"])["x"] for row in rows] == ["1", "7"]  # type: ignore[arg-type]
        assert sorted((row.row, row.line, row.reason) for row in bad) == [
            (2, 3, "expected a time as ISO 8601, or seconds or milliseconds since 1970, got 'soon'"),
            (3, 4, "expected 3 cells, got 2"),
            (4, 5, "the event type column 'type' is empty"),
            (5, 6, "it is not UTF-8"),
            (6, 7, "',' expected after '\"'"),
            (8, 9, "type: a type must have 1 to 200 characters, got 201"),
        ]
        assert next(row for row in bad if row.row == 5).raw == "A,2024-01-01,\\xff5"
    good, _ = read_in_pieces(path, TableMapping(""), 1)
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "t.csv").write_bytes(b"".join([lines[0], lines[1], *[b"A,2024-01-01,0\n"] * 5, lines[7]]))
    clean, _ = read_in_pieces(tmp_path / "good" / "t.csv", TableMapping(""), 10**6)
    assert (good[0]["id"], good[1]["id"]) == (clean[0]["id"], clean[6]["id"])


def test_a_row_of_a_table_on_which_the_import_itself_fails_is_told_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = tables.rfc3339
    monkeypatch.setattr(tables, "rfc3339", lambda text, *format: {}[text] if text == "x" else right(text, *format))
    (path := tmp_path / "t.csv").write_text("type,time\nA,2024-01-01\nB,x\nC,soon\nD,\n")
    rows, bad = read_in_pieces(path, TableMapping(""), 10**6)
    assert [row["type"] for row in rows] == ["A", "D"]
    assert [(each.row, each.reason.partition(",")[0]) for each in bad] == [
        (2, "unexpected KeyError: 'x'"), (3, "expected a time as ISO 8601"),
    ]  # fmt: skip


def test_what_a_log_refuses_is_found_among_much_that_it_takes() -> None:
    types = ["T"] * 1000
    types[17] = types[900] = ""
    batch = pa.record_batch({"type": types, "data": ["x"] * 1000})
    found = list(fitting(batch, LogSettings()))
    assert [at for good, at, _ in found if good is None] == [17, 900]
    assert sum(good.num_rows for good, _, _ in found if good is not None) == 998


def test_files_are_found_by_name_directory_and_pattern(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "sub/c.csv", "_SUCCESS", ".hidden", "_tmp/d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("type\nT\n")
    assert [path.name for path in find_files([str(tmp_path)])] == ["a.csv", "b.csv", "c.csv"]
    assert [path.name for path in find_files([str(tmp_path / "*.csv"), str(tmp_path / "a.csv")])] == ["a.csv", "b.csv"]
    with pytest.raises(InvalidInput, match=r"no file matches .*; did you mean a\.csv"):
        find_files([str(tmp_path / "aa.csv")])
    (tmp_path / "sub" / "a.csv").write_text("type\nT\n")
    with pytest.raises(InvalidInput, match="have the same file name"):
        find_files([str(tmp_path)])


def test_the_pipeline_has_its_name_and_says_what_it_would_do(url: str, tmp_path: Path) -> None:
    assert "import" in names()
    (path := tmp_path / "t.csv").write_text("case;Activity;when\n1;a;2024-01-01\n")
    options = IMPORT.options(file=(str(path),), log="permits", tag=("case=id",), time_column="when", create=True)
    with Run("import", server=BulkServer(url)) as run:
        lines = IMPORT.plan(options, run)
    assert lines[0].endswith("source 't.csv'): type from Activity, time from when, id derived, tag id from case")
    assert f"log 'permits' on {url}, which does not exist and will be created" in lines[1]
    with Run("import", server=BulkServer(url)) as run, pytest.raises(LogNotFound):
        IMPORT.plan(IMPORT.options(file=(str(path),), log="permits"), run)
    for wrong, message in (
        ({"tag": ("cas",)}, "there is no column 'cas'; the columns are case, Activity, when"),
        ({"delimiter": ";;"}, "one character"),
        ({"batch_size": "many"}, "a size such as 32m"),
        ({"file": ("a", "b"), "source": "s"}, "a source can only be set for one file"),
    ):
        with Run("import") as run, pytest.raises(InvalidInput, match=message):
            IMPORT.plan(IMPORT.options(**{"file": (str(path),), "log": "permits", **wrong}), run)


# With Spark and a server.

TABLE = "case,activity,timestamp\n" + "".join(f"c{n % 7},step {n},2024-01-01T00:00:{n % 60:02}Z\n" for n in range(500))
OCEL = {
    "ocel:objects": {"o1": {"ocel:type": "order"}},
    "ocel:events": {
        str(n): {"ocel:activity": "pay", "ocel:timestamp": f"2024-01-0{n}T00:00:00Z", "ocel:omap": ["o1"]}
        for n in range(1, 4)
    },
}
CLOUDEVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "A", "tags": "order:17", "data": {"n": 1}}


def test_a_table_is_imported_once_in_its_order_however_often(start: Load, server: RunningServer, log: str) -> None:
    Path("cases.csv").write_text(TABLE)
    first = start(file=("cases.csv",), tag=("case",), batch_size="4k")
    assert counts(first) == (500, 0, 0)
    assert first.batches > 3
    assert counts(start(file=("cases.csv",), tag=("case",), batch_size="4k")) == (0, 0, 0)  # by its marks
    assert counts(start(file=("cases.csv",), tag=("case",))) == (0, 500, 0)  # by its ids
    events = stored(server, log)
    assert [event.type for event in events] == [f"step {n}" for n in range(500)]
    assert (events[1].tags, events[1].source) == (("case:c1",), "cases.csv")


def test_the_writer_of_an_import_ends_with_it(start: Load, url: str, log: str) -> None:
    """So that imports, however many, take none of the places that a log has for writers."""
    Path("cases.csv").write_text(TABLE)
    assert counts(start(file=("cases.csv",), tag=("case",))) == (500, 0, 0)
    options = IMPORT.options(file=("cases.csv",), log=log, tag=("case",))
    name = f"import/{log}/{fingerprint(options.files(), options.batch_bytes())}"
    with BulkServer(url).client() as client:
        state = client.writer(log, name)
    assert state is not None and state.is_complete and state.batch == BATCH_MAX


def test_a_batch_of_which_only_a_part_was_appended_is_imported_whole(
    spark: SparkSession, start: Load, server: RunningServer, log: str
) -> None:
    """As a server that was killed in the middle of a commit of several appends leaves it."""
    Path("cases.csv").write_text(TABLE)
    start(file=("cases.csv",))
    events = stored(server, log)
    options = IMPORT.options(file=("cases.csv",), log=log)
    mark = Mark(f"import/{log}/{fingerprint(options.files(), options.batch_bytes())}", 0, 100, False)
    with Engine("data", maintains=False, reserve_bytes=0) as engine:
        columns = check_append(events[:100], LogSettings().event_bytes_max)
        engine.create(log, LogSettings()).append_columns(columns, mark=mark)
    with RunningServer("--data", "data", *WITH_FLIGHT, cwd=Path.cwd()) as again:
        IMPORT.start(options, spark, server=BulkServer(again.further_url("grpc")))
        assert stored(again, log) == events


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [
        ("events.ndjson", b'{"type":"A"}\n\n{"type":"B","id":"7","source":"s"}\n', 2),
        ("log.jsonocel", json.dumps(OCEL).encode(), 3),
        ("lines.json", json.dumps(CLOUDEVENT).encode() + b"\n", 1),
        ("batch.json", json.dumps([CLOUDEVENT]).encode(), 1),
        ("table.csv.gz", gzip.compress(b"\xef\xbb\xbftype;x\nA;1\nB;\"2\n3\"\n", mtime=0), 2),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_one_way_imported_the_other_knows(
    start: Load, server: RunningServer, log: str, name: str, content: bytes, count: int
) -> None:
    Path(name).write_bytes(content)
    assert counts(start(file=(name,))) == (count, 0, 0)
    assert by_command(server, name, log)["stored"] == count
    assert by_command(server, name, f"{log}-2", "--create")["appended"] == count
    assert counts(start(file=(name,), log=f"{log}-2")) == (0, count, 0)
    assert stored(server, log) == stored(server, f"{log}-2")


def test_bad_rows_are_kept_with_their_reason_and_the_others_are_imported(
    start: Load, server: RunningServer, log: str, tmp_path: Path
) -> None:
    ocel = OCEL | {"ocel:events": {**OCEL["ocel:events"], "9": {"ocel:activity": "pay", "ocel:timestamp": "soon"}}}
    Path("o.jsonocel").write_text(json.dumps(ocel))
    Path("e.ndjson").write_bytes(b'{"type":"A"}\n{"typ":"A"}\n{"type":"A","tags":[""]}\n\xff\n{"type":"B"}\n')
    summary = start(file=("o.jsonocel", "e.ndjson"), quarantine="bad")
    assert counts(summary) == (5, 0, 4)
    kept = pq.read_table(tmp_path / "bad").to_pylist()
    said = {(Path(row["file"]).name, row["row"]): (row["raw"], row["reason"]) for row in kept}
    assert sorted(said) == [("e.ndjson", 2), ("e.ndjson", 3), ("e.ndjson", 4), ("o.jsonocel", 4)]
    assert said["e.ndjson", 2][0] == '{"typ":"A"}'
    assert "expected a time as ISO 8601" in said["o.jsonocel", 4][1]
    assert "tags" in said["e.ndjson", 3][1]
    with pytest.raises(InvalidInput, match="4 rows are not valid events, but at most 3 are allowed"):
        start(file=("o.jsonocel", "e.ndjson"), quarantine="bad", batch_size="31m", bad_rows_max=3)
    assert len(stored(server, log)) == 5


def test_data_that_is_json_is_taken_as_it_is_and_an_import_without_any_event_fails(
    start: Load, server: RunningServer, log: str
) -> None:
    Path("e.ndjson").write_bytes(b'{"type":"A","data":{"total": 30.50}}\n{"typ":"A"}\n')
    assert counts(start(file=("e.ndjson",))) == (1, 0, 1)
    assert stored(server, log)[0].data == b'{"total": 30.50}'
    Path("t.csv").write_text("type;time\n" + "T;soon\n" * 3)
    for size in ("32m", "10"):  # one batch, and one for each two rows
        for _ in range(2):  # the second run finds its batches done
            with pytest.raises(InvalidInput, match=r"none of 3 rows is a valid event; see the reasons in .*bad"):
                start(file=("t.csv",), quarantine=f"bad-{size}", batch_size=size)


def test_a_table_that_was_exported_is_taken_as_what_it_is(tmp_path: Path) -> None:
    events = [Event("A", b'{"n": 1}', ("x:1", " y,z%"), "7", "/shop", {"time": "2024-01-02T00:00:00Z", "s": "t"}, "k"),
              Event("B", b"\xff\n", (), "8", "")]  # fmt: skip
    stored = [SequencedEvent(n, 0, 0, *event) for n, event in enumerate(events, 1)]
    for columns in (csv_rows.COLUMNS, csv_rows.COLUMNS_BEFORE):
        with (path := tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([columns, *(csv_rows.row_of(each)[: len(columns)] for each in stored)])
            file.write("9,soon\n")
        for piece_bytes in (1, 10**6):
            rows, bad = read_in_pieces(path, TableMapping(""), piece_bytes)
            assert [(row["type"], row["data"], tuple(row["tags"]), row["id"], row["source"]) for row in rows] == [
                event[:5] for event in events
            ]
            assert dict(rows[0]["attributes"]).get("s") == ("t" if columns == csv_rows.COLUMNS else None)
            assert [(each.row, each.reason) for each in bad] == [(3, f"expected {len(columns)} cells, got 2")]
    rows, _ = read_in_pieces(path, TableMapping("", type_column="type"), 10**6)
    assert json.loads(rows[0]["data"])["id"] == "7"  # whoever names a column, wants a table


def test_an_import_that_is_asked_twice_ends_at_once_and_tells_what_is_in_the_log(
    spark: SparkSession, server: RunningServer, url: str, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "TICK_S", 0)
    monkeypatch.setattr(run_module, "POLL_S", 0.01)
    monkeypatch.chdir(tmp_path)
    Path("cases.csv").write_text(TABLE)

    class Impatient(Shown):
        def tick(self, status: object) -> None:
            if len(self.batches) == 1:
                run.stop.ask()

    run = Run("import", server=BulkServer(url), progress=(shown := Impatient()))
    options = IMPORT.options(file=("cases.csv",), log=log, create=True, batch_size="4k")
    with run:
        summary = IMPORT.go(spark, options, run)
    assert summary.ending is Ending.INTERRUPTED
    assert summary.details["appended"] == summary.events == len(stored(server, log)) < 500
    assert "stopping after this batch; repeat to stop immediately" in shown.said
    again = IMPORT.start(options, spark, server=BulkServer(url))
    assert summary.events + again.events == 500 == len(stored(server, log))


def test_parquet_of_events_and_of_anything_else_is_imported(start: Load, server: RunningServer, log: str) -> None:
    events = {"type": ["A", "B", ""], "data": [b"1", b"\xff", b"3"], "tags": [["x:1"], [], []],
              "id": ["1", None, "3"], "attributes": [[("time", "2024-01-01T00:00:00Z")], [], []]}  # fmt: skip
    map_type = pa.map_(pa.string(), pa.string())
    table = pa.table(
        {name: pa.array(column, map_type if name == "attributes" else None) for name, column in events.items()}
    )
    pq.write_table(table, "e.parquet", row_group_size=2)
    assert counts(start(file=("e.parquet",))) == (2, 0, 1)
    rows = {
        "kind": ["A", "B", None],
        "at": [datetime(2024, 1, 2, tzinfo=UTC), None, None],
        "n": [1, 2, 3],
        "k": [5, None, 7],
    }
    pq.write_table(pa.table(rows), "t.parquet", row_group_size=1)
    summary = start(file=("t.parquet",), type_column="kind", time_column="at", tag=("k=key", "n"))
    assert counts(summary) == (2, 0, 1)
    a, b, c, d = stored(server, log)
    assert (a.type, a.data, a.tags, a.id, a.attributes) == ("A", b"1", ("x:1",), "1", {"time": "2024-01-01T00:00:00Z"})
    assert (b.data, len(b.id), b.source) == (b"\xff", 36, "e.parquet")
    assert (c.type, c.tags, c.attributes["time"]) == ("A", ("key:5", "n:1"), "2024-01-02T00:00:00Z")
    assert json.loads(d.data) == {"kind": "B", "at": None, "n": 2, "k": None}
    assert counts(start(file=("e.parquet",), batch_size="31m", quarantine="again")) == (0, 2, 1)


def test_times_in_nanoseconds_int96_and_durations_are_imported_and_what_has_no_value_is_kept(
    start: Load, server: RunningServer, log: str, tmp_path: Path
) -> None:
    second = 1_704_164_645
    rows = pa.table(
        {
            "kind": ["A", "B", "C"],
            "at": pa.array([second * 10**9, second * 10**9 + 123_456_789, None], pa.timestamp("ns", "UTC")),
            "took": pa.array([1_500_000_000, -86_400_000_000_001, None], pa.duration("ns")),
            "steps": pa.array([[second * 10**9 + 5], [], None], pa.list_(pa.timestamp("ns"))),
            "until": pa.array([0, 1, 2**62], pa.timestamp("us")),
        }
    )
    pq.write_table(rows, "ns.parquet")
    times = [datetime(9999, 12, 31), datetime(2024, 1, 2, 3, 4, 5, 123456)]
    int96 = {"kind": ["D", "E"], "at": times, "took": [None, None]}
    pq.write_table(pa.table(int96), "int96.parquet", use_deprecated_int96_timestamps=True)
    Path("deep.ndjson").write_bytes(b'{"type":"F","data":%b}\n{"type":"G"}\n' % (b"[" * 3000 + b"]" * 3000))
    summary = start(file=("ns.parquet", "int96.parquet"), type_column="kind", time_column="at", tag=("took",))
    assert counts(summary) == (4, 0, 1)
    a, b, d, e = stored(server, log)
    steps = ["2024-01-02T03:04:05.000000005"]
    assert json.loads(a.data) == {"kind": "A", "at": "2024-01-02T03:04:05Z", "took": "PT1.5S", "steps": steps,
                                  "until": "1970-01-01T00:00:00"}  # fmt: skip
    assert (a.attributes["time"], a.tags) == ("2024-01-02T03:04:05Z", ("took:0:00:01.500000",))
    at, took = json.loads(b.data)["at"], json.loads(b.data)["took"]
    assert (at, took) == ("2024-01-02T03:04:05.123456789Z", "-P1DT0.000000001S")
    assert b.attributes["time"] == "2024-01-02T03:04:05.123456Z"
    assert [json.loads(event.data)["at"] for event in (d, e)] == ["9999-12-31T00:00:00", "2024-01-02T03:04:05.123456"]
    assert counts(start(file=("deep.ndjson",))) == (1, 0, 1)
    kept = pq.read_table(tmp_path / "quarantine").to_pylist()
    assert {(Path(row["file"]).name, row["row"], row["reason"].partition(": ")[0]) for row in kept} == {
        ("ns.parquet", 3, "until"),
        ("deep.ndjson", 1, "data"),
    }


def test_rows_on_which_an_import_itself_fails_are_kept_with_the_error_and_end_it_after_100(
    start: Load, server: RunningServer, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(reader.Reading):
        def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from headwater.spark.jobs.import_ import reader as of_worker

            right = of_worker.ndjson_event
            event_of = of_worker._by_line(lambda line, *at: right(line, *at) if b"x" in line else {}[line])
            of_worker._READERS["ndjson"], kept = event_of, of_worker._READERS["ndjson"]
            try:
                yield from of_worker.Reading.__call__(self, numbers)
            finally:
                of_worker._READERS["ndjson"] = kept

    monkeypatch.setattr(reader, "Reading", Failing)
    Path("e.ndjson").write_bytes(b'{"type":"x"}\n' + b'{"type":"A"}\n' * 60 + b'{"type":"x"}\n' * 2)
    Path("f.ndjson").write_bytes(b'{"type":"A"}\n' * 60)
    assert counts(start(file=("e.ndjson",))) == (3, 0, 60)
    with pytest.raises(InvalidInput, match="120 rows failed because of an internal error"):
        start(file=("e.ndjson", "f.ndjson"), quarantine="more", batch_size="800")
    assert pq.read_table(tmp_path / "more")["reason"][0].as_py() == """unexpected KeyError: b'{"type":"A"}\\n'"""


@night
def test_killed_in_the_middle_and_started_again_it_imports_the_rest(
    spark: SparkSession, start: Load, server: RunningServer, url: str, log: str, tmp_path: Path
) -> None:
    Path("big.csv").write_text("type,n\n" + "".join(f"T,{n}\n" for n in range(60_000)))
    spark_environment()
    command = [sys.executable, "-m", "headwater.spark.jobs", "import", "--url", url, "--file", "big.csv", "--log",
               log, "--create", "--batch-size", "30k", "--master", "local[2]", "--conf",
               "spark.driver.memory=512m"]  # fmt: skip
    with Path("out.txt").open("wb") as out, BulkClient(url) as bulk:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, env=environment())
        try:
            while log not in bulk.logs() or bulk.head(log).head < 5000:
                assert process.poll() is None, Path("out.txt").read_text()
                time.sleep(0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        before = bulk.head(log).head
    assert 5000 <= before < 60_000
    summary = start(file=("big.csv",), batch_size="30k")
    assert 0 < summary.events < 60_000
    events = stored(server, log)
    assert [json.loads(event.data)["n"] for event in events] == [str(n) for n in range(60_000)]


def test_real_logs_are_imported_by_both_ways_alike(start: Load, server: RunningServer, log: str) -> None:
    directory = os.environ.get("HEADWATER_TEST_DATA")
    if directory is None:
        pytest.skip("HEADWATER_TEST_DATA names no directory with receipt.csv.gz and recruiting-red.jsonocel.gz")
    receipt = str(Path(directory) / "receipt.csv.gz")
    summary = start(file=(receipt,), type_column="concept:name", tag=("case:concept:name=case", "org:group"))
    assert counts(summary)[1:] == (0, 0)
    done = by_command(server, receipt, log, "--type-column", "concept:name", "--tag", "case:concept:name=case", "--tag",
                      "org:group")  # fmt: skip
    assert done["stored"] == done["events"] == summary.events > 1000
    hiring = str(Path(directory) / "recruiting-red.jsonocel.gz")
    assert counts(start(file=(hiring,), log=f"{log}-2"))[1:] == (0, 0)
    assert by_command(server, hiring, f"{log}-2")["appended"] == 0
