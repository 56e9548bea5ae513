"""Batch reads through Spark from a bulk server in this process."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from headwater.core.local import LocalLog
from headwater.spark.schema import EVENT_SCHEMA

Load = Callable[..., DataFrame]


def test_format_is_found_without_a_register_call_and_has_the_one_schema(load: Load, orders: LocalLog) -> None:
    frame = load(log="orders")

    assert frame.schema == EVENT_SCHEMA
    assert frame.count() == 100


def test_every_column_comes_through_as_it_was_appended(load: Load, orders: LocalLog) -> None:
    stored = {event.sequence_number: event for event in orders.read()}

    for row in load(log="orders").collect():
        event = stored[row.sequence_number]
        assert row.log == "orders"
        assert int(row.recorded_at.timestamp() * 1000) == event.recorded_at
        assert (row.partition, row.type, bytes(row.data)) == (event.partition, event.type, event.data)
        assert tuple(row.tags) == event.tags
        assert (row.id, row.source, row.attributes) == (event.id, event.source, event.attributes)
        assert (row.group_key, bytes(row.envelope), row.encoding) == (event.group_key, event.envelope, 0)
