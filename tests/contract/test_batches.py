"""Appends of batches of Arrow: every kind of log takes, refuses and recognises them as the same events one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from headwater.core import AppendCondition, AppendResult, Event, EventLog, LogSettings, Query
from headwater.core.errors import (
    AppendConditionFailed,
    DuplicateEventId,
    EventLogError,
    InvalidEvent,
    InvalidPosition,
    TooLarge,
)
from headwater.core.limits import APPEND_EVENTS_MAX

from ..builders import event, refusal, unless
from ..formats.arrow.test_events import batches, event_of, in_arrow, layouts
from .conftest import LogFactory
from .kinds import Bench

COUNT = 700
"""More than what is looked at one by one, in storage."""


def batch_of(events: list[Event]) -> pa.RecordBatch:
    columns = dict(zip(Event._fields, map(list, zip(*events, strict=True)), strict=True))
    columns["attributes"] = [list(each.items()) for each in columns["attributes"]]
    kinds = {"data": pa.binary(), "envelope": pa.binary(), "tags": pa.list_(pa.string()), "encoding": pa.int8(),
             "attributes": pa.map_(pa.string(), pa.string())}  # fmt: skip
    return pa.record_batch({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})


def some(count: int, name: str = "e") -> list[Event]:
    return [event(f"T{n % 3}", f"a:{n % 50}", f"b:{n % 7}", data=b"%d" % n, id=f"{name}{n}") for n in range(count)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=batches, layout=layouts)
def test_batches_and_their_events_are_stored_and_refused_alike(
    log_factory: LogFactory, bench: Bench, rows: list[dict[str, Any]], layout: dict[str, Any]
) -> None:
    logs = [log_factory("one", event_bytes_max=1024), log_factory("other", event_bytes_max=1024)]
    head = logs[0].head()
    events = [event_of(row, layout["without"]) for row in rows]
    batch = in_arrow(rows, layout)
    outcomes = [outcome(lambda: logs[0].append(events)), outcome(lambda: logs[1].append_batch(batch))]
    assert outcomes[0] == outcomes[1]
    stored = [[fields(each) for each in log.read(after=head)] for log in logs]
    assert stored[0] == stored[1]


def fields(stored: Any) -> tuple[Any, ...]:
    """What can be compared: an id that was not given is another each time."""
    given = stored.event._asdict()
    return (
        stored.sequence_number,
        *(given[name] for name in given if name != "id"),
        len(given["id"]) == 36 or given["id"],
    )


def outcome(append: Any) -> object:
    try:
        return append()
    except EventLogError as error:
        return type(error), str(error)


def test_a_batch_that_comes_again_is_recognised_whichever_way(log: EventLog) -> None:
    events = some(COUNT)
    batch = batch_of(events)
    assert log.append_batch(batch) == AppendResult(1, COUNT)
    assert log.append_batch(batch) == log.append(events) == AppendResult(1, COUNT, was_stored=True)
    with refusal(DuplicateEventId("e5", "", 6, 1)):
        log.append_batch(batch_of([event(id="new"), events[5]]))
    with refusal(DuplicateEventId("f0", "", None, COUNT)):
        log.append_batch(batch_of([*some(COUNT, "f"), *some(1, "f")]))
    assert [each.event for each in log.read()] == events


def test_a_batch_has_a_condition_and_a_partition(log_factory: LogFactory) -> None:
    log = log_factory(partitions=3)
    condition = AppendCondition(Query.where(tags=["a:1", "über:ä&b=c"]), 0)
    first = batch_of([*some(COUNT), event("A", "a:1", "über:ä&b=c", id="last")])
    assert log.append_batch(first, condition, partition=2).last == COUNT + 1
    assert {each.partition for each in log.read()} == {2}
    with pytest.raises(AppendConditionFailed) as caught:
        log.append_batch(batch_of(some(COUNT, "f")), condition)
    assert caught.value.conflict == COUNT + 1
    log.append_batch(batch_of([event(id="g")]), AppendCondition(Query.where(tags=["a:1"]), COUNT + 1, True))
    with pytest.raises(InvalidPosition):
        log.append_batch(first, partition=3)
    with pytest.raises(EventLogError):
        log.append_batch(first, unless(tags=["bad\n"]))


def test_what_is_wrong_with_a_batch_names_row_and_column(log: EventLog) -> None:
    events = some(COUNT)
    for field, value, where in (
        ("tags", ("fine", "bad\n"), "events[600].tags[1]"),
        ("type", "", "events[600].type"),
        ("source", "bad\n", "events[600].source"),
        ("attributes", {"id": "x"}, "events[600].attributes"),
        ("data", bytes(1024 * 1024 + 1), "events[600].data"),
    ):
        with pytest.raises((InvalidEvent, TooLarge)) as caught:
            log.append_batch(batch_of([*events[:600], events[600]._replace(**{field: value}), *events[601:]]))
        assert caught.value.where == where
    assert log.head() == 0


def test_what_is_no_batch_of_events_is_refused(log: EventLog) -> None:
    with refusal(InvalidEvent("an append needs at least one event", "events")):
        log.append_batch(pa.RecordBatch.from_pylist([], pa.schema({"type": pa.string(), "data": pa.binary()})))
    with refusal(InvalidEvent("there is no column 'data'", "schema")):
        log.append_batch(pa.record_batch({"type": ["A"]}))
    with refusal(TooLarge(APPEND_EVENTS_MAX + 1, APPEND_EVENTS_MAX, "events", "events")):
        types = ["A"] * (APPEND_EVENTS_MAX + 1)
        log.append_batch(pa.record_batch({"type": types, "data": pa.nulls(len(types))}))
    with pytest.raises(InvalidEvent, match=r"expected a pyarrow.RecordBatch"):
        log.append_batch(some(3))  # type: ignore[arg-type]
    liar = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    with pytest.raises(InvalidEvent, match="malformed Arrow data"):
        log.append_batch(pa.record_batch({"type": liar, "data": [b""]}))


def test_whatever_speaks_arrows_c_data_interface_is_a_batch(log: EventLog) -> None:
    class Foreign:
        def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
            made: tuple[object, object] = batch_of(some(3)).__arrow_c_array__(requested_schema)
            return made

    assert log.append_batch(Foreign()) == AppendResult(1, 3)


@pytest.mark.on(durable=True)
def test_large_batches_are_there_after_a_restart(bench: Bench) -> None:
    log = bench.create("orders", LogSettings())
    for name in "abc":
        log.append_batch(batch_of(some(COUNT, name)))
    bench.reopen()
    log = bench.log("orders")
    assert [each.id for each in log.read(Query.where(tags=["a:3", "b:3"]))] == [
        f"{name}{n}" for name in "abc" for n in range(COUNT) if n % 50 == 3 and n % 7 == 3
    ]
