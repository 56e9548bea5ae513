"""Rows of frames as events. No Spark session is needed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.core.event import Encoding, SequencedEvent
from headwater.formats.arrow.tables import record_batch
from headwater.spark.columns.rows import events_in
from headwater.spark.columns.schema import COLUMNS, arrow_schema

EVENTS = [
    SequencedEvent(n, 1000 + n, n % 2, "Placed", b"{}", ("a", f"b:{n}")[: n % 3], f"id-{n}", "shop",
                   {"subject": str(n)} if n % 2 else {}, "key", b"whole", Encoding(n % 2))
    for n in range(1, 8)
]  # fmt: skip


def rows(events: list[SequencedEvent]) -> pa.RecordBatch:
    """The events as Spark hands them to a task."""
    batch = record_batch(events)
    columns = {"log": pa.repeat("orders", batch.num_rows), **dict(zip(batch.schema.names, batch.columns, strict=True))}
    schema = arrow_schema(COLUMNS)
    return pa.record_batch([columns[field.name].cast(field.type) for field in schema], schema=schema)


def test_rows_are_the_events_that_they_came_from() -> None:
    assert events_in(rows(EVENTS)) == EVENTS
    assert events_in(rows(EVENTS).slice(2, 3)) == EVENTS[2:5]
    assert events_in(rows([])) == []


@pytest.mark.parametrize("field", SequencedEvent._fields)
def test_what_was_not_read_of_an_event_is_empty(field: str) -> None:
    events = events_in(rows(EVENTS).drop_columns([field]))
    assert [event._replace(**{field: getattr(EVENTS[0], field)}) for event in events] == [
        event._replace(**{field: getattr(EVENTS[0], field)}) for event in EVENTS
    ]
    assert not any(getattr(event, field) for event in events)
