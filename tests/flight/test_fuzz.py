"""Whatever comes in: an answer, or an error of ours that says what is wrong; and the server lives."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.core import Event
from headwater.flight.errors import TABLE
from headwater.flight.wire import ACTIONS, PlanCommand, Ticket
from headwater.storage.memory import MemoryStore

from .conftest import Raw, batch
from .memory_backend import MemoryBackend, serving

OURS = {row.code for row in TABLE.values()} - {"internal"}
few = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["orders", "all", "type=E1", "fail", "skip", "spark", "E1", "k:1", "w"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
likely = st.none() | st.integers(-2, 12) | st.sampled_from(["orders", "type=E1", "skip", "spark", "w"])
queries = st.fixed_dictionaries(
    {}, optional={"items": st.lists(st.dictionaries(st.sampled_from(["types", "tags"]), values)), "all": values}
)


def bodies(*shapes):
    names = sorted({name for shape in shapes for name in shape.__struct_fields__})
    fields = st.dictionaries(st.sampled_from(names), likely | values | queries, max_size=6)
    return st.binary(max_size=40) | st.tuples(st.booleans(), fields).map(
        lambda given: json.dumps({"log": "orders", **given[1]} if given[0] else given[1]).encode()
    )


@pytest.fixture(scope="module")
def raw():
    store = MemoryStore()
    store.create("orders").append([Event(f"E{number}", tags=("k:1",)) for number in range(10)])
    with serving(MemoryBackend(store)) as server:
        raw = Raw(f"grpc://127.0.0.1:{server.port}")
        yield raw
        assert server.gets.taken == server.puts.taken == 0
        raw.close()


def answered_or_refused(raw, call):
    try:
        call()
    except flight.FlightError as error:
        assert json.loads(error.extra_info)["error"] in OURS, error
    assert "orders" in raw.act("logs")["logs"]


@few
@given(bodies(Ticket))
def test_any_ticket(raw, ticket):
    answered_or_refused(raw, lambda: raw.client.do_get(flight.Ticket(ticket)).read_all())


@few
@given(bodies(PlanCommand), st.none() | st.lists(st.text(st.characters(codec="utf-8"), max_size=10), max_size=3))
def test_any_plan(raw, command, path):
    made = flight.FlightDescriptor.for_command(command) if path is None else flight.FlightDescriptor.for_path(*path)
    answered_or_refused(raw, lambda: raw.client.get_flight_info(made))


@few
@given(st.data())
def test_any_action(raw, data):
    name = data.draw(st.sampled_from([*ACTIONS, "nonsense", ""]))
    shape = ACTIONS.get(name)
    body = data.draw(bodies(shape.body) if shape and shape.body.__struct_fields__ else st.binary(max_size=10))
    answered_or_refused(raw, lambda: list(raw.client.do_action(flight.Action(name, body))))


types = st.sampled_from([
    pa.null(), pa.int8(), pa.int64(), pa.string(), pa.large_string(), pa.binary(), pa.list_(pa.string()),
    pa.list_(pa.int8()), pa.map_(pa.string(), pa.string()), pa.dictionary(pa.int32(), pa.string()), pa.string_view(),
    pa.struct([("a", pa.int8())]), pa.timestamp("ms"), pa.bool_(),
])  # fmt: skip
columns = st.lists(
    st.tuples(st.sampled_from(["type", "data", "tags", "id", "encoding", "attributes", "log", "x", ""]), types),
    max_size=4,
)


@few
@given(columns)
def test_any_columns(raw, columns):
    arrays = [pa.nulls(2, kind) for _, kind in columns]
    made = pa.RecordBatch.from_arrays(arrays, [name for name, _ in columns])
    answered_or_refused(raw, lambda: raw.put({"append": {"log": "orders"}}, made))


@few
@given(st.sampled_from(["append", "stage"]), st.data())
def test_any_put(raw, kind, data):
    names = ["log", "partition", "condition", "on_duplicate", "writer", "batch", "part", "attempt", "marks_end"]
    fields = data.draw(st.dictionaries(st.sampled_from(names), likely | values | queries, max_size=6))
    answered_or_refused(raw, lambda: raw.put({kind: {"log": "orders", **fields}}, batch("A")))
