"""Messages that no client of AMQP can decode: refused on every way in. Odd ones that all can decode are taken."""

from __future__ import annotations

import base64
import io
import json
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol.codec import encode
from headwater.amqp.protocol.performatives import Accepted, Rejected
from headwater.amqp.protocol.types import Array, Described, Symbol, Timestamp, UByte, UInt, ULong
from headwater.core.errors import InvalidEvent
from headwater.flight.client import BulkClient
from tests.amqp.asking import EARLIEST
from tests.amqp.streams.messages import (
    application_properties,
    cloud_event,
    data,
    delivery_annotations,
    header,
    message_annotations,
    properties,
    section,
    value,
)

from .running import RunningServer

WITH_FLIGHT = ("--flight-enabled", "true", "--flight-port", "0", "--flight-start", "at_once")
BODY = data(b"payload")
NESTED = b"\x45"
for _ in range(40):
    NESTED = bytes((0xC0, len(NESTED) + 1, 1)) + NESTED


def described_map(code: int, count: int, content: bytes) -> bytes:
    """A section of a map that says that it has so many elements."""
    return bytes((0x00, 0x53, code, 0xC1, len(content) + 1, count)) + content


POISON = {
    "constructor that does not exist": bytes.fromhex("005374c10702a1016bee0000") + BODY,
    "key that is not UTF-8": described_map(0x74, 2, b"\xa1\x02\xff\xfe\x40") + BODY,
    "string that is not UTF-8": described_map(0x72, 2, b"\xa3\x01a\xa1\x01\xff") + BODY,
    "symbol that is not ASCII": described_map(0x72, 2, b"\xa3\x01\xff\x40") + BODY,
    "key without a value": described_map(0x72, 1, b"\xa3\x01a") + BODY,
    "more entries than bytes": described_map(0x74, 200, b"\xa1\x01a\x40") + BODY,
    "key twice": described_map(0x74, 4, b"\xa1\x01a\x40\xa1\x01a\x40") + BODY,
    "property that has a number as its name": application_properties({}) [:3] + encode({5: "x"}) + BODY,
    "property that is a list": application_properties({"a": [1]}) + BODY,
    "annotation that has an int as its key": section(0x72, {5: "x"}) + BODY,
    "annotation that has a string as its key": section(0x72, {"x-opt-a": "x"}) + BODY,
    "user-id that is a string": section(0x73, [None, "me"]) + BODY,
    "message-id that is a list": section(0x73, [[1]]) + BODY,
    "group-sequence that is a string": section(0x73, [None] * 11 + ["x"]) + BODY,
    "subject that is not UTF-8": b"\x00\x53\x73\xc0\x07\x04\x40\x40\x40\xa1\x01\xff" + BODY,
    "properties of 14 fields": section(0x73, [None] * 13 + ["x"]) + BODY,
    "header whose durable is a string": header("durable") + BODY,
    "array of 2^31-1 nulls": bytes.fromhex("005377f0000000057fffffff40"),
    "array of 2^31-1 nulls in a list": section(0x77, [1])[:3] + b"\xc0\x0b\x01" + bytes.fromhex("f0000000057fffffff40"),
    "value that is not UTF-8": b"\x00\x53\x77\xa1\x01\xff",
    "value that is nested too deep": b"\x00\x53\x77" + NESTED,
    "value of too many values": value([None] * 40_000),
    "sequence that is not UTF-8": b"\x00\x53\x76\xc0\x04\x01\xa1\x01\xff",
    "footer that has an int as its key": BODY + section(0x78, {5: 1}),
    "message that is cut short": BODY[:-1],
    "properties behind the body": BODY + properties(subject="late"),
    "two kinds of body": BODY + value(1),
    "second delivery-annotations": delivery_annotations(a=1) + delivery_annotations(a=1) + BODY,
    "header behind its annotations": message_annotations(a=1) + header(True) + BODY,
    "section that does not exist": section(0x79, {}) + BODY,
    "no section": b"hello",
}  # fmt: skip
ODD = {
    "data alone": BODY,
    "data of no bytes": data(b""),
    "long data": properties(subject="S") + data(bytes(70_000)),
    "two data sections": data(b"a") + data(b"b"),
    "sequences": section(0x76, [1, 2]) + section(0x76, [3]),
    "null": value(None),
    "text": value("Größe 😀"),
    "map with keys of all types": value({1: "a", "b": 2, None: 3, uuid.UUID(int=5): Timestamp(1)}),
    "no body": properties(subject="S"),
    "footer": BODY + section(0x78, {Symbol("x-crc"): 1}),
    "header that says something": header(True, UByte(9), UInt(1000), True, UInt(3)) + BODY,
    "annotation that has a number as its key": section(0x72, {ULong(7): [1, {"a": None}]}) + BODY,
    "annotations of all types": message_annotations(a=1.5, b=Described(Symbol("x:y"), 1), c=Array([1, 2])) + BODY,
    "long map": section(0x74, {"k" * 300: "v" * 300}) + BODY,
    "map of 32 bits of one entry": bytes((0x00, 0x53, 0x74, 0xD1)) + struct.pack(">II", 8, 2) + b"\xa1\x01a\x40" + BODY,
    "properties of no field": section(0x73, []) + BODY,
    "properties that are all null": section(0x73, [None] * 13) + BODY,
    "content-type that is a string": properties(content_type="text/plain") + BODY,
    "message-id that is a number": properties(message_id=ULong(2**63), subject="S") + BODY,
    "message-id that is binary": properties(message_id=b"\xff\xfe", subject="S") + BODY,
    "message-id that is a uuid": properties(message_id=uuid.UUID(int=5), subject="S") + BODY,
    "message-id of 300 characters": properties(message_id="ä" * 300, subject="S") + BODY,
    "properties described by a symbol": encode(Described(Symbol("amqp:properties:list"), [None, None, "to"])) + BODY,
    "data described by a long number": b"\x00\x80" + (0x75).to_bytes(8) + encode(b"payload"),
    "cloud event": cloud_event(time=Timestamp(1_500), flag=True) + BODY,
    "array of 100,000 numbers": value(Array([1.5] * 100_000)),
    "array without elements": value(Array()),
    "delivery-annotations over AMQP": BODY,
}  # fmt: skip


