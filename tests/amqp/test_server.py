"""The server: how it stops, what idle and broken peers cost, and what happens when the log falls behind."""

from __future__ import annotations

import gc
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.amqp.client import Client
from headwater.amqp.connections.transport import Transport
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError, ConnectionFault, LinkFault, SessionFault
from headwater.amqp.protocol.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, frame
from headwater.amqp.protocol.performatives import Accepted, Begin, Open, Source, Target, encode_performative
from headwater.amqp.settings import AmqpSettings
from headwater.core.shared_bytes import SharedBytes
from headwater.storage import Engine
from headwater.storage.frames.frame_log import nobody
from headwater.storage.segments.segment_log import SegmentLog

from .asking import DURABLE, EARLIEST, bound, drained, message, numbers, payloads, put
from .served import Served


def ending(client: Client) -> str:
    """How the server closes the connection."""
    with pytest.raises(AmqpError) as ended:
        client.wait(lambda: False)
    return ended.value.condition


def raw(served: Served, data: bytes) -> bytes:
    """What the server answers to these bytes until it closes; the peer sends no more after them."""
    with socket.create_connection(("127.0.0.1", served.port), 10) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while more := connection.recv(65536):
                received += more
        except (ConnectionResetError, BrokenPipeError):
            return b""
        return received


@pytest.mark.parametrize("address", ["$cbs", "/$cbs", "amqps://name.servicebus.example/$cbs"])
@pytest.mark.parametrize("is_sender", [True, False])
def test_an_attach_to_cbs_ends_the_connection_and_says_what_to_use(
    served: Served, client: Client, address: str, is_sender: bool
) -> None:
    """Python's SDK of Event Hubs waits for minutes where only its links to `$cbs` are refused."""
    if is_sender:
        client.session.attach_sender("cbs", source=Source(), target=Target(address=address))
    else:
        client.session.attach_receiver("cbs", source=Source(address=address), target=Target())
    with pytest.raises(ConnectionFault, match="log in with SASL") as ended:
        client.wait(lambda: False)
    assert ended.value.condition == conditions.NOT_IMPLEMENTED
    with served.client() as another:
        assert another.sender("orders").send(message()) == Accepted()


# Stopping


def test_a_stopping_server_closes_with_forced(served: Served, client: Client) -> None:
    client.receiver("orders")
    stopping = threading.Thread(target=served.stop)
    stopping.start()
    assert ending(client) == conditions.CONNECTION_FORCED
    stopping.join(20)
    assert not served.container.connections


def test_a_stop_does_not_wait_for_peers_that_answer(served: Served) -> None:
    """Each of them reads our close and answers it, idle as it was."""
    clients = [served.client() for _ in range(3)]
    listening = [threading.Thread(target=ending, args=(client,)) for client in clients]
    for each in listening:
        each.start()
    aborted: list[object] = []
    for transport in served.container.connections:
        transport.abort = lambda: aborted.append(1)  # type: ignore[method-assign]
    served.stop()
    for each in listening:
        each.join(20)
    for client in clients:
        client.close()
    assert not aborted and not served.container.connections


def test_a_stopped_server_takes_no_connection(served: Served) -> None:
    served.stop()
    with pytest.raises(OSError):
        served.client()


def test_what_was_sent_before_a_stop_is_on_disk(tmp_path: Path) -> None:
    """Everything that was accepted, and nothing out of order."""
    with Engine(tmp_path) as store, Served(store=store) as served:
        served.log("orders")
        with served.client() as client:
            sender = client.sender("orders")
            states = 0
            stopping = threading.Thread(target=served.stop)
            try:
                for begin in range(0, 100_000, 100):
                    if begin == 2000:
                        stopping.start()
                    batch = [message(b"%d" % number) for number in range(begin, begin + 100)]
                    states += sender.send_all(batch).count(Accepted())
            except (AmqpError, OSError):
                pass
            stopping.join(20)
    with Engine(tmp_path) as store:
        stored = [int(event.data) for event in store.open("orders").read()]
    assert 2000 <= states <= len(stored)
    assert stored == list(range(len(stored)))


def test_positions_are_stored_at_a_stop(tmp_path: Path) -> None:
    with Engine(tmp_path) as store, Served(store=store) as served:
        put(served.log("orders"), 1, 2, 3)
        client = served.client(container_id="shop")
        receiver = client.receiver("orders", credit=0, name="n", filter=EARLIEST, source=DURABLE)
        drained(client, receiver, 2)[0].settle()
        drained(client, receiver, 1)
        client.drop()
    with Engine(tmp_path) as store, Served(store=store) as served, served.client(container_id="shop") as client:
        receiver = client.receiver("orders", credit=0, name="n", filter=EARLIEST, source=DURABLE)
        assert numbers(drained(client, receiver)) == [2, 3]


# Peers that say nothing


def test_a_peer_that_says_nothing_is_closed() -> None:
    with Served(settings=AmqpSettings(idle_ms=2000)) as served, served.client() as client:
        assert client.engine.remote.idle_time_out == 1000
        assert client.engine._remote_idle_s == 1.0
        client.engine._remote_idle_s = None  # so that it sends no heartbeats
        assert ending(client) == conditions.RESOURCE_LIMIT_EXCEEDED


