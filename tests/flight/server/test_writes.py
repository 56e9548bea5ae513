from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from headwater.core import AppendCondition, LogSettings, Query
from headwater.core.errors import AppendConditionFailed, DuplicateEventId, InvalidEvent, InvalidPosition, TooLarge
from headwater.core.mark import Committed
from headwater.flight.wire import Appended, Ticket

from ...waiting import eventually
from ..conftest import batch, refusal

APPEND = {"append": {"log": "orders"}}
STAGE = {"stage": {"log": "orders", "writer": "w", "batch": 7, "part": 0, "attempt": 1}}


def test_each_batch_is_an_append_of_its_own_and_answered(raw, log):
    answers = raw.put(APPEND, batch("A"), batch("B", "C"))
    assert answers == [
        {"first": 101, "last": 101, "was_stored": False, "skipped": 0},
        {"first": 102, "last": 103, "was_stored": False, "skipped": 0},
    ]
    assert [event.type for event in log.read(after=100)] == ["A", "B", "C"]


def test_an_answer_comes_as_soon_as_its_batch_is_durable(raw, log):
    descriptor = flight.FlightDescriptor.for_command(json.dumps(APPEND))
    writer, reader = raw.client.do_put(descriptor, batch("A").schema)
    for number in range(3):
        writer.write_batch(batch("A"))
        assert json.loads(reader.read().to_pybytes())["last"] == 101 + number == log.head()
    writer.close()


def test_all_columns_of_all_types_are_taken(client, log):
    columns = {
        "type": pa.array(["A"], pa.large_string()),
        "data": pa.array(["text"], pa.string()),
        "tags": pa.array([["b:1", "a:1"]], pa.large_list(pa.large_string())),
        "id": pa.array(["1"]),
        "source": pa.array(["/s"], pa.large_string()),
        "attributes": pa.array([[("subject", "x")]], pa.map_(pa.string(), pa.large_string())),
        "group_key": pa.array(["g"]),
        "envelope": pa.array([b"\0Su\xa0\4"], pa.large_binary()),
        "encoding": pa.array([0], pa.int8()),
    }
    client.append("orders", pa.record_batch(columns))
    [event] = log.read(after=100)
    assert event.event == ("A", b"text", ("a:1", "b:1"), "1", "/s", {"subject": "x"}, "g", b"\0Su\xa0\4", 0)


def test_what_was_read_can_be_appended_elsewhere_as_it_is(client, store, log):
    client.create_log("copy")
    client.append("copy", pa.Table.from_batches(client.read(Ticket("orders", schema="spark"))))
    assert [event.event for event in store.open("copy").read()] == [event.event for event in log.read()]


def test_dictionaries_and_views_are_cast_by_the_client_and_refused_by_the_server(client, raw, log):
    columns = {
        "type": pa.array(["A", "A"]).dictionary_encode(),
        "data": pa.array([b"x", b"y"], pa.binary_view()),
        "id": pa.array(["1", "2"], pa.string_view()),
    }
    given = pa.record_batch(columns)
    assert refusal(lambda: raw.put(APPEND, given))[1]["message"].startswith("schema: column 'type' has type dictionary")
    tagged = batch("A", tags=pa.array([["a"]], pa.list_(pa.string_view())))
    assert refusal(lambda: raw.put(APPEND, tagged))[1]["message"].startswith("schema: column 'tags' has type list<")
    client.append("orders", given)
    assert [event[3:5] for event in log.read(after=100)] == [("A", b"x"), ("A", b"y")]


def test_empty_batches_are_not_sent(client, log):
    assert client.append("orders", [batch(), batch("A"), batch()]) == [Appended(101, 101)]
    assert client.append("orders", batch()) == []
    with pytest.raises(InvalidEvent, match="an append needs at least one event"):
        client.append("orders", batch(), condition=AppendCondition(Query.all(), 101))


def test_large_batches_go_in_pieces_and_many_are_under_way_at_once(client, log):
    table = pa.table({"type": ["A"] * 150_000, "data": [b"x"] * 150_000})
    assert [each.last - each.first + 1 for each in client.append("orders", table)] == [65_536, 65_536, 18_928]
    small = (batch(f"S{number}") for number in range(20))
    assert [each.first for each in client.append("orders", small)] == list(range(150_101, 150_121))


