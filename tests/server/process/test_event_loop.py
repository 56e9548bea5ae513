"""Who knocks is let in soon, however many others knock."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.core.loop.reception import LIMIT, Reception
from headwater.server.process import event_loop, pending_connections
from headwater.server.process.event_loop import OPENED_EACH_S, OPENED_MAX, BoundListener, EventLoop
from headwater.server.process.pending_connections import PendingConnections

from ...amqp.certificates import Authority
from ...waiting import WAIT_S_MAX


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it on the server's loop."""
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(scenario())


class Greeting(asyncio.Protocol):
    """Says where the peer comes from."""

    def connection_made(self, transport: Any) -> None:
        transport.write(transport.get_extra_info("peername")[0].encode())
        transport.close()


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        yield bound


def knock(bound: socket.socket, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(bound.getsockname(), WAIT_S_MAX, source_address=(source, 0))


async def answer(peer: socket.socket) -> bytes:
    with peer:
        return await asyncio.to_thread(peer.recv, 100)


async def listening(bound: socket.socket) -> BoundListener:
    found = await asyncio.get_running_loop().create_server(Greeting, sock=bound, backlog=1000)
    assert isinstance(found, BoundListener)
    return found


def test_connections_are_opened_and_closing_leaves_them(bound: socket.socket) -> None:
    async def scenario() -> None:
        listener = await listening(bound)
        peers = [knock(bound) for _ in range(50)]
        assert [await answer(peer) for peer in peers] == [b"127.0.0.1"] * 50
        address = bound.getsockname()
        listener.close()
        listener.close()
        assert isinstance(listener, asyncio.AbstractServer)
        assert not listener.is_serving()
        await listener.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)

    run(scenario)


def test_it_serves_until_it_is_cancelled_where_that_is_asked_for(bound: socket.socket) -> None:
    async def scenario() -> None:
        listener = await listening(bound)
        await listener.start_serving()
        serving = asyncio.create_task(listener.serve_forever())
        assert await answer(knock(bound)) == b"127.0.0.1"
        serving.cancel()
        await asyncio.wait((serving,))
        assert serving.cancelled()
        assert not listener.is_serving()

    run(scenario)


def test_without_a_socket_it_is_the_usual_server() -> None:
    async def scenario() -> None:
        server = await asyncio.get_running_loop().create_server(Greeting, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname(), WAIT_S_MAX) as peer:
            assert await asyncio.to_thread(peer.recv, 100) == b"127.0.0.1"
        server.close()

    run(scenario)