def test_heartbeats_keep_a_connection() -> None:
    with Served(settings=AmqpSettings(idle_ms=2000)) as hasty:
        hasty.log("orders")
        with hasty.client() as client:
            until = time.monotonic() + 3.0
            while time.monotonic() < until:
                client.pump(0.1)
            assert client.sender("orders").send(message()) == Accepted()


def test_the_server_sends_heartbeats_to_who_wants_them(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), 10) as connection:
        connection.sendall(AMQP_HEADER + frame(0, bytes(encode_performative(Open("quiet", idle_time_out=1000)))))
        received = b""
        while not received.endswith(EMPTY_FRAME * 2):
            data = connection.recv(65536)
            assert data
            received += data


# Peers that say anything


def test_a_header_that_is_not_served_is_answered_with_ours(served: Served) -> None:
    assert raw(served, b"HTTP/1.1 GET /") == AMQP_HEADER
    assert raw(served, b"AMQP\x00\x00\x09\x01") == AMQP_HEADER
    assert raw(served, b"AMQP\x02\x01\x00\x00") == AMQP_HEADER


OPENED = AMQP_HEADER + frame(0, bytes(encode_performative(Open("peer"))))
BEGUN = OPENED + frame(0, bytes(encode_performative(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9))))
FAULTS = {
    "a frame that is smaller than its head": b"\x00\x00\x00\x04\x02\x00\x00\x00",
    "a frame that is larger than allowed": b"\x7f\xff\xff\xff\x02\x00\x00\x00",
    "a head of no words": b"\x00\x00\x00\x08\x00\x00\x00\x00",
    "an unknown frame type": b"\x00\x00\x00\x08\x02\x07\x00\x00",
    "an unknown performative": frame(0, b"\x00\x53\x7f\x45"),
    "half a performative": frame(0, b"\x00\x53\x12\xc0\x20\x05\xa1"),
    "a deep list": frame(0, b"\x00\x53\x12" + b"\xc0\xff\x01" * 200),
    "an open twice": OPENED[8:],
    "a channel without session": frame(9, b"\x00\x53\x17\x45"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_peer_that_breaks_the_protocol_is_closed_with_a_condition(
    served: Served, client: Client, fault: bytes
) -> None:
    answer = raw(served, BEGUN + fault)
    assert b"\x00\x53\x18" in answer and b"amqp:" in answer
    assert client.sender("orders").send(message()) == Accepted()


def test_garbage_costs_no_other_client(served: Served, client: Client) -> None:
    sender, receiver = client.sender("orders"), client.receiver("orders")
    seeded = random.Random(4711)
    for number in range(60):
        garbage = seeded.randbytes(seeded.randrange(1, 2000))
        raw(served, (b"", AMQP_HEADER, SASL_HEADER, OPENED, BEGUN)[number % 5] + garbage)
        assert sender.send(message(b"%d" % number)) == Accepted()
    assert numbers(receiver.take(60)) == list(range(60))


def test_garbled_traffic_costs_no_other_client(served: Served, client: Client) -> None:
    """What a real client says, with a few bytes changed."""
    said: list[bytes] = []
    with served.client() as spoken:
        spoken._socket = Recording(spoken._socket, said)
        spoken.receiver("orders", filter=EARLIEST)
        spoken.sender("orders").send(message(b"spoken"))
    whole = BEGUN + b"".join(said)
    seeded = random.Random(99)
    before = served.log("orders").head()
    for _ in range(150):
        garbled = bytearray(whole)
        for _ in range(seeded.randrange(1, 6)):
            garbled[seeded.randrange(8, len(garbled))] = seeded.randrange(256)
        raw(served, bytes(garbled))
    assert client.sender("orders").send(message()) == Accepted()
    assert before < served.log("orders").head() <= before + 151


class Recording:
    """A socket that keeps what is sent."""

    def __init__(self, connection: socket.socket, said: list[bytes]) -> None:
        self._connection, self._said = connection, said

    def sendall(self, data: bytes) -> None:
        self._said.append(data)
        self._connection.sendall(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


def test_refused_links_leave_nothing_behind(served: Served, client: Client) -> None:
    served.log("split", partitions=2)
    for number in range(20):
        for properties in (bound(9), bound(9, "G")):
            with pytest.raises(AmqpError):
                client.receiver("split", name=f"r{number}", properties=properties)
        for address in ("nowhere", "orders/$info"):
            with pytest.raises(AmqpError):
                client.sender(address, name=f"s{number}")
    assert served.container.shared._links == {}
    (transport,) = served.container.connections
    assert transport._ends == {} and not list(client.session.links)


def test_a_lost_connection_leaves_nothing_behind(served: Served, client: Client) -> None:
    with served.client() as lost:
        lost.sender("orders"), lost.receiver("orders"), lost.receiver("orders/$info", credit=0)
        assert len(served.container.shared._links) == 3
        lost.drop()
        client.wait(lambda: client.pump(0.05) or len(served.container.connections) == 1)
    assert served.container.shared._links == {}
    assert not served.container.nodes._nodes["orders"].consumers


@pytest.mark.parametrize(("what", "limit"), [("links", 4), ("sessions", 3)])
def test_only_so_many_sessions_and_links_are_taken(what: str, limit: int) -> None:
    with Served(settings=AmqpSettings(links_max=4, sessions_max=3)) as served:
        served.log("orders")
        with served.client() as client:
            if what == "links":
                for _ in range(limit):
                    client.receiver("orders")
                with pytest.raises(SessionFault, match="a session can have at most 4 links"):
                    client.receiver("orders")
            else:
                for _ in range(limit - 1):
                    client.engine.begin()
                with pytest.raises(ValueError, match="no channel is free"):
                    client.engine.begin()


# A log that falls behind


@pytest.fixture
def slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server whose disk is slow, and whose log takes little at a time."""
    write = SegmentLog.append_frames

    def slowly(*arguments: object, **options: object) -> object:
        time.sleep(0.02)
        return write(*arguments, **options)

    monkeypatch.setattr(SegmentLog, "append_frames", slowly)
    settings = AmqpSettings(held_bytes_max=100_000)
    with Engine(tmp_path, waiting=SharedBytes(20_000)) as store, Served(store=store, settings=settings) as served:
        served.log("orders")
        yield served


def test_a_log_that_falls_behind_slows_producers_down_and_loses_nothing(slow_disk: Served) -> None:
    log = slow_disk.log("orders")
    filler = b"." * 1000
    with slow_disk.client() as one, slow_disk.client() as other:
        senders = [one.sender("orders"), other.sender("orders")]
        states: dict[int, list[object]] = {}

        def send(which: int) -> None:
            messages = [message(b"%d %d %b" % (which, number, filler)) for number in range(1500)]
            states[which] = senders[which].send_all(messages)

        threads = [threading.Thread(target=send, args=(which,)) for which in (0, 1)]
        for thread in threads:
            thread.start()
        held = 0
        while any(thread.is_alive() for thread in threads):
            held = max(held, *[transport.held_bytes for transport in tuple(slow_disk.container.connections)])
            time.sleep(0.002)
    assert states == {which: [Accepted()] * 1500 for which in (0, 1)}
    stored = [event.data.split()[:2] for event in log.read()]
    for which in (0, 1):
        assert [int(number) for sender, number in stored if int(sender) == which] == list(range(1500))
    assert 100_000 < held < 100_000 + 600_000


def test_settled_messages_are_slowed_down_too(slow_disk: Served) -> None:
    with slow_disk.client() as client:
        sender = client.sender("orders")
        sender.send_all([message(b"%d" % number + b"." * 1000) for number in range(1500)], is_settled=True)
        assert sender.send(message(b"1500.")) == Accepted()
    assert [int(event.data.partition(b".")[0]) for event in slow_disk.log("orders").read()] == list(range(1501))


def test_other_logs_and_readers_go_on_while_one_log_is_behind(slow_disk: Served) -> None:
    with slow_disk.client() as writer, slow_disk.client() as reader:
        receiver = reader.receiver("orders")
        sender = writer.sender("orders")
        sender.send_all([message(b"%d" % number) for number in range(300)])
        assert numbers(receiver.take(300)) == list(range(300))
        assert payloads(drained(reader, reader.receiver("orders", credit=0))) == []


def test_a_delivery_whose_outcome_is_not_known_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its link ends, and the sender does not take the message for rejected: it may be in the log."""
    write = SegmentLog.append_frames

    def late(
        log: SegmentLog, frames: Any, expected: Any, on_overdue: Callable[[], None] = nobody, **options: Any
    ) -> None:
        on_overdue()
        write(log, frames, expected, on_overdue, **options)

    with Engine(tmp_path) as store, Served(store=store) as served:
        served.log("orders")
        with served.client() as client:
            sender = client.sender("orders")
            monkeypatch.setattr(SegmentLog, "append_frames", late)
            with pytest.raises(LinkFault, match="append them again with the same ids"):
                sender.send(message(b"one"))
            monkeypatch.undo()
            assert client.sender("orders").send(message(b"two")) == Accepted()
        assert [event.data for event in served.log("orders").read()] == [b"one", b"two"]


def test_a_connection_that_is_over_is_gone_at_once(served: Served) -> None:
    """Without a collection of garbage, which a server under load seldom makes."""

    def left() -> int:
        return sum(1 for each in gc.get_objects() if isinstance(each, Transport))

    gc.collect()
    gc.disable()
    try:
        for number in range(10):
            client = served.client()
            client.sender("orders").send(b"\x00\x53\x75\xa0\x01x")
            client.receiver("orders")
            if number % 2:
                client.close()
            else:
                client.drop()
        until = time.monotonic() + 10
        while left() and time.monotonic() < until:
            time.sleep(0.01)
        assert left() == 0
    finally:
        gc.enable()
