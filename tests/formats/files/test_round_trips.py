"""What `headwater export` writes comes back as the same events: odd ones, in every format."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.core import Encoding, Event, SequencedEvent
from headwater.formats import cloudevents
from headwater.formats.arrow.tables import SCHEMA, record_batch
from headwater.formats.envelope import encode_event, ndjson_events
from headwater.formats.files.cloudevent_lines import exported_line, taken_back
from headwater.formats.files.csv_rows import COLUMNS, row_of
from headwater.formats.files.event_rows import parquet_events
from headwater.formats.files.parquet import parquet_writer
from headwater.formats.files.tabular import TableMapping, table_rows
from tests.every import every
from tests.odd_tags import ODD_TAGS

STRUCTURED = {"datacontenttype": cloudevents.STRUCTURED, "subject": "x"}
DOCUMENT = b'{"specversion":"1.0","id":"9","source":"/s","type":"T", "data": {"a":\n1}}'
ODD = [
    Event("T", b"", (), "1"),
    Event("T", b"x", (), "1", "/s", {"time": "now"}),
    Event(
        "T", b"x", (), "1", "", {"time": "2020-02-30T00:00:00Z", "subject": "", "dataschema": "", "datacontenttype": ""}
    ),
    Event("T", b'{"a":\n 1}\r\n', (), "1", "/s"),
    Event("T", b' "a" ', (), "1", "/s", {"datacontenttype": "application/json"}),
    Event("T", b'"\\ud800"', (), "1", "/s"),
    Event("T", b"1e400", tuple(ODD_TAGS), "1", "/s", {}, "g,%"),
    Event("T", b"null", (), "1", "/s", {"datacontenttype": "text/plain"}),
    Event("T", b"\xef\xbb\xbf\xff", (), "1", "/s", {"datacontenttype": "text/plain"}),
    Event(
        "T", b"x", (), "1", "/s", {"sequence": "7", "partitionkey": "p", "headwateradded": "id", "headwaterdata": "!"}
    ),
    Event("T", b"\x00\x53\x75", (), "1", "", {}, "", b"\x00\x53\x72", Encoding.AMQP),
    Event("T", b"\x00\x53\x75", (), "1", "", {}, "", b"", Encoding.AMQP),
    Event("T", DOCUMENT, (), "1", "/s", STRUCTURED, "", b"\x00\x53\x73"),
    Event("T", b"no document", (), "1", "/s", STRUCTURED, "", b"\x00\x53\x73"),
    Event("T", DOCUMENT, (), "1", "/s", STRUCTURED),
    Event(
        'event","ocel:"', b'{"ocel:events":1,"specversion":"1.0"}', ("event",), '"event"', "/\ufffe", {"a": "\ufffe"}
    ),
]
texts = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=6)
odd_events = st.builds(
    Event,
    type=texts.filter(bool),
    data=st.binary(max_size=9) | st.text(' "{}[]:,\n\r1e\\ud8', max_size=9).map(str.encode),
    tags=st.lists(texts.filter(bool) | st.sampled_from(ODD_TAGS), unique=True, max_size=3).map(sorted).map(tuple),
    id=texts.filter(bool),
    source=texts,
    attributes=st.dictionaries(
        st.sampled_from(
            ["time", "subject", "datacontenttype", "dataschema", "sequence", "partitionkey", "headwateradded"]
        ),
        texts | st.sampled_from(["2026-01-01T00:00:00Z", "text/plain", "application/json", cloudevents.STRUCTURED]),
    ),
    group_key=texts,
    envelope=st.binary(max_size=3),
    encoding=st.sampled_from(Encoding),
)


def by_ndjson(events: Sequence[SequencedEvent]) -> list[Event]:
    return list(ndjson_events(io.BytesIO(b"".join([encode_event(event) + b"\n" for event in events])), "file"))


def by_cloudevents(events: Sequence[SequencedEvent]) -> list[Event]:
    lines = io.BytesIO(b"".join([exported_line(event, "/logs/x") + b"\n" for event in events]))
    return [taken_back(cloudevents.event_from_json(line)) for line in lines]


def by_parquet(events: Sequence[SequencedEvent]) -> list[Event]:
    file = io.BytesIO()
    with parquet_writer(file, SCHEMA) as out:
        out.write_batch(record_batch(events))
    return list(parquet_events(io.BytesIO(file.getvalue())))


def by_csv(events: Sequence[SequencedEvent]) -> list[Event]:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([COLUMNS, *map(row_of, events)])
    file.seek(0)
    return [found for _, _, found in table_rows(file, TableMapping("file")) if isinstance(found, Event)]


WAYS: dict[str, Callable[[Sequence[SequencedEvent]], list[Event]]] = {
    "ndjson": by_ndjson, "cloudevents": by_cloudevents, "parquet": by_parquet, "csv": by_csv,
}  # fmt: skip


def stored(events: Sequence[Event]) -> list[SequencedEvent]:
    return [SequencedEvent(number, 1_700_000_000_000 + number, 0, *event) for number, event in enumerate(events, 1)]


@every("way", WAYS)
@every("event", ODD)
def test_an_odd_event_comes_back_as_it_was(way: str, event: Event) -> None:
    assert WAYS[way](stored([event])) == [event]


@pytest.mark.parametrize("way", WAYS)
@given(events=st.lists(odd_events, max_size=4))
@example(events=ODD)
def test_any_events_come_back_as_they_were_and_in_order(way: str, events: list[Event]) -> None:
    if events or way != "parquet":
        assert WAYS[way](stored(events)) == events


@every("event", ODD)
def test_what_is_exported_is_a_cloudevent_for_everybody_else(event: Event) -> None:
    found = cloudevents.event_from_json(exported_line(*stored([event]), "/logs/x"))
    assert found.id == event.id
    assert found.source == (event.source or "/logs/x")


def test_a_cloudevent_of_another_program_is_taken_as_it_is() -> None:
    event = cloudevents.event_from_json(b'{"specversion":"1.0","id":"1","source":"/s","type":"T","sequence":"7"}')
    assert taken_back(event) == event
