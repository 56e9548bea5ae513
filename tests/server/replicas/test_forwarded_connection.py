"""A replica forwards what comes at the port of the primary's AMQP: every byte, every end, and no more than is taken."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import ConnectionFault
from headwater.amqp.protocol.performatives import Accepted
from headwater.amqp.protocol.types import Symbol
from headwater.amqp.settings import AmqpSettings
from headwater.core import Event
from headwater.core.loop.memory import MemoryAccount
from headwater.core.loop.turn_reads import READ_BYTES
from headwater.homes.home_secret import HomeSecret
from headwater.server.process.sockets import SILENT_S
from headwater.server.replicas import forwarded_connection
from headwater.server.replicas.origin_header import FIXED, SIGNATURE, bytes_after
from headwater.storage.memory import MemoryState

from ...amqp.asking import EARLIEST, message, payloads
from ...amqp.certificates import Authority
from ...ports import free_ports
from ...waiting import eventually
from .places import PLAIN, SECRET, Place, forwarded, header, primary, replica

KIB = 1024


@pytest.fixture
def first() -> Iterator[Place]:
    with primary() as running:
        yield running


@pytest.fixture
def second(first: Place) -> Iterator[Place]:
    with replica(first.url) as running:
        yield running


class RawPrimary:
    """A primary that takes connections, and does with them what a test wants."""

    def __init__(self) -> None:
        self._bound = socket.create_server(("127.0.0.1", 0))
        self._bound.settimeout(30)

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self._bound.getsockname()[1]}"

    def accept(self, receive_bytes: int | None = None) -> socket.socket:
        """The next forwarded connection, its header taken."""
        if receive_bytes is not None:
            self._bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection, _ = self._bound.accept()
        connection.settimeout(30)
        fixed = exactly(connection, FIXED.size)
        assert fixed[:12] == SIGNATURE
        exactly(connection, bytes_after(fixed))
        return connection

    def close(self) -> None:
        self._bound.close()


@pytest.fixture
def raw() -> Iterator[RawPrimary]:
    with closing(RawPrimary()) as running:
        yield running


@pytest.fixture
def before_raw(raw: RawPrimary) -> Iterator[Place]:
    with replica(lambda: raw.url) as running:
        yield running


def exactly(connection: socket.socket, count: int) -> bytes:
    taken = b""
    while len(taken) < count:
        more = connection.recv(count - len(taken))
        assert more, taken
        taken += more
    return taken


def is_over(peer: socket.socket) -> bool:
    """Whether the other side has ended it, in order or not."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def reset(peer: socket.socket) -> None:
    """End it as a process that is killed does, whatever is under way."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def ends(place: Place) -> None:
    """Nothing of a connection stays."""
    eventually(lambda: not forwarded(place).open, lambda: forwarded(place).open)
    eventually(lambda: place.memory.bytes == 0 and place.memory._owners == {}, lambda: place.memory._owners)


def refusal(url: str) -> ConnectionFault:
    with pytest.raises(ConnectionFault) as refused:
        Client(url, timeout_s=30)
    return refused.value


def test_a_client_sends_and_receives_through_a_replica_and_keeps_its_address(first: Place, second: Place) -> None:
    first.log()
    with second.client() as client:
        assert client.sender("orders").send(message(b"0")) == Accepted()
        assert payloads(client.receiver("orders", filter=EARLIEST).take(1)) == [b"0"]
        assert first.peers == [client._socket.getsockname()]
        assert second.peers == []
        assert len(forwarded(second).open) == 1
    ends(second)
    eventually(lambda: first.peers == [])
    assert (forwarded(second).statistics.forwarded, forwarded(second).statistics.failed) == (1, 0)


def test_tls_and_client_certificates_are_the_primarys(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.issue("server", "IP:127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own.file, own.key)
    tls.load_verify_locations(authority.own.file)
    tls.verify_mode = ssl.CERT_REQUIRED
    with primary(tls=tls) as first, replica(first.url) as second:
        first.log().append([Event("E", b"0")])
        url, shown = first.url().replace(str(first.port), str(second.port)), authority.issue("alice")
        with Client(url, tls=authority.context(shown), timeout_s=30) as client:
            assert payloads(client.receiver("orders", filter=EARLIEST).take(1)) == [b"0"]
            assert first.peers == [client._socket.getsockname()]
        with pytest.raises(OSError):
            Client(url, tls=authority.context(), timeout_s=30)
        ends(second)


def test_one_hop_only(first: Place) -> None:
    """Two replicas that take each other for the primary: the second says so."""
    with replica(lambda: None) as third, replica(third.url) as second:
        fault = refusal(second.url())
        assert fault.condition == conditions.CONNECTION_FORCED
        assert "this server is not the primary" in fault.description
        assert forwarded(third).statistics.forwarded == 0
        ends(second)


def test_a_replica_forwards_no_header_of_a_client(first: Place, second: Place) -> None:
    with second.knock(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12)) as peer:
        assert is_over(peer)
    eventually(lambda: second.container.statistics.origins_refused == 1)
    assert first.container.statistics.connections_refused == forwarded(second).statistics.forwarded == 0


def test_a_check_that_only_connects_does_not_reach_the_primary(first: Place, second: Place) -> None:
    """cloudamqp/amqproxy#179: each check of the port was a connection to the broker."""
    for _ in range(3):
        second.knock().close()
    with second.client():
        pass
    assert forwarded(second).statistics.forwarded == 1


