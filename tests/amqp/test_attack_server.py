"""What a hostile, careless or merely unusual peer does to a server, and that nobody else pays for it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.amqp.client import Client
from headwater.amqp.connections.transport import TURN_BYTES, _Pause
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.message import DATA, Message, Properties, encode_message
from headwater.amqp.protocol.performatives import Accepted, Flow, Rejected, Released, Source, Target, Transfer
from headwater.amqp.protocol.settings import ConnectionSettings
from headwater.amqp.protocol.types import Described, Symbol, ULong
from headwater.amqp.server import BACKLOG
from headwater.amqp.settings import AmqpSettings
from headwater.amqp.streams.consumer_attach import Attaching
from headwater.amqp.streams.info import information_message
from headwater.core.errors import Overloaded
from headwater.core.event import Event
from headwater.core.watch.bus import Notification
from headwater.core.watch.notification_types import NotificationType

from ..waiting import WAIT_S_MAX, eventually
from .served import Served

EARLIEST = {
    "start": Described(
        Symbol("amqp:event-streams-delivery-annotations-filter"), {Symbol("event-streams-offset"): Symbol("@earliest")}
    )
}
GROUP = Symbol("event-streams-consumer-group")


def message(body: bytes = b"{}", **properties: Any) -> Message:
    return Message([body], DATA, properties=Properties(subject="T", **properties))


def test_a_refused_link_leaves_nothing_behind(served: Served, client: Client) -> None:
    bad = {"f": Described(Symbol("apache.org:selector-filter:string"), "a =")}
    for number in range(3):
        with pytest.raises(AmqpError):
            client.sender(f"nowhere-{number}")
        with pytest.raises(AmqpError):
            client.receiver("orders", filter=bad)
    assert not served.container.shared._links


def test_an_attach_whose_session_ended_with_it_leaves_nothing_behind(served: Served, client: Client) -> None:
    properties = {GROUP: "g"}
    for number in range(3):
        session = client.engine.begin()
        session.attach_sender(f"s{number}", source=Source(), target=Target(address="orders"))
        session.attach_receiver(f"r{number}", source=Source(address="orders"), target=Target())
        session.attach_receiver(f"g{number}", source=Source(address="orders"), target=Target(), properties=properties)
        session.end()
        client.flush()
        client.wait(lambda session=session: session.is_over)
    assert client.receiver("orders", properties=properties).link.is_attached
    assert len(served.container.shared._links) == 1


def test_an_anonymous_link_leaves_no_task_behind(served: Served, client: Client) -> None:
    for _ in range(3):
        sender = client.sender(None)
        assert sender.send(message(to="orders")) == Accepted()
        sender.close()
    (transport,) = served.container.connections
    eventually(lambda: not transport._tasks and not served.container.nodes._tasks)


def test_garbage_without_address_is_rejected_and_costs_no_other(served: Served, client: Client) -> None:
    sender = client.sender(None)
    states = sender.send_all([b"\xff\xff", message(to="orders"), b"", message()])
    assert [type(state) for state in states] == [Rejected, Accepted, Rejected, Rejected]


def test_settled_messages_without_address_outlive_an_orderly_close(served: Served) -> None:
    with served.client() as client:
        sender = client.sender(None)
        sender.send_all([message(to="orders")] * 50, is_settled=True)
        client.engine.close()
        client.flush()
    eventually(lambda: served.log("orders").head() == 50)


def test_aborted_messages_use_no_credit_up(served: Served, client: Client) -> None:
    sender = client.sender("orders")
    client.wait(lambda: sender.link.credit > 0)
    session, link = client.session, sender.link
    for number in range(link.credit):
        delivery_id = session.take_delivery_ids(link, [None], True)
        link.credit -= 1
        link.delivery_count += 1
        session.send(Transfer(0, delivery_id, b"%d" % number, 0, more=True))
        session.send(Transfer(0, aborted=True))
        session._next_outgoing_id += 2
    assert sender.send(message()) == Accepted()


def test_large_messages_wait_for_a_small_window(served: Served, client: Client) -> None:
    bodies = [bytes([number]) * (10 if number % 2 else 200_000) for number in range(8)]
    client.sender("orders").send_all([message(body) for body in bodies])
    client.engine.settings = ConnectionSettings(incoming_window=3)
    client.session = client.engine.begin()
    receiver = client.receiver("orders", filter=EARLIEST)
    got = receiver.take(8)
    assert [each.message.body[0] for each in got] == bodies
    got[3].settle(Released())
    got[2].settle(Released())
    assert [each.message.body[0][0] for each in receiver.take(2)] in ([2, 3], [3, 2])


def test_a_peer_that_never_reads_stops_being_read(served: Served) -> None:
    client = served.client()
    (transport,) = served.container.connections
    client._socket.settimeout(0.5)
    client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(20_000):
        client.session.send(Flow(0, 1, 0, 1, echo=True))
    frames = client.engine.data_to_send()
    with pytest.raises(TimeoutError):
        for _ in range(200):
            client._socket.sendall(frames)
    assert transport._transport.get_write_buffer_size() < 4 * 2**20
    client.drop()


def test_a_server_with_idle_connections_stops_at_once() -> None:
    with Served() as served:
        served.log("orders")
        client = served.client()
        receiver = client.receiver("orders")
        stopping = threading.Thread(target=served.stop)
        stopping.start()
        with pytest.raises(AmqpError) as closed:
            receiver.take(1)
        assert closed.value.condition == conditions.CONNECTION_FORCED
        eventually(lambda: not served.container.connections, within_s=3.0)  # it would be cut off after 5 s
        stopping.join()
        client.drop()


def test_a_server_that_stops_takes_nothing_more_from_a_busy_sender() -> None:
    with Served(settings=AmqpSettings(held_bytes_max=50_000)) as served:
        served.log("orders")
        client = served.client()
        sender = client.sender("orders")
        stopping = threading.Thread(target=served.stop)
        stored = 0
        with pytest.raises(AmqpError) as closed:
            for turn in range(10_000):
                stored += sender.send_all([message(bytes(1000))] * 100).count(Accepted())
                if turn == 10:
                    stopping.start()
        assert closed.value.condition == conditions.CONNECTION_FORCED
        stopping.join()
        client.drop()
        assert stored <= served.log("orders").head() <= stored + 100


def test_many_receivers_of_a_peer_that_reads_slowly_take_no_more_memory_than_one(served: Served) -> None:
    client = served.client()
    for _ in range(60):
        client.receiver("orders", credit=1000)
    (transport,) = served.container.connections
    written: list[int] = []
    write = transport.engine.data_to_send

    def watched(bytes_max: int | None = None) -> bytes:
        data = write(bytes_max)
        written.append(len(data))
        return data

    transport.engine.data_to_send = watched  # type: ignore[method-assign]
    served.log("orders").append([Event("T", bytes(10_000))] * 20)
    eventually(lambda: sum(written) > 500_000)
    time.sleep(0.1)
    assert max(written) < 1_000_000 and sum(written) < 5_000_000
    client.drop()


def test_many_senders_of_a_session_may_all_use_their_credit_while_the_log_is_slow(served: Served) -> None:
    log, client = served.log("orders"), served.client()
    senders = [client.sender("orders") for _ in range(40)]
    client.wait(lambda: all(sender.link.credit for sender in senders))

    def submit(_: object) -> None:
        raise Overloaded(1, 1)

    log.submit = submit  # type: ignore[assignment,method-assign]
    (transport,) = served.container.connections
    body = encode_message(message())
    deliveries = [(sender.link, tag) for sender in senders for tag in range(1000)]
    for number, (link, tag) in enumerate(deliveries):
        client.wait(lambda link=link: link.sendable > 0 or _Pause.HELD in transport._pauses, WAIT_S_MAX)
        if not link.sendable:
            assert number > 10_000
            vars(log).pop("submit", None)  # it is fast again
            client.wait(lambda link=link: link.sendable > 0)
        link.send(body, tag, tag)
    client.wait(lambda: all(len(sender.states) == 1000 for sender in senders))
    assert log.head() == 40_000
    client.close()


def test_a_member_that_is_lost_while_its_epoch_is_stored_takes_no_event_with_it(served: Served) -> None:
    served.log("orders").append([Event("T", b"%d" % number) for number in range(5)])
    with served.client() as client:
        client.receiver("orders", credit=0, filter=EARLIEST, properties={GROUP: "g"})
    node = served.container.nodes._nodes["orders"]
    save, is_saving = node._save, threading.Event()

    async def slow_save() -> None:
        is_saving.set()
        await asyncio.sleep(0.3)
        await save()

    node._save = slow_save  # type: ignore[method-assign]
    epoch = Symbol("event-streams-epoch")
    partition = Symbol("event-streams-partition")
    client = served.client()
    client.receiver("orders", properties={GROUP: "g", partition: "0", epoch: ULong(7)}, waits=False)
    assert is_saving.wait(5)
    client.drop()
    eventually(lambda: not served.container.connections)
    with served.client() as client:
        got = client.receiver("orders", properties={GROUP: "g"}).take(5)
        assert [each.message.body for each in got] == [[b"%d" % number] for number in range(5)]


def test_a_receiver_that_fails_costs_no_other_its_events(served: Served, client: Client) -> None:
    first = [served.client() for _ in range(4)]
    failing = [each.receiver("orders") for each in first[:2]]
    receivers = [client.receiver("orders"), *(each.receiver("orders") for each in first[2:])]
    for receiver in failing:
        name = receiver.link.name

        def broken(*_: object) -> bytes:
            raise OSError("disk")

        for transport in served.container.connections:
            for link, end in transport._ends.items():
                if transport.container_id == receiver._client.engine.container_id and link.name == name:
                    end._send = broken
    served.log("orders").append([Event("T", b"{}")])
    for receiver in receivers:
        assert len(receiver.take(1)) == 1
    for receiver in failing:
        with pytest.raises(AmqpError) as failed:
            receiver.take(1)
        assert failed.value.condition == conditions.INTERNAL_ERROR
    for each in first:
        each.close()


def test_a_member_that_cannot_be_answered_costs_only_itself(served: Served, client: Client) -> None:
    owner = client.receiver("orders", properties={GROUP: "g"})
    with served.client() as waiting:
        member = waiting.receiver("orders", properties={GROUP: "g"}, waits=False)
        eventually(lambda: sum(len(each._ends) for each in served.container.connections) == 2)
        answer = Attaching.answer

        def broken(*_: object) -> None:
            raise ValueError("broken")

        Attaching.answer = broken  # type: ignore[assignment,method-assign]
        try:
            owner.close()
            with pytest.raises(AmqpError) as failed:
                member.attached()
        finally:
            Attaching.answer = answer  # type: ignore[method-assign]
        assert failed.value.condition == conditions.INTERNAL_ERROR
        assert waiting.receiver("orders", properties={GROUP: "g"}).link.is_attached


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel does not tell")
def test_many_who_connect_at_once_need_not_try_again(served: Served) -> None:
    """Those who find the backlog full wait for a second, and then for more."""
    told = served._sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    (backlog,) = struct.unpack_from("I", told, 28)  # tcpi_sacked, of a socket that listens
    assert backlog >= min(BACKLOG, int(Path("/proc/sys/net/core/somaxconn").read_text()))


def test_attaches_that_wait_for_their_log_are_bounded(served: Served) -> None:
    client, is_open = served.client(), threading.Event()
    open_log = served.store.open

    def slow(name: str) -> Any:
        is_open.wait(10)
        return open_log(name)

    served.store.open = slow  # type: ignore[method-assign]
    (transport,) = served.container.connections
    for turn in range(5):
        session = client.engine.begin()
        for number in range(200):
            session.attach_sender(
                f"{turn}-{number}", source=Source(), target=Target(address=f"nowhere-{turn}-{number}")
            )
        client.flush()
        time.sleep(0.05)
    eventually(lambda: _Pause.HELD in transport._pauses)
    assert len(transport._tasks) <= 200
    is_open.set()
    eventually(lambda: served.container.statistics.links_refused == 1000)
    eventually(lambda: not transport._pauses and not transport.held_bytes and not transport._tasks)
    client.drop()


def test_a_producer_that_goes_while_its_log_is_opened_leaves_nothing_behind(served: Served, client: Client) -> None:
    served.store.create("late")
    asked, may_open, open_log = threading.Event(), threading.Event(), served.store.open

    def slow(name: str) -> Any:
        asked.set()
        assert may_open.wait(WAIT_S_MAX)
        return open_log(name)

    served.store.open = slow  # type: ignore[method-assign]
    session = client.engine.begin()
    link = session.attach_sender("going", source=Source(), target=Target(address="late"))
    client.flush()
    assert asked.wait(WAIT_S_MAX)
    link.detach()
    client.flush()
    may_open.set()
    client.wait(lambda: link.is_over)
    (transport,) = served.container.connections
    eventually(lambda: not transport._tasks)
    assert not served.container.shared._links
    assert client.sender("late").send(message()) == Accepted()


def test_many_that_ask_for_information_at_once_cost_one_look_at_the_log(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, may_go = [], threading.Event()

    def slow(log: Any) -> bytes:
        looks.append(log)
        may_go.wait(5)
        return information_message(log)

    monkeypatch.setattr("headwater.amqp.streams.node.information_message", slow)
    with served.client() as client:
        receivers = [client.receiver("orders/$info", credit=1) for _ in range(50)]
        may_go.set()
        for receiver in receivers:
            assert receiver.take(1)[0].message.body["event-count"] == 0
    assert len(looks) <= 2


def test_what_detached_senders_leave_behind_is_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.amqp.streams.nodes.DELIVERIES_MAX", 25)
    container = served.container
    with served.client() as client:
        for _ in range(5):
            sender = client.sender("orders", rcv_settle_mode=1)
            (transport,) = container.connections
            (producer,) = transport._ends.values()
            producer._unsettled = {b"%d" % each: None for each in range(10)}
            sender.link.detach(is_closed=False)
            client.wait(lambda sender=sender: sender.link.is_over)
    assert [len(each.accepted) for each in container.nodes.suspended._by_key.values()] == [10, 10]


def test_a_flood_of_tiny_frames_leaves_others_their_turn(served: Served) -> None:
    client = served.client()
    (transport,) = served.container.connections
    for _ in range(20_000):
        client.session.send(Flow(0, 1, 0, 1))
    flood = client.engine.data_to_send()
    reads: list[int] = []
    receive = transport.engine.receive_data

    def watched(data: bytes, now: float) -> Any:
        reads.append(len(data))
        return receive(data, now)

    transport.engine.receive_data = watched  # type: ignore[method-assign]
    turns: list[int] = []

    async def flooded() -> None:
        transport.data_received(flood)
        while sum(reads) < len(flood):
            turns.append(sum(reads))
            await asyncio.sleep(0)

    served.run(flooded)
    assert len(turns) > 5 and max(reads) <= TURN_BYTES and not transport._pauses
    assert client.sender("orders").send(message()) == Accepted()
    client.close()


def test_settled_garbage_is_told_once_for_each_link_and_fills_no_log(
    served: Served, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Notification] = []
    sender = client.sender("orders")
    served.bus.subscribe(told.append)
    sender.send_all([b"\xff"] * 100, is_settled=True)
    client.wait(lambda: sender.error is not None)
    assert client.sender("orders").send(message()) == Accepted()
    ((_, _, attributes),) = [each for each in told if each[0] is NotificationType.LINK_DETACHED]
    assert attributes["peer"] == "127.0.0.1" and attributes["link"] == "sender-0"
    assert attributes["condition"] == "amqp:decode-error" and served.container.statistics.messages_rejected == 100
    assert not [each for each in caplog.records if each.name == "headwater.amqp"]


def test_it_is_told_which_peer_broke_the_protocol_and_how(served: Served) -> None:
    told: list[Notification] = []
    client = served.client()
    served.bus.subscribe(told.append)
    client._socket.sendall(bytes(8))
    eventually(lambda: not served.container.connections)
    ((type, _, attributes),) = told
    assert type is NotificationType.CONNECTION_CLOSED and attributes["condition"] == "amqp:connection:framing-error"
    assert attributes["peer"] == "127.0.0.1" and "frame" in str(attributes["description"])
    client.drop()
    client.drop()


def test_a_receiver_gets_no_message_larger_than_it_takes(served: Served, client: Client) -> None:
    client.sender("orders").send_all([*[message(b"small")] * 5, message(bytes(2000)), message(b"small")])
    receiver = client.receiver("orders", filter=EARLIEST, max_message_size=1000)
    assert [each.message.body for each in receiver.take(5)] == [[b"small"]] * 5
    with pytest.raises(AmqpError) as refused:
        receiver.take(1)
    assert refused.value.condition == conditions.LINK_MESSAGE_SIZE_EXCEEDED
    assert client.receiver("orders", filter=EARLIEST).take(6)[5].message.body == [bytes(2000)]
