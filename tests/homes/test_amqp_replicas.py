"""AMQP at a server that stands by: what is received there, what is sent to the primary, and what a takeover changes."""

from __future__ import annotations

import io
import json
import signal
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.amqp.client import Client, Receiver
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError, ConnectionFault
from headwater.amqp.protocol.performatives import Accepted
from headwater.amqp.protocol.types import Symbol
from headwater.client import connect
from headwater.core import Event
from headwater.server.replicas.origin_header import origin_header

from ..amqp.asking import DURABLE, EARLIEST, after, annotation, bound, message, payloads, sql
from ..waiting import eventually
from .postgres_server import Postgres
from .proxy import Proxy
from .test_replicas import metrics, pair, reads
from .test_servers import Join, Member, command, database, join, url

__all__ = ["database", "join", "pair", "url"]

ON_DEMAND = {"dynamic": True}


def taken(receiver: Receiver, count: int) -> list[bytes]:
    """So many payloads, which are accepted."""
    deliveries = receiver.take(count, 60)
    for each in deliveries:
        each.settle()
    return payloads(deliveries)


def refusal(ask: Callable[[], object]) -> AmqpError:
    with pytest.raises(AmqpError) as refused:
        ask()
    return refused.value


def place(member: Member) -> dict[str, object]:
    """Where a peer is told to go that is sent to a member."""
    return {"hostname": "127.0.0.1", "network-host": "127.0.0.1", "port": member.amqp_port}