def test_with_a_condition_all_batches_are_one_append(client, log):
    condition = AppendCondition(Query.where(types=["Z"]), 100)
    assert client.append("orders", [batch("A"), batch("Z")], condition=condition) == [Appended(101, 102)]
    with pytest.raises(AppendConditionFailed) as caught:
        client.append("orders", [batch("B"), batch("C")], condition=condition)
    assert (caught.value.conflict, caught.value.after) == (102, 100)
    everything = AppendCondition(Query.all(), 102)
    assert client.append("orders", batch("D"), condition=everything) == [Appended(103, 103)]
    with pytest.raises(AppendConditionFailed):
        client.append("orders", batch("D"), condition=everything)
    assert log.head() == 103


def test_with_a_condition_more_than_one_append_takes_is_too_large(client, log):
    condition = AppendCondition(Query.where(types=["Z"]), 100)
    table = pa.table({"type": ["A"] * 70_000, "data": [b""] * 70_000})
    with pytest.raises(TooLarge, match="at most 65536 are allowed"):
        client.append("orders", table, condition=condition)
    wide = pa.table({"type": ["A"] * 70, "data": [b"x" * 1_000_000] * 70})
    with pytest.raises(TooLarge, match="at most 67108864 are allowed"):
        client.append("orders", wide, condition=condition)
    assert log.head() == 100


def test_events_that_are_stored_fail_an_append_or_are_skipped(client, log):
    client.append("orders", batch("A", id=["1"]))
    [again] = client.append("orders", batch("A", id=["1"]))
    assert again == Appended(101, 101, was_stored=True)
    with pytest.raises(DuplicateEventId) as caught:
        client.append("orders", batch("A", "B", id=["1", "2"]))
    assert (caught.value.id, caught.value.sequence_number) == ("1", 101)
    both = batch("A", "B", id=["1", "2"])
    assert client.append("orders", both, on_duplicate="skip") == [Appended(102, 102, skipped=1)]
    assert client.append("orders", both, on_duplicate="skip") == [Appended(0, 0, skipped=2)]


def test_a_partition_can_be_given(store, client):
    log = store.create("parted", LogSettings(partitions=3))
    client.append("parted", batch("A"), partition=2)
    assert [event.partition for event in log.read()] == [2]
    with pytest.raises(InvalidPosition, match="partition: expected 0 to 2, got 3"):
        client.append("parted", batch("A"), partition=3)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"type": ["A"]}, "schema: there is no column 'data'"),
        ({"type": ["A"], "data": [1]}, "schema: column 'data' has type int64, "),
        ({"type": ["A"], "data": [b""], "dat": [b""]}, "schema: there is no column 'dat'; did you mean 'data'?"),
        ({"type": ["A"], "data": [b""], "tags": [[1]]}, "schema: column 'tags' has type list<item: int64>, "),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_with_its_column(raw, log, columns, text):
    for command in (APPEND, STAGE):
        kind, told = refusal(lambda command=command: raw.put(command, pa.record_batch(columns)))
        assert (kind, told["error"]) == (flight.FlightServerError, "invalid_event")
        assert told["message"].startswith(text)
    assert log.head() == 100


def test_a_column_that_is_there_twice_is_refused(raw):
    twice = pa.RecordBatch.from_arrays([pa.array(["A"]), pa.array([b""]), pa.array([b""])], ["type", "data", "data"])
    assert "column 'data' occurs twice" in refusal(lambda: raw.put(APPEND, twice))[1]["message"]


def test_a_bad_event_is_named_and_what_came_before_stays(client, log):
    with pytest.raises(InvalidEvent, match=r"events\[1\].type: a type must have 1 to 200 characters, got 0"):
        client.append("orders", [batch("A"), batch("B", "")])
    assert log.head() == 101


@pytest.mark.parametrize(
    "command",
    [b"", b"{}", b'{"append":{"log":"orders"},"stage":{"log":"orders","writer":"w","batch":0,"part":0}}', b'{"put":1}',
     b'{"append":{"log":"orders","on_duplicate":"x"}}', b'{"stage":{"log":"orders","writer":"","batch":0,"part":0}}',
     b'{"stage":{"log":"orders","writer":"w","batch":-1,"part":0}}'],
)  # fmt: skip
def test_a_command_that_does_not_fit_is_refused(raw, command):
    def put():
        writer, _ = raw.client.do_put(flight.FlightDescriptor.for_command(command), batch("A").schema)
        writer.close()

    kind, told = refusal(put)
    assert kind is flight.FlightServerError
    assert told["error"] in ("invalid_request", "malformed_json")