@pytest.mark.parametrize("forwards", [True, False])
def test_without_a_primary_a_client_is_told_so(forwards: bool) -> None:
    with replica(lambda: None, forwards=forwards) as place:
        fault = refusal(place.url())
        assert fault.condition == conditions.CONNECTION_FORCED
        assert "there is currently no primary" in fault.description


def test_a_client_is_sent_to_the_primary_where_nothing_is_forwarded(first: Place) -> None:
    with replica(first.url, forwards=False) as place:
        fault = refusal(place.url())
        assert fault.condition == conditions.CONNECTION_REDIRECT
        assert (fault.info or {})[Symbol("port")] == first.port


def test_a_primary_that_cannot_be_reached_is_named() -> None:
    [port] = free_ports(1)
    with replica(lambda: f"amqp://127.0.0.1:{port}") as place:
        fault = refusal(place.url())
        assert fault.condition == conditions.CONNECTION_FORCED
        assert f"cannot reach the primary at amqp://127.0.0.1:{port}" in fault.description
        assert forwarded(place).statistics.failed == 1
        ends(place)


def test_connections_above_the_limit_are_refused_and_counted_at_the_replica(first: Place) -> None:
    with replica(first.url, settings=AmqpSettings(connections_max=2)) as place:
        with place.client(), place.client():
            with place.knock(PLAIN) as peer:
                assert is_over(peer)
            eventually(lambda: place.container.statistics.connections_refused == 1)
            assert [told["reason"] for told in place.refusals] == ["limit"]
        ends(place)
        with place.client():
            assert len(forwarded(place).open) == 1


@pytest.mark.parametrize("to_primary", [True, False])
def test_no_more_is_read_from_one_side_than_the_other_takes(
    raw: RawPrimary, before_raw: Place, to_primary: bool
) -> None:
    """Both directions: a side that reads nothing holds one read back, however much the other would send."""
    with before_raw.knock(PLAIN) as client, raw.accept(64 * KIB) as served:
        assert exactly(served, len(PLAIN)) == PLAIN
        served.sendall(PLAIN)
        assert exactly(client, len(PLAIN)) == PLAIN
        sending, taking = (client, served) if to_primary else (served, client)
        sent = filled(sending)
        [both] = forwarded(before_raw).open
        eventually(lambda: 0 < both.unsent_bytes() <= READ_BYTES)
        assert both.share.bytes == both.unsent_bytes()
        rest = bytes(range(256)) * 64
        threading.Thread(target=sending.sendall, args=(rest,), daemon=True).start()
        assert exactly(taking, sent + len(rest)) == bytes(sent) + rest
        eventually(lambda: both.share.bytes == both.unsent_bytes() == 0)
    ends(before_raw)