def test_clients_of_a_replicas_port_are_forwarded_to_the_primary(pair: tuple[Member, Member]) -> None:
    first, second = pair
    with Client(second.amqp) as client:
        assert client.sender("orders").send(message(b"0")) == Accepted()
        assert taken(client.receiver("orders", filter=EARLIEST, properties=bound(group="g")), 1) == [b"0"]
        host, port = client._socket.getsockname()
        with urllib.request.urlopen(f"{first.url}/management/connection?attributes=peer,port", timeout=5) as answered:
            assert [host, port] in json.load(answered)["results"]
        eventually(lambda: "headwater_amqp_forwarded_open 1.0" in metrics(second))
    eventually(lambda: "headwater_amqp_forwarded_open 0.0" in metrics(second))
    assert "headwater_amqp_forwarded_total 1.0" in metrics(second)
    assert "headwater_amqp_forwarded_failed_total 0.0" in metrics(second)
    with socket.create_connection(("127.0.0.1", first.amqp_port), 30) as stranger:
        stranger.sendall(origin_header(b"a guess", ("198.51.100.7", 1), ("127.0.0.1", 1), time.time_ns() // 1_000_000))
        assert stranger.recv(1) == b""
    eventually(lambda: "headwater_amqp_origins_refused_total 1.0" in metrics(first))


def test_forwarded_connections_go_on_while_the_secret_is_renewed(pair: tuple[Member, Member], tmp_path: Path) -> None:
    first, second = pair
    with Client(second.amqp) as client:
        sender = client.sender("orders")
        command("home", "renew-secret", "--data", str(tmp_path / "a"))
        assert sender.send(message(b"0")) == Accepted()
        for _ in range(20):  # before and after the replica has the new one
            with Client(second.amqp) as other:
                assert other.sender("orders").send(message(b"1")) == Accepted()
    assert "headwater_amqp_origins_refused_total 0.0" in metrics(first)


def test_a_role_change_ends_forwarded_connections_and_clients_come_again(pair: tuple[Member, Member]) -> None:
    first, second = pair
    with Client(second.amqp, timeout_s=60) as client:
        receiver = client.receiver("orders", filter=EARLIEST)
        assert first.append(0) == 1
        assert taken(receiver, 1) == [b"0"]
        first.process.send_signal(signal.SIGSTOP)  # it says nothing any more, not even that it ends
        with pytest.raises((AmqpError, OSError)):
            receiver.take(1, 60)
    eventually(second.is_primary)
    with Client(second.amqp) as client:
        assert client.sender("orders").send(message(b"1")) == Accepted()
        assert taken(client.receiver("orders", filter=EARLIEST), 2) == [b"0", b"1"]
    first.process.send_signal(signal.SIGCONT)
    eventually(lambda: reads(first) and second.url in first.unready())
    with Client(first.amqp) as client:  # and the other way round
        assert client.sender("orders").send(message(b"2")) == Accepted()
    assert "headwater_amqp_forwarded_total 1.0" in metrics(first)


def test_a_replica_says_where_the_primary_is_if_it_is_to_forward_nothing(join: Join, url: str, tmp_path: Path) -> None:
    first = join("a")
    eventually(first.is_primary)
    second = Member(url, tmp_path / "b", "--replica-forward", "false")
    try:
        eventually(lambda: reads(second) and "is the primary" in second.unready())
        away = refusal(lambda: Client(second.amqp))
        assert isinstance(away, ConnectionFault)
        assert (away.condition, away.info) == (conditions.CONNECTION_REDIRECT, place(first))
        assert f"connect to {first.amqp}" in away.description
    finally:
        second.close()


def test_receivers_are_served_at_a_replica_and_all_else_is_sent_to_the_primary(pair: tuple[Member, Member]) -> None:
    first, second = pair
    with connect(first.url) as server:
        log = server.log("orders")
        for number in range(6):
            log.append([Event("E" if number % 2 else "F", b"%d" % number, tags=(f"n:{number}",))])
        with Client(second.reading) as client:
            plain = client.receiver("orders", filter=EARLIEST)
            assert taken(plain, 6) == [b"0", b"1", b"2", b"3", b"4", b"5"]
            assert taken(client.receiver("orders", filter=after(4)), 2) == [b"4", b"5"]
            assert taken(client.receiver("orders/$earliest", filter=sql("properties.subject = 'E'")), 2) == [b"1", b"3"]
            [told] = client.receiver("orders/$info").take(1)
            assert annotation(told, "event-streams-offset") is None and told.message.body
            log.append([Event("E", b"6")])  # who has read all there is, is woken
            assert taken(plain, 1) == [b"6"]
            eventually(lambda: "headwater_amqp_connections_open 1.0" in metrics(second))
    with Client(second.reading) as client:
        for attach, address in (
            (lambda: client.sender("orders"), "orders"),
            (lambda: client.sender(None), None),
            (lambda: client.sender("$management"), "$management"),
            (lambda: client.receiver("$management"), "$management"),
            (lambda: client.receiver("$events"), "$events"),
            (lambda: client.receiver(None, source=ON_DEMAND), None),
            (lambda: client.receiver("orders", properties=bound(group="g")), "orders"),
            (lambda: client.receiver("orders/$group/g"), "orders/$group/g"),
            (lambda: client.receiver("orders", source=DURABLE), "orders"),
            (lambda: client.receiver("orders", source={"timeout": 5}), "orders"),
            (lambda: client.receiver("none"), "none"),  # it may have been created a moment ago
            (lambda: client.receiver("orders", source={"expiry_policy": Symbol("connection-close")}), "orders"),
        ):
            found = refusal(attach)
            assert found.condition == conditions.LINK_REDIRECT, found
            assert found.info == place(first) | ({} if address is None else {"address": address})
            assert f"attach it at the primary, {first.amqp}" in found.description
        where = refusal(lambda: client.sender("orders")).info or {}
    with Client(f"amqp://{where['network-host']}:{where['port']}") as client:
        assert client.sender("orders").send(message(b"7")) == Accepted()
        assert refusal(lambda: client.receiver("none")).condition == conditions.NOT_FOUND


def test_a_receiver_stays_when_its_replica_becomes_the_primary(pair: tuple[Member, Member]) -> None:
    first, second = pair
    with Client(second.reading) as client:
        receiver = client.receiver("orders", filter=EARLIEST)
        assert first.append(0) == 1
        assert taken(receiver, 1) == [b"0"]
        first.end(signal.SIGKILL)
        eventually(second.is_primary)
        with Client(second.amqp) as sending:
            assert sending.sender("orders").send(message(b"1")) == Accepted()
            assert taken(sending.receiver("orders", filter=EARLIEST, properties=bound(group="g")), 2) == [b"0", b"1"]
        assert taken(receiver, 1) == [b"1"]
        found = refusal(lambda: client.sender("orders"))  # it is its own primary now
        assert (found.condition, found.info) == (conditions.LINK_REDIRECT, {**place(second), "address": "orders"})
        assert second.end(signal.SIGTERM) == 0
        assert refusal(lambda: receiver.take(1, 60)).condition == conditions.CONNECTION_FORCED


def test_rights_are_those_of_the_home_and_a_stale_replica_serves_nobody_new(
    join: Join, url: str, database: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = join("a")
    eventually(first.is_primary)
    with connect(first.url) as server:
        server.create("other")
    proxy = Proxy(database.port)
    through = proxy.before(url)
    second = Member(through, tmp_path / "b", "--replica-stale-ms-max", "3000")
    try:
        eventually(lambda: reads(second))
        with Client(second.reading) as unknown:  # nobody has to say who he is yet
            assert unknown.receiver("other").link.is_attached
        monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
        grants = ("--grant", "read:orders", "--grant", "append:orders")
        command("user", "add", "alice", "--data", str(tmp_path / "a"), *grants, "--password-stdin")
        alice = second.reading.replace("://", "://alice:correct%20horse@")
        eventually(lambda: not lets_in(second.reading) and lets_in(alice))
        with Client(alice) as client:
            receiver = client.receiver("orders", filter=EARLIEST)
            assert refusal(lambda: client.receiver("other")).condition == conditions.UNAUTHORIZED_ACCESS
            proxy.stop()
            eventually(lambda: not reads(second))
            found = refusal(lambda: client.receiver("orders"))
            assert found.condition in (conditions.LINK_REDIRECT, conditions.NOT_ALLOWED)  # if it has heard of a primary
            assert "has not caught up with its home" in found.description
            with connect(first.url, user="alice", password="correct horse") as server:
                server.log("orders").append([Event("E", b"0")])
            assert taken(receiver, 1) == [b"0"]  # the primary tells still, and the link was there before
    finally:
        second.close()
        proxy.close()


def lets_in(url: str) -> bool:
    """Whether the server takes the user of that address."""
    try:
        Client(url).close()
    except AmqpError:
        return False
    return True
