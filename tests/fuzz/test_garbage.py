"""Whatever a caller gives, the answer is a result or a documented error: never another exception, and no damage."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.core import AppendCondition, Event, LogSettings, Query, QueryItem, check_log_name
from headwater.core.errors import EventLogError, InvalidInput
from headwater.core.limits import check_append
from headwater.storage.memory import MemoryLog, MemoryStore

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.just("x" * 5000),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.sets(st.text(max_size=4), max_size=3),
    ),
    max_leaves=6,
)
fine: dict[str, Any] = {
    "type": "A",
    "data": b"",
    "tags": ("x:1",),
    "id": "1",
    "source": "",
    "attributes": {},
    "group_key": "",
    "envelope": b"",
    "encoding": 0,
}
events = st.one_of(
    st.builds(Event, **dict.fromkeys(fine, anything)),
    st.tuples(st.sampled_from(sorted(fine)), anything).map(lambda hurt: Event(**{**fine, hurt[0]: hurt[1]})),
    anything,
)


@given(st.one_of(st.lists(events, max_size=3), st.lists(events, max_size=3).map(tuple)))
def test_events_of_any_kind_are_taken_or_refused_with_their_place(given: Any) -> None:
    try:
        columns = check_append(given, LogSettings().event_bytes_max)
    except InvalidInput as refused:
        assert refused.where.startswith("events")
        assert refused.problem
    else:
        assert columns.count == len(given)
        assert check_append(
            list(map(Event, *(getattr(columns, name) for name in COLUMNS))), LogSettings().event_bytes_max
        )


COLUMNS = ("types", "data", "tags", "ids", "sources", "attributes", "group_keys", "envelopes", "encodings")


@given(st.lists(st.one_of(anything, st.builds(QueryItem, anything, anything)), max_size=3))
def test_queries_of_any_kind_are_made_or_refused_with_their_place(items: list[Any]) -> None:
    try:
        query = Query.of(*items)
    except InvalidInput as refused:
        assert refused.where.startswith("items")
    else:
        query.matches("A", ("x:1",))


@given(st.fixed_dictionaries({}, optional={name: anything for name in ("from_", "after", "limit", "partition")}))
def test_selections_of_any_kind_are_read_or_refused_with_their_place(selection: dict[str, Any]) -> None:
    log = MemoryLog()
    log.append([Event("A")])
    try:
        list(log.read(**selection))
    except InvalidInput as refused:
        assert refused.where in ("from", "after", "limit", "partition")


@given(anything, anything, anything)
def test_numbers_of_any_kind_are_used_or_refused(after: Any, owner: Any, number: Any) -> None:
    log = MemoryLog()
    log.append([Event("A")])
    for operation in (
        lambda: log.append([Event("B")], AppendCondition(Query.all(), after)),
        lambda: log.register_consumer(owner, "c", after=number),
        lambda: log.register_consumer("o", "c", after=number),
        lambda: log.acknowledge("o", "c", number),
        lambda: log.acknowledge(owner, "c", 1),
        lambda: log.reset_consumer("o", "c", number),
        lambda: log.trim(number),
        lambda: log.subscribe(after=number).close(),
    ):
        try:
            operation()
        except EventLogError as refused:
            assert str(refused)


@given(anything)
def test_names_of_any_kind_are_taken_or_refused(name: Any) -> None:
    try:
        MemoryStore().create(name)
    except InvalidInput as refused:
        assert refused.where == "name"
    else:
        assert check_log_name(name) == name


SETTINGS = (
    "partitions", "partition_by", "retention_ms", "retention_bytes", "retention_until_acknowledged",
    "event_bytes_max", "id_horizon", "keeps_history", "consumer_age_ms_max", "default_start",
)  # fmt: skip


@given(st.sampled_from(SETTINGS), anything)
def test_settings_of_any_kind_are_taken_or_refused_with_their_name(name: str, value: Any) -> None:
    try:
        LogSettings(**{name: value})
    except InvalidInput as refused:
        assert refused.where == name