def test_a_place_that_knocks_once_does_not_wait_behind_one_that_knocks_often(
    bound: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "ACCEPTING_S", WAIT_S_MAX)  # else a slow machine accepts a few, and opens one
    order: list[str] = []

    class Noting(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            order.append(transport.get_extra_info("peername")[0])

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        noisy = [knock(bound, "127.0.0.2") for _ in range(40)]
        quiet = knock(bound, "127.0.0.3")
        listener = await loop.create_server(Noting, sock=bound, backlog=1000)
        while len(order) < 41:
            await asyncio.sleep(0.001)
        listener.close()
        for each in (*noisy, quiet):
            each.close()

    run(scenario)
    assert order.index("127.0.0.3") < 2 * OPENED_MAX


def test_a_turn_opens_so_many_at_most(bound: socket.socket) -> None:
    opened = [0]

    class Counting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            opened[-1] += 1

    async def scenario() -> None:
        peers = [knock(bound) for _ in range(30)]
        listener = await asyncio.get_running_loop().create_server(Counting, sock=bound, backlog=1000)
        while sum(opened) < 30:
            opened.append(0)
            await asyncio.sleep(0)
        listener.close()
        for each in peers:
            each.close()

    run(scenario)
    assert max(opened) <= OPENED_MAX


def test_the_longer_a_turn_takes_the_more_are_opened_in_it(
    bound: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "ACCEPTING_S", WAIT_S_MAX)
    clock = 0.0

    def busy() -> float:
        nonlocal clock
        clock += 2.5 * OPENED_EACH_S  # between any two looks at it
        return clock

    opened = [0]

    class Counting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            opened[-1] += 1

    async def scenario() -> None:
        peers = [knock(bound) for _ in range(30)]
        monkeypatch.setattr(event_loop, "time", SimpleNamespace(perf_counter=busy))
        listener = await asyncio.get_running_loop().create_server(Counting, sock=bound, backlog=1000)
        while sum(opened) < 30:
            opened.append(0)
            await asyncio.sleep(0)
        listener.close()
        for each in peers:
            each.close()

    run(scenario)
    assert max(opened) == 3


class Limited(Reception):
    """Has room for some, and notes who is refused."""

    def __init__(self, room: int) -> None:
        super().__init__(Staying)
        self.left, self.refused = room, list[tuple[str, str]]()

    def __call__(self) -> asyncio.BaseProtocol:
        self.left -= 1
        return super().__call__()

    @property
    def room(self) -> int:
        return self.left

    def takes(self, place: str, opening: int) -> bool:
        return self.left > opening

    def refuse(self, place: str, reason: str) -> bytes:
        self.refused.append((place, reason))
        return b"full"


class Staying(Greeting):
    """Does not end the connection."""

    def connection_made(self, transport: Any) -> None:
        transport.write(transport.get_extra_info("peername")[0].encode())


def test_a_burst_for_which_there_is_room_is_opened_to_the_last(
    bound: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "WAITING_MIN", 10)

    async def scenario() -> None:
        reception = Limited(100)
        peers = [knock(bound, "127.0.0.2") for _ in range(100)]
        listener = await asyncio.get_running_loop().create_server(reception, sock=bound, backlog=1000)
        assert [await asyncio.to_thread(peer.recv, 100) for peer in peers] == [b"127.0.0.2"] * 100
        assert reception.refused == []
        listener.close()
        for each in peers:
            each.close()

    run(scenario)


@pytest.mark.parametrize("waiting_min", [10, 1000])
def test_those_for_whom_there_is_no_room_are_told_and_counted_and_a_quiet_place_is_heard(
    bound: socket.socket, monkeypatch: pytest.MonkeyPatch, waiting_min: int
) -> None:
    monkeypatch.setattr(event_loop, "WAITING_MIN", waiting_min)
    monkeypatch.setattr(event_loop, "ACCEPTING_S", WAIT_S_MAX)

    async def scenario() -> None:
        reception = Limited(20)
        noisy = [knock(bound, "127.0.0.2") for _ in range(60)]
        quiet = knock(bound, "127.0.0.3")
        for each in noisy:
            each.sendall(b"GET / HTTP/1.1\r\n" * 100)
        listener = await asyncio.get_running_loop().create_server(reception, sock=bound, backlog=1000)
        assert await asyncio.to_thread(quiet.recv, 100) == b"127.0.0.3"
        heard = [await asyncio.to_thread(peer.recv, 100) for peer in noisy]
        assert sorted(heard) == [b"127.0.0.2"] * 19 + [b"full"] * 41
        assert reception.refused == [("127.0.0.2", LIMIT)] * 41
        told = [peer for peer, said in zip(noisy, heard, strict=True) if said == b"full"]
        for peer in told:
            peer.sendall(b"more")  # which resets nothing
            assert await asyncio.to_thread(peer.recv, 100) == b""
        listener.close()
        for each in (*noisy, quiet):
            each.close()

    run(scenario)


def test_no_room_for_one_more_is_told_and_tried_again(
    bound: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_loop, "NO_ROOM_PAUSE_S", 0.01)

    class Full:
        """A socket that has no room at first."""

        def __init__(self, inner: socket.socket) -> None:
            self.inner, self.refusals = inner, 2

        def accept(self) -> Any:
            if self.refusals:
                self.refusals -= 1
                raise OSError(24, "Too many open files")
            return self.inner.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    async def scenario() -> None:
        listener = BoundListener(asyncio.get_running_loop(), Greeting, sock=Full(bound))  # type: ignore[arg-type]
        assert await answer(knock(bound)) == b"127.0.0.1"
        listener.close()

    run(scenario)
    assert caplog.text.count("Too many open files") == 2


def test_what_is_wrong_with_one_connection_keeps_nobody_waiting(
    bound: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    class Unlucky:
        """A socket whose first peer cannot be reached any more."""

        def __init__(self, inner: socket.socket) -> None:
            self.inner, self.errors = inner, [errno.EHOSTUNREACH, errno.ECONNABORTED, errno.EPERM]

        def accept(self) -> Any:
            if self.errors:
                raise OSError(self.errors.pop(), "wrong with this one")
            return self.inner.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    async def scenario() -> None:
        listener = BoundListener(asyncio.get_running_loop(), Greeting, sock=Unlucky(bound))  # type: ignore[arg-type]
        assert await answer(knock(bound)) == b"127.0.0.1"
        listener.close()

    run(scenario)
    assert not caplog.records


def test_peers_that_reset_before_they_are_opened_leave_nothing_behind(bound: socket.socket) -> None:
    async def scenario() -> None:
        for _ in range(20):
            peer = knock(bound)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        descriptors = len(os.listdir("/proc/self/fd"))
        listener = await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=bound, backlog=1000)
        peer = knock(bound)
        while len(os.listdir("/proc/self/fd")) > descriptors + 2:  # this one, on both sides
            await asyncio.sleep(0.001)
        listener.close()
        peer.close()

    run(scenario)


class Handshakes:
    """A listener that speaks TLS, and peers that do not begin with it."""

    def __init__(self, bound: socket.socket, path: Path) -> None:
        own = Authority(path, "authority").issue("server", "IP:127.0.0.1")
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(own.file, own.key)
        self.bound = bound

    async def listening(self) -> Any:
        return await asyncio.get_running_loop().create_server(Greeting, sock=self.bound, ssl=self._tls, backlog=1000)

    async def ends(self, *peers: socket.socket) -> None:
        """All of them are dropped."""
        for peer in peers:
            assert await asyncio.to_thread(_all_of, peer) == b""
            peer.close()


def test_closing_drops_handshakes(bound: socket.socket, tmp_path: Path) -> None:
    handshakes = Handshakes(bound, tmp_path)

    async def scenario() -> None:
        peers = [knock(bound) for _ in range(20)]
        listener = await handshakes.listening()
        await asyncio.sleep(0.01)
        listener.close()
        await listener.wait_closed()
        await handshakes.ends(*peers)

    run(scenario)


def test_of_too_many_handshakes_the_oldest_of_the_place_that_has_most_is_dropped(
    bound: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "OPENING_MAX", 10)
    monkeypatch.setattr(event_loop, "HANDSHAKE_S", 0.1)
    handshakes = Handshakes(bound, tmp_path)

    async def scenario() -> None:
        quiet = knock(bound, "127.0.0.3")
        listener = await handshakes.listening()
        noisy = [knock(bound, "127.0.0.2") for _ in range(40)]
        await handshakes.ends(*noisy[:31])
        for peer in (quiet, *noisy[31:]):
            peer.setblocking(False)
            with pytest.raises(BlockingIOError):
                peer.recv(1)
            peer.setblocking(True)
        listener.close()
        await handshakes.ends(quiet, *noisy[31:])

    run(scenario)


def test_handshakes_of_one_place_wait_for_each_other_and_for_no_other_place(
    bound: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "OPENING_OF_PLACE_MAX", 5)
    monkeypatch.setattr(event_loop, "HANDSHAKE_S", WAIT_S_MAX)
    authority = Authority(tmp_path, "authority")
    own = authority.issue("server", "IP:127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(own.file, own.key)

    async def greeted(peer: socket.socket) -> bytes:
        def greeting() -> bytes:
            with authority.context().wrap_socket(peer, server_hostname="127.0.0.1") as secured:
                return secured.recv(100)

        return await asyncio.to_thread(greeting)

    async def scenario() -> None:
        silent = [knock(bound, "127.0.0.2") for _ in range(5)]
        waiting = [knock(bound, "127.0.0.2") for _ in range(20)]
        quiet = knock(bound, "127.0.0.3")
        reception = Limited(100)
        listener = await asyncio.get_running_loop().create_server(reception, sock=bound, ssl=tls, backlog=1000)
        assert await greeted(quiet) == b"127.0.0.3"
        silent[0].close()
        assert await asyncio.gather(*map(greeted, waiting)) == [b"127.0.0.2"] * 20
        assert reception.refused == []
        monkeypatch.setattr(event_loop, "HANDSHAKE_S", 0.0)
        assert await greeted(knock(bound, "127.0.0.2")) == b"127.0.0.2"
        listener.close()
        for each in silent[1:]:
            each.close()

    run(scenario)


def test_tls_is_spoken_and_who_does_not_ends_nothing(bound: socket.socket, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.issue("server", "IP:127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(own.file, own.key)

    def greeting() -> bytes:
        with authority.context().wrap_socket(knock(bound), server_hostname="127.0.0.1") as peer:
            return peer.recv(100)

    async def scenario() -> None:
        listener = await asyncio.get_running_loop().create_server(
            Greeting, sock=bound, ssl=tls, ssl_handshake_timeout=5.0
        )
        with knock(bound) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            assert b"127.0.0.1" not in await asyncio.to_thread(_all_of, peer)
        assert await asyncio.to_thread(greeting) == b"127.0.0.1"
        listener.close()

    run(scenario)


def _all_of(peer: socket.socket) -> bytes:
    try:
        return b"".join(iter(lambda: peer.recv(1000), b""))
    except ConnectionResetError:
        return b""


def test_places_take_turns_and_of_many_that_wait_the_newest_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_connections, "MANY", 4)
    pending: PendingConnections[socket.socket] = PendingConnections()
    pairs = [socket.socketpair() for _ in range(7)]
    ends = [one for one, _ in pairs]
    for place, end in zip("aaaaabb", ends, strict=True):
        pending.add(place, end)
    assert len(pending) == 7
    assert pending.take_surplus() == ("a", ends[0])
    assert pending.take(lambda place: False) is None
    assert [ends.index(found[1]) for found in iter(pending.take, None)] == [4, 5, 1, 6, 2, 3]
    assert len(pending) == 0
    for pair in pairs:
        for end in pair:
            end.close()


class Noting(asyncio.Protocol):
    """Notes what it hears of its connection; `made` is called when that is made."""

    def __init__(self, made: Callable[[], None] = lambda: None) -> None:
        self.is_made, self.lost, self._made = False, asyncio.Event(), made

    def connection_made(self, transport: Any) -> None:
        self.is_made, self.transport = True, transport
        self._made()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@pytest.mark.parametrize("is_secured", [False, True])
def test_a_connection_that_is_made_while_its_listener_closes_stays_and_hears_of_its_end(
    bound: socket.socket, is_secured: bool, tmp_path: Path
) -> None:
    own = Authority(tmp_path, "authority").issue("server", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.file, own.key)

    async def scenario() -> None:
        protocol = Noting(lambda: listener.close())
        listener: BoundListener = await asyncio.get_running_loop().create_server(
            lambda: protocol, sock=bound, ssl=context if is_secured else None
        )
        client = None
        if is_secured:
            client = ssl.create_default_context()
            client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(*bound.getsockname(), ssl=client)
        writer.write(b"there")
        assert await reader.readexactly(5) == b"there"
        writer.close()
        await protocol.lost.wait()

    run(scenario)


def test_a_connection_that_is_not_made_when_its_listener_closes_is_dropped(bound: socket.socket) -> None:
    async def scenario() -> None:
        protocol = Noting()
        listener: BoundListener = await asyncio.get_running_loop().create_server(lambda: protocol, sock=bound)
        with knock(bound) as peer:
            while not listener._opening:
                await asyncio.sleep(0)
            listener.close()
            await listener.wait_closed()
            assert await asyncio.to_thread(peer.recv, 100) == b""
            assert not protocol.is_made

    run(scenario)