class Form(NamedTuple):
    """A message as the fields of an event: whole, or with its envelope apart."""

    envelope: bytes
    data: bytes
    encoding: str


def forms(message: bytes) -> list[Form]:
    """Whole, and with an envelope where it ends with the data section that all tests have."""
    whole = Form(b"", message, "amqp")
    return [whole, Form(message[:-7], b"payload", "data")] if message.endswith(BODY) else [whole]


class Refused(Exception):
    """The server does not take it, and says why."""


class Ways:
    """All ways into one server."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.amqp_url = server.further_url("amqp")
        self.amqp = Client(self.amqp_url)
        self.sender = self.amqp.sender("orders")
        self.flight = BulkClient(server.further_url("grpc"))
        self._batches = 0

    def close(self) -> None:
        self.amqp.close()
        self.flight.close()

    @property
    def head(self) -> int:
        return int(json.loads(self.server.ask("/logs/orders")[1])["head"])

    def json(self, *given: Form) -> None:
        events = [
            {"type": "T", "data_base64": _base64(each.data), "encoding": each.encoding}
            | ({"envelope_base64": _base64(each.envelope)} if each.envelope else {})
            for each in given
        ]
        self._post(json.dumps({"events": events}).encode(), "application/json")

    def message_pack(self, *given: Form) -> None:
        events = [["T", each.data, [], "", "", {}, "", each.envelope, int(each.encoding == "amqp")] for each in given]
        self._post(msgspec.msgpack.encode({"events": events}), "application/vnd.msgpack")

    def arrow(self, *given: Form) -> None:
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, _rows(given).schema) as stream:
            stream.write_batch(_rows(given))
        self._post(sink.getvalue(), "application/vnd.apache.arrow.stream")

    def flight_append(self, *given: Form) -> None:
        try:
            self.flight.append("orders", _rows(given))
        except InvalidEvent as error:
            raise Refused(str(error)) from None

    def flight_stage(self, *given: Form) -> None:
        self._batches += 1
        try:
            staged = self.flight.stage("orders", "w", self._batches, 0, 1, _rows(given))
        except InvalidEvent as error:
            raise Refused(str(error)) from None
        self.flight.commit("orders", "w", self._batches, [staged.stage])

    def transfer(self, message: bytes, count: int = 1) -> list[object]:
        """The outcomes of a message that is sent over AMQP, so often at once."""
        return [self.outcome(tag) for tag in [self._sent(message) for _ in range(count)]]

    def _sent(self, message: bytes) -> int:
        tag = next(self.sender._tags)
        self.amqp.wait(lambda: self.sender.link.sendable > 0)
        self.sender.link.send(message, tag, tag)
        return tag

    def outcome(self, tag: int) -> object:
        self.amqp.wait(lambda: tag in self.sender.states)
        return self.sender.states.pop(tag)

    def _post(self, body: bytes, media_type: str) -> None:
        status, text = self.server.ask("/logs/orders/append", body, {"content-type": media_type})
        if status == 400:
            raise Refused(text)
        assert status == 200, text


WAYS: list[Callable[..., None]] = [Ways.json, Ways.message_pack, Ways.arrow, Ways.flight_append, Ways.flight_stage]
ways_in = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _rows(given: tuple[Form, ...]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "type": pa.array(["T"] * len(given)),
            "data": pa.array([each.data for each in given], pa.binary()),
            "envelope": pa.array([each.envelope for each in given], pa.binary()),
            "encoding": pa.array([int(each.encoding == "amqp") for each in given], pa.int8()),
        }
    )


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    directory = tmp_path_factory.mktemp("poison")
    with RunningServer("--data", "data", "--log", "orders", *WITH_FLIGHT, cwd=directory) as server:
        found = Ways(server)
        yield found
        found.close()


@ways_in
@pytest.mark.parametrize("poison", POISON)
def test_a_message_that_cannot_be_decoded_is_refused_on_every_way_in(
    ways: Ways, way: Callable[..., None], poison: str
) -> None:
    head = ways.head
    for form in forms(POISON[poison]):
        with pytest.raises(Refused, match=r"no message of AMQP.*\(at byte \d+\)") as refused:
            way(ways, form)
        assert f"events[0].{'envelope' if form.envelope else 'data'}" in str(refused.value)
    assert ways.head == head


@pytest.mark.parametrize("poison", POISON)
def test_a_message_that_comes_alone_and_cannot_be_decoded_is_rejected_over_amqp(ways: Ways, poison: str) -> None:
    head = ways.head
    [outcome] = ways.transfer(POISON[poison])
    assert is_undecodable(outcome), outcome
    assert ways.head == head


@pytest.mark.parametrize("poison", [name for name, message in POISON.items() if message.endswith(BODY)])
def test_alike_messages_that_cannot_be_decoded_are_rejected_over_amqp(ways: Ways, poison: str) -> None:
    head = ways.head
    with Client(ways.amqp_url) as client:
        sender = client.sender("orders")
        good = properties(subject="S") + BODY
        for message in [*[good] * 20, *[POISON[poison]] * 20, *[good] * 20]:
            tag = next(sender._tags)
            sender.link.send(message, tag, tag)
        client.wait(lambda: len(sender.states) == 60)
        outcomes = [sender.states[tag] for tag in sorted(sender.states)]
    assert all(map(is_undecodable, outcomes[20:40]))
    assert set(map(type, outcomes[:20] + outcomes[40:])) == {Accepted}
    assert ways.head == head + 40


def is_undecodable(outcome: object) -> bool:
    return (
        isinstance(outcome, Rejected) and outcome.error is not None and outcome.error.condition == "amqp:decode-error"
    )


@pytest.mark.parametrize("poison", [
    "key without a value", "more entries than bytes", "array of 2^31-1 nulls", "array of 2^31-1 nulls in a list",
    "second delivery-annotations", "properties behind the body", "header behind its annotations", "two kinds of body",
])  # fmt: skip
def test_order_and_counts_are_looked_at_in_a_crowd_of_unlike_messages(ways: Ways, poison: str) -> None:
    tags = [ways._sent(application_properties({"n": number}) + BODY) for number in range(50)]
    tags.append(ways._sent(POISON[poison]))
    tags += [ways._sent(application_properties({"n": number}) + BODY) for number in range(50)]
    outcomes = [ways.outcome(tag) for tag in tags]
    assert isinstance(outcomes.pop(50), Rejected)
    assert set(map(type, outcomes)) == {Accepted}


@ways_in
def test_a_message_with_delivery_annotations_or_another_header_is_refused_where_it_is_stored_as_given(
    ways: Ways, way: Callable[..., None]
) -> None:
    """They are put in, behind the header, when it is delivered."""
    for start in (delivery_annotations(a=1), section(0x70, []), encode(Described(Symbol("amqp:header:list"), [True]))):
        assert ways.transfer(start + BODY) == [Accepted()]
        for form in forms(start + BODY):
            with pytest.raises(Refused, match="no message of AMQP"):
                way(ways, form)


@ways_in
def test_an_envelope_ends_where_the_data_begins(ways: Ways, way: Callable[..., None]) -> None:
    for envelope in (
        properties(subject="S"),
        BODY,
        BODY[:-8] + b"\x09",
        properties(subject="S") + b"\x00\x53\x77\xa0\x07",
    ):
        with pytest.raises(Refused, match="no message of AMQP"):
            way(ways, Form(envelope, b"payload", "data"))


@ways_in
def test_the_culprit_among_many_is_named(ways: Ways, way: Callable[..., None]) -> None:
    good = [form for number in range(300) for form in forms(application_properties({"n": number}) + BODY)]
    poison = forms(POISON["user-id that is a string"])[1]
    with pytest.raises(Refused, match=r"events\[601\]\.envelope.*user-id: binary expected"):
        way(ways, *good, Form(b"", b"plain", "data"), poison, *good)


def test_odd_messages_are_taken_and_read(ways: Ways) -> None:
    before = ways.head
    expected = 0
    for name, message in ODD.items():
        assert ways.transfer(message) == [Accepted()], name
        expected += 1
        for form in forms(message):
            for way in WAYS:
                way(ways, form)
                expected += 1
    assert ways.head - before >= expected
    with Client(ways.amqp_url) as client:
        receiver = client.receiver("orders", filter=EARLIEST, credit=500)
        found = receiver.take(expected)
        for delivery in found:
            delivery.settle()
        assert len(found) == expected