def test_buffers_whose_offsets_lie_are_refused(raw, log):
    for offsets, data in [([0, 3, 1], b"xxx"), ([0, 1, 2], b"\xff\xff")]:
        places = pa.array(offsets, pa.int32()).buffers()[1]
        texts = pa.StringArray.from_buffers(2, places, pa.py_buffer(data))
        lying = pa.record_batch([texts, pa.array([b"", b""])], ["type", "data"])
        kind, told = refusal(lambda lying=lying: raw.put(APPEND, lying))
        assert (kind, told["error"]) == (flight.FlightServerError, "invalid_event")
        assert told["where"] == "batches[0]"
    assert log.head() == 100


def test_a_batch_over_the_limit_is_refused(raw, log):
    large = pa.record_batch({"type": ["A"] * 65, "data": [b"x" * (1024 * 1024)] * 65})
    told = refusal(lambda: raw.put(APPEND, large))[1]
    assert (told["error"], told["allowed"], told["where"]) == ("too_large", 64 * 1024 * 1024, "batches[0]")


def test_a_stage_is_committed_once_in_the_order_given(client, log, backend):
    stages = [client.stage("orders", "w", 7, part, 0, [batch(f"P{part}"), batch("Q")]) for part in range(2)]
    assert [stage.rows for stage in stages] == [2, 2]
    assert log.head() == 100
    assert client.writer("orders", "w") is None
    order = [stages[1].stage, stages[0].stage]
    assert client.commit("orders", "w", 7, order) == Committed(101, 104, 4)
    assert client.commit("orders", "w", 7, order) == Committed(101, 104, 4, was_applied=True)
    assert [event.type for event in log.read(after=100)] == ["P1", "Q", "P0", "Q"]
    state = client.writer("orders", "w")
    assert (state.batch, state.rows, state.first, state.last, state.is_complete) == (7, 4, 101, 104, True)
    assert backend.staged("orders", "w") == []


def test_a_stage_without_rows_is_one_too(client):
    empty = client.stage("orders", "w", 0, 0, 0, batch())
    assert empty.rows == 0
    assert client.commit("orders", "w", 0, [empty.stage]).events == 0


def test_discarded_stages_are_gone(client, backend):
    client.stage("orders", "w", 7, 0, 0, batch("A"))
    client.stage("orders", "w", 8, 0, 0, batch("A"))
    client.discard("orders", "w", 7)
    client.discard("orders", "w", 7)
    assert backend.staged("orders", "w") == [(8, 0, 0)]


def test_a_caller_that_fails_in_the_middle_leaves_nothing_staged_nor_appended(client, backend, server, log):
    def failing():
        yield batch("A")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.stage("orders", "w", 7, 0, 0, failing())
    with pytest.raises(ZeroDivisionError):
        client.append("orders", failing(), condition=AppendCondition(Query.where(types=["Z"])))
    eventually(lambda: backend.open_stages == 0 and server.puts.taken == 0)
    assert backend.staged("orders", "w") == []
    assert log.head() == 100


def test_more_after_the_marked_end_is_refused(raw, backend):
    command = {"stage": {**STAGE["stage"], "marks_end": True}}
    writer, _ = raw.client.do_put(flight.FlightDescriptor.for_command(json.dumps(command)), batch("A").schema)

    def send():
        writer.write_metadata(b'{"end":true}')
        writer.write_batch(batch("A"))
        writer.close()

    assert refusal(send)[1]["message"] == "batches[0]: data follows the end marker"
    assert (backend.staged("orders", "w"), backend.open_stages) == ([], 0)


DYING = """
import os, sys, time
import pyarrow as pa, pyarrow.flight as flight
batch = pa.record_batch({"type": ["A"] * 1000, "data": [b"x"] * 1000})
client = flight.FlightClient(sys.argv[1])
writer, reader = client.do_put(flight.FlightDescriptor.for_command(sys.argv[2]), batch.schema)
for _ in range(20):
    writer.write_batch(batch)
print("sent", flush=True)
time.sleep(30)
"""


def test_a_client_that_is_killed_leaves_nothing_staged(url, backend, server):
    dying = subprocess.Popen([sys.executable, "-c", DYING, url, json.dumps(STAGE)], stdout=subprocess.PIPE)
    assert dying.stdout is not None
    assert dying.stdout.readline() == b"sent\n"
    eventually(lambda: backend.open_stages == 1)
    dying.kill()
    dying.wait()
    dying.stdout.close()
    eventually(lambda: backend.open_stages == 0 and server.puts.taken == 0)
    assert backend.staged("orders", "w") == []