def filled(sending: socket.socket) -> int:
    """Send zeros until nobody takes more for a while; how many."""
    sent, quiet = 0, 0
    sending.setblocking(False)
    while quiet < 20:
        try:
            sent += sending.send(bytes(64 * KIB))
            quiet = 0
        except BlockingIOError:
            quiet += 1
            threading.Event().wait(0.02)
    sending.settimeout(30)
    return sent


def test_the_end_of_sending_is_forwarded_and_the_other_direction_stays(raw: RawPrimary, before_raw: Place) -> None:
    """envoyproxy/envoy#2067: a half-close closed both directions, and lost what was still to come."""
    with before_raw.knock(PLAIN) as client, raw.accept() as served:
        client.shutdown(socket.SHUT_WR)
        assert exactly(served, len(PLAIN)) == PLAIN
        assert served.recv(1) == b""
        served.sendall(b"x" * 1000)
        assert exactly(client, 1000) == b"x" * 1000
        served.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    ends(before_raw)


def test_what_was_sent_last_arrives_before_the_end(raw: RawPrimary, before_raw: Place) -> None:
    with before_raw.knock(PLAIN) as client, raw.accept() as served:
        exactly(served, len(PLAIN))
        served.sendall(b"x" * 300 * KIB)
        served.close()
        assert exactly(client, 300 * KIB) == b"x" * 300 * KIB
        assert is_over(client)
    ends(before_raw)


@pytest.mark.parametrize("is_client", [True, False])
def test_where_one_side_disappears_the_other_is_closed(raw: RawPrimary, before_raw: Place, is_client: bool) -> None:
    """istio/istio#43297: a side that had ended left its other half behind for an hour."""
    client, served = before_raw.knock(PLAIN), raw.accept()
    gone, stays = (client, served) if is_client else (served, client)
    exactly(served, len(PLAIN))
    reset(gone)
    with stays:
        assert is_over(stays)
    ends(before_raw)


def test_half_of_a_connection_does_not_stay_for_ever(
    raw: RawPrimary, before_raw: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarded_connection, "HALF_OPEN_S", 0.1)
    with before_raw.knock(PLAIN) as client, raw.accept() as served:
        exactly(served, len(PLAIN))
        served.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        assert is_over(served)
    ends(before_raw)


def test_a_side_that_takes_nothing_does_not_stay_when_the_other_is_gone(
    raw: RawPrimary, before_raw: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarded_connection, "HALF_OPEN_S", 0.1)
    with before_raw.knock(PLAIN) as client, raw.accept() as served:
        exactly(served, len(PLAIN))
        filled(served)
        reset(served)
        ends(before_raw)
        assert client.recv(1) == b"\0"


def test_an_idle_connection_stays_for_as_long_as_both_sides_want(raw: RawPrimary, before_raw: Place) -> None:
    """cloudamqp/amqproxy#190: the proxy had an idea of its own how often a heartbeat must come."""

    async def pass_a_day() -> None:
        forwarded(before_raw).tick(asyncio.get_running_loop().time() + 86_400)

    with before_raw.knock(PLAIN) as client, raw.accept() as served:
        exactly(served, len(PLAIN))
        served.sendall(PLAIN)
        assert exactly(client, len(PLAIN)) == PLAIN
        before_raw.run(pass_a_day)
        client.sendall(b"still here")
        assert exactly(served, 10) == b"still here"


def test_a_primary_that_never_answers_is_given_up(raw: RawPrimary) -> None:
    with replica(lambda: raw.url, settings=AmqpSettings(login_ms=200)) as place, place.knock(PLAIN) as client:
        with raw.accept():
            assert is_over(client)
        ends(place)


def test_a_primary_that_speaks_first_is_none(raw: RawPrimary, before_raw: Place) -> None:
    with before_raw.knock(PLAIN) as client, raw.accept() as served:
        served.sendall(b"220 mail.example ESMTP\r\n")
        with suppress(OSError):
            client.recv(1)
    ends(before_raw)


