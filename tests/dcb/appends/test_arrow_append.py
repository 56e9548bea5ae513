"""Appends as a stream of Arrow IPC: a body of events alone, a condition and a partition as parameters."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headwater.core import Event, LogSettings
from headwater.formats.arrow.stream import stream_of_batch
from headwater.formats.arrow.tables import STREAM

BATCH = pa.record_batch({"type": ["A", "B"], "data": pa.array([b"1", b"\xff"]), "tags": [["b", "a:1"], []]})
TRACED = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "vendor=1"}
OWN = {"traceparent": "00-11111111111111111111111111111111-2222222222222222-00"}


def append(client: Any, batch: pa.RecordBatch = BATCH, headers: Any = None, log: str = "courses", **given: Any) -> Any:
    fields = {"content-type": STREAM, **(headers or {})}
    return client.post(f"/logs/{log}/append", stream_of_batch(batch), headers=fields, parameters=given)


def test_events_may_come_as_arrow(client, store):
    assert append(client).json == {"sequence_number": 2, "first_sequence_number": 1, "was_stored": False}
    assert append(client, headers={"content-type": f"{STREAM}; charset=x"}).json["sequence_number"] == 4
    first, second, *_ = store.open("courses").read()
    assert first.event == Event("A", b"1", ("a:1", "b"), first.id)
    assert (second.data, second.id[14]) == (b"\xff", "7")


def test_what_was_read_as_arrow_can_be_appended_elsewhere(client, store):
    append(client)
    stream = client.post("/logs/courses/read", {"query": "all"}, headers={"accept": STREAM}).body
    store.create("copy")
    assert client.post("/logs/copy/append", stream, headers={"content-type": STREAM}).status == 200
    assert [each.event for each in store.open("copy").read()] == [each.event for each in store.open("courses").read()]


def test_a_condition_is_a_parameter(client):
    condition = json.dumps({"failIfEventsMatch": {"items": [{"tags": ["a:1"]}]}, "after": 0})
    assert append(client, condition=condition).status == 200
    refused = append(client, condition=condition)
    assert (refused.status, refused.code, refused.json["sequence_number"]) == (409, "append_condition_failed", 1)
    seed = {"query": {"items": [{"types": ["A"]}]}, "expected_highest_sequence_number": 2}
    assert append(client, condition=json.dumps(seed)).status == 200


def test_a_partition_is_a_parameter(client, store):
    store.create("parted", LogSettings(partitions=3))
    assert append(client, log="parted", partition=2).status == 200
    assert {each.partition for each in store.open("parted").read()} == {2}
    refused = append(client, partition=3)
    assert (refused.status, refused.code) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("name", "value", "detail"),
    [
        ("condition", "{", "JSON"),
        ("condition", '{"failIfEventsMatch": {"items": [{"tags": [""]}]}}', "tags"),
        ("condition", '{"failIfEventsMatch": "all", "afer": 1}', "afer"),
        ("condition", json.dumps({"failIfEventsMatch": {"items": [{"tags": ["a"] * 40_000}]}}), "more than"),
        ("partition", "x", "0 to"),
        ("strict", "true", "allowed: condition, partition"),
    ],
)
def test_a_parameter_that_does_not_fit_is_named(client, name, value, detail):
    refused = append(client, **{name: value})
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert name in refused.json["detail"] and detail in json.dumps(refused.json)


def test_what_is_wrong_names_row_and_column(client):
    bad = pa.record_batch({"type": ["A", "B"], "data": ["", ""], "tags": [["fine"], ["fine", "no\ntag"]]})
    assert append(client, bad).json["path"] == "$.events[1].tags[1]"
    assert append(client, pa.record_batch({"typ": ["A"]})).json["path"] == "$.schema"
    compressed = pa.BufferOutputStream()
    with pa.ipc.new_stream(compressed, BATCH.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(BATCH)
    refused = client.post("/logs/courses/append", compressed.getvalue().to_pybytes(), headers={"content-type": STREAM})
    assert (refused.status, refused.json["path"]) == (400, "$.batches[0]")
    assert client.post("/logs/courses/append", b"{}", headers={"content-type": STREAM}).code == "invalid_request"
    assert STREAM in client.post("/logs/courses/append", b"", headers={"content-type": "text/plain"}).json["detail"]


def test_a_body_over_the_limit_is_refused(client_of, store):
    store.create("courses")
    client = client_of(body_bytes_max=400)
    assert append(client).status == 413


def test_events_are_in_the_trace_of_their_request(client):
    kind = pa.map_(pa.string(), pa.string())
    batch = pa.record_batch({
        "type": ["A", "B"], "data": ["", ""], "attributes": pa.array([None, list(OWN.items())], kind),
    })  # fmt: skip
    assert append(client, batch, TRACED).status == 200
    assert [each["event"].get("attributes", {}) for each in client.read()] == [TRACED, OWN]


def test_large_and_small_batches_stand_among_other_appends(client, store):
    for round in range(3):
        large = pa.record_batch({"type": ["L"] * 2000, "data": [b""] * 2000, "tags": [[f"r:{round}"]] * 2000})
        assert append(client, large).status == append(client).status == client.append({"type": "O"}).status == 200
    assert [each.type for each in store.open("courses").read()] == (["L"] * 2000 + ["A", "B", "O"]) * 3
