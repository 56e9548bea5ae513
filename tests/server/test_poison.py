"""Messages that no client of AMQP can decode: refused on every way in. Odd ones that all can decode are taken."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol.codec import encode
from headwater.amqp.protocol.performatives import Accepted, Rejected
from headwater.core.errors import InvalidEvent
from headwater.flight.client import BulkClient
from tests.amqp.asking import EARLIEST
from tests.amqp.streams.messages import (
    application_properties,
    delivery_annotations,
    properties,
    section,
)

from .poison import BODY, ODD, POISON, Form, forms
from .running import RunningServer

WITH_FLIGHT = ("--flight-enabled", "true", "--flight-port", "0", "--flight-start", "at_once")


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
        with pytest.raises(Refused, match=r"not an AMQP message.*\(at byte \d+\)") as refused:
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


def test_each_message_id_of_a_run_is_looked_at(ways: Ways) -> None:
    good = properties(message_id="abcd", subject="S") + BODY
    poison = good.replace(b"abcd", b"ab\xff\xfe")
    with Client(ways.amqp_url) as client:
        sender = client.sender("orders")
        for message in [*[good] * 30, poison, *[good] * 30]:
            tag = next(sender._tags)
            sender.link.send(message, tag, tag)
        client.wait(lambda: len(sender.states) == 61)
        outcomes = [sender.states[tag] for tag in sorted(sender.states)]
    assert is_undecodable(outcomes.pop(30))
    assert set(map(type, outcomes)) == {Accepted}


def is_undecodable(outcome: object) -> bool:
    return (
        isinstance(outcome, Rejected) and outcome.error is not None and outcome.error.condition == "amqp:decode-error"
    )


@pytest.mark.parametrize("poison", POISON)
def test_each_of_a_crowd_of_unlike_messages_is_looked_through(ways: Ways, poison: str) -> None:
    tags = [ways._sent(application_properties({"n": number}) + BODY) for number in range(50)]
    tags.append(ways._sent(POISON[poison]))
    tags += [ways._sent(application_properties({"n": number}) + BODY) for number in range(50)]
    outcomes = [ways.outcome(tag) for tag in tags]
    assert is_undecodable(outcomes.pop(50))
    assert set(map(type, outcomes)) == {Accepted}


@ways_in
def test_a_message_with_delivery_annotations_or_another_header_is_refused_where_it_is_stored_as_given(
    ways: Ways, way: Callable[..., None]
) -> None:
    """They are put in, behind the header, when it is delivered."""
    long_header = b"\x00\x80" + (0x70).to_bytes(8) + encode([True])
    for start in (delivery_annotations(a=1), section(0x70, []), long_header):
        assert ways.transfer(start + BODY) == [Accepted()]
        for form in forms(start + BODY):
            with pytest.raises(Refused, match="not an AMQP message"):
                way(ways, form)


@ways_in
def test_an_envelope_ends_where_the_data_begins(ways: Ways, way: Callable[..., None]) -> None:
    for envelope in (
        properties(subject="S"),
        BODY,
        BODY[:-8] + b"\x09",
        properties(subject="S") + b"\x00\x53\x77\xa0\x07",
    ):
        with pytest.raises(Refused, match="not an AMQP message"):
            way(ways, Form(envelope, b"payload", "data"))


@ways_in
def test_the_culprit_among_many_is_named(ways: Ways, way: Callable[..., None]) -> None:
    good = [form for number in range(300) for form in forms(application_properties({"n": number}) + BODY)]
    poison = forms(POISON["user-id that is a string"])[1]
    with pytest.raises(Refused, match=r"events\[601\]\.envelope.*user-id: expected binary"):
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