def test_connections_to_a_server_that_is_not_the_primary_any_more_end(first: Place) -> None:
    where = [first.url()]
    with replica(lambda: where[0]) as place, primary() as next_one:
        with place.knock(PLAIN) as peer:
            assert exactly(peer, len(PLAIN)) == PLAIN
            where[0] = None  # type: ignore[call-overload]  # nobody is known for a moment: it stays
            place.run(lambda: ticked(place))
            assert len(forwarded(place).open) == 1
            where[0] = next_one.url()
            assert is_over(peer)
        ends(place)
        with place.knock(PLAIN) as peer:
            assert exactly(peer, len(PLAIN)) == PLAIN
            assert next_one.peers == [peer.getsockname()]


async def ticked(place: Place) -> None:
    forwarded(place).tick(asyncio.get_running_loop().time())


def test_all_end_when_the_replica_becomes_the_primary(first: Place, second: Place) -> None:
    async def end() -> None:
        forwarded(second).end()

    with second.knock(PLAIN) as peer:
        assert exactly(peer, len(PLAIN)) == PLAIN
        second.run(end)
        assert is_over(peer)
    ends(second)
    eventually(lambda: first.peers == [])


def test_who_takes_nothing_while_memory_is_short_is_disconnected(
    raw: RawPrimary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.core.loop.memory.STALLED_S", 0.1)
    monkeypatch.setattr("headwater.core.loop.memory.CHECK_S", 0.05)
    memory = MemoryAccount(64 * KIB)  # what one connection holds beyond what is free is all of it
    monkeypatch.setattr(MemoryAccount, "is_short", property(lambda self: True))
    with replica(lambda: raw.url, memory=memory) as place, place.knock(PLAIN) as client, raw.accept() as served:
        exactly(served, len(PLAIN))
        with pytest.raises(ConnectionError):
            while True:
                filled(served)
        with suppress(ConnectionError):
            while client.recv(2**20):
                pass
        ends(place)


def test_a_header_for_a_replica_is_believed_before_it_says_that_it_is_none() -> None:
    with replica(lambda: None) as place, place.knock(header(), PLAIN) as peer:
        assert exactly(peer, len(PLAIN)) == PLAIN
        assert place.peers == [("198.51.100.7", 50123)]


@pytest.mark.parametrize("ends", ["client", "primary", "half"])
def test_a_forwarded_connection_that_is_over_is_gone_without_a_collection(
    raw: RawPrimary, before_raw: Place, ends: str
) -> None:
    gc.collect()
    gc.disable()
    try:
        client = before_raw.knock(PLAIN)
        served = raw.accept()
        exactly(served, len(PLAIN))
        known = [weakref.ref(each) for each in forwarded(before_raw).open]
        assert len(known) == 1
        match ends:
            case "client":
                reset(client)
            case "primary":
                reset(served)
            case "half":
                client.shutdown(socket.SHUT_WR)
                assert is_over(served)
        client.close()
        served.close()
        eventually(lambda: known[0]() is None)
    finally:
        gc.enable()
    assert not forwarded(before_raw).open


def test_a_peer_whose_machine_is_gone_is_noticed_on_both_sides(second: Place) -> None:
    async def idle_times() -> list[int]:
        [both] = forwarded(second).open
        sockets = [side._transport.get_extra_info("socket") for side in (both._client, both._primary)]  # type: ignore[union-attr]
        return [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) for each in sockets]

    with second.client():
        assert second.run(idle_times) == [SILENT_S, SILENT_S]
    ends(second)


def test_a_replica_without_the_secret_of_its_home_fetches_it(first: Place, second: Place) -> None:
    state, fetched = MemoryState(), []

    def fetch() -> None:
        fetched.append(state)
        state.put("home", "secret", SECRET)

    forwarded(second)._secret = HomeSecret(state, fetch=fetch)
    for _ in range(2):
        with second.client():
            assert len(first.peers) == 1
        ends(second)
    assert len(fetched) == 1


def test_a_replica_that_cannot_have_the_secret_says_so(second: Place) -> None:
    forwarded(second)._secret = HomeSecret(MemoryState(), fetch=lambda: None)
    fault = refusal(second.url())
    assert fault.condition == conditions.CONNECTION_FORCED
    assert "has not received the secret of its home yet" in fault.description
