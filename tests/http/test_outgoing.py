"""Calls to others: what is sent, where to, on which connection, and what ends one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.http.outgoing import Caller, Names, Reply, Sockets, Unanswered, connection, lines_of, target_of
from tests.amqp.certificates import Authority
from tests.every import every

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
PATIENCE_S = 20
Serve = Callable[[int, int, asyncio.StreamWriter], Awaitable[None]]
"""Answers a request: which connection it is of, which request of that one, and where the answer goes."""


class Peer:
    """Who is called."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.heads: list[bytes] = []
        self.ended = asyncio.Event()
        """A connection has ended."""

    @contextlib.asynccontextmanager
    async def serving(self, serve: Serve, listener: socket.socket | None = None, **options: Any) -> AsyncIterator[Peer]:
        tasks: set[Any] = set()

        async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.current_task())
            which, request = self.connections, 0
            self.connections += 1
            try:
                while not writer.is_closing():
                    self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                    await serve(which, request, writer)
                    request += 1
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # it was closed, or the test is over
            finally:
                writer.close()
                self.ended.set()

        server = await asyncio.start_server(peer, sock=listener or socket.create_server(("127.0.0.1", 0)), **options)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # the loop closes what they had


def at_one_port(*hosts: str) -> list[socket.socket]:
    """Listening sockets with one port at all these hosts: what is free at one may be somebody's at another."""
    for _ in range(100):
        first = socket.create_server((hosts[0], 0), family=socket.AF_INET6 if ":" in hosts[0] else socket.AF_INET)
        try:
            return [first, *(socket.create_server((host, first.getsockname()[1])) for host in hosts[1:])]
        except OSError:
            first.close()
    raise AssertionError(f"no port of 100 was free at each of {', '.join(hosts)}")


async def obliging(which: int, request: int, writer: asyncio.StreamWriter) -> None:
    writer.write(NO_CONTENT)


def to(*addresses: str) -> Callable[[str], Awaitable[Sequence[str]]]:
    async def resolve(name: str) -> Sequence[str]:
        return addresses

    return resolve


@contextlib.asynccontextmanager
async def calling(*addresses: str) -> AsyncIterator[Callable[..., Awaitable[Reply]]]:
    """A function that GETs, by a caller for whom every name has these addresses."""
    caller = Caller(Sockets(8), to(*addresses))

    async def get(uri: str, timeout_s: float = PATIENCE_S, body_bytes_max: int = 1000) -> Reply:
        target = target_of(uri)
        return await caller.call(target, target.head(b"GET", b"", None), timeout_s, body_bytes_max, wants_body=True)

    try:
        yield get
    finally:
        await caller.close()


def test_a_connection_is_made_to_the_address_that_was_resolved_and_says_the_name() -> None:
    async def scenario() -> None:
        async with Peer().serving(obliging) as peer, calling("127.0.0.1") as get:
            for _ in range(3):
                assert (await get(f"http://no-such-name.invalid:{peer.port}/a?b=c")).status == 204
            start = b"GET /a?b=c HTTP/1.1\r\nHost: no-such-name.invalid:%d\r\nUser-Agent: headwater\r\n\r\n" % peer.port
            assert (peer.heads, peer.connections) == ([start] * 3, 1)

    asyncio.run(scenario())


def test_addresses_are_tried_in_order_until_one_takes_the_connection() -> None:
    async def scenario() -> None:
        async with Peer().serving(obliging) as peer:
            async with calling("127.0.0.3", "127.0.0.2", "127.0.0.1") as get:
                assert (await get(f"http://x.invalid:{peer.port}/")).status == 204
            async with calling("127.0.0.3", "127.0.0.2") as get:
                with pytest.raises(ConnectionRefusedError):
                    await get(f"http://x.invalid:{peer.port}/")
            async with calling() as get:
                with pytest.raises(OSError, match="no address"):
                    await get(f"http://x.invalid:{peer.port}/")

    asyncio.run(scenario())


def test_an_address_is_called_as_it_stands() -> None:
    async def scenario() -> None:
        async with Peer().serving(obliging, at_one_port("::1")[0]) as peer, calling("127.0.0.9") as get:
            assert (await get(f"http://[::1]:{peer.port}/")).status == 204
            assert b"\r\nHost: [::1]:%d\r\n" % peer.port in peer.heads[0]

    asyncio.run(scenario())


def test_tls_is_verified_with_the_name_of_the_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, stranger = Authority(tmp_path, "authority"), Authority(tmp_path, "stranger")

    def served(by: Authority, name: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*by.issue(name, f"DNS:{name}"))
        return context

    async def outcome(context: ssl.SSLContext, uri: str) -> int | str:
        async with Peer().serving(obliging, ssl=context) as peer, calling("127.0.0.1") as get:
            try:
                first = await get(uri.format(peer.port))
                assert (await get(uri.format(peer.port))).status == first.status and peer.connections == 1
                return first.status
            except ssl.SSLCertVerificationError as error:
                return error.verify_message

    async def scenario() -> None:
        hook = served(authority, "hook.example")
        assert await outcome(hook, "https://hook.example:{}/") == 204
        assert await outcome(hook, "https://hook.example.:{}/") == 204
        assert "Hostname mismatch" in str(await outcome(hook, "https://other.example:{}/"))
        assert "IP address mismatch" in str(await outcome(hook, "https://127.0.0.1:{}/"))
        assert "local issuer" in str(await outcome(served(stranger, "hook.example"), "https://hook.example:{}/"))

    monkeypatch.setenv("SSL_CERT_FILE", str(authority.own.file))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "nowhere"))
    asyncio.run(scenario())


def test_an_address_that_says_nothing_leaves_the_next_one_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("hook.example", "DNS:hook.example"))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.own.file))

    async def scenario() -> None:
        answering, silent = at_one_port("127.0.0.1", "127.0.0.2")
        async with (
            Peer().serving(obliging, answering, ssl=context) as peer,
            Peer().serving(obliging, silent),
            calling("127.0.0.2", "127.0.0.1") as get,
        ):
            assert (await get(f"https://hook.example:{peer.port}/", timeout_s=2.0)).status == 204

    asyncio.run(scenario())


def test_time_counts_from_connecting_on(tmp_path: Path) -> None:
    async def silent(which: int, request: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(PATIENCE_S)

    async def scenario() -> None:
        async with Peer().serving(silent) as peer, calling() as get:
            for uri in (f"http://127.0.0.1:{peer.port}/", f"https://127.0.0.1:{peer.port}/"):
                with pytest.raises(TimeoutError):
                    await get(uri, timeout_s=0.1)

    asyncio.run(scenario())


def test_a_call_is_repeated_once_where_a_kept_connection_ends_without_an_answer() -> None:
    async def once_each(which: int, request: int, writer: asyncio.StreamWriter) -> None:
        if request:
            writer.transport.abort()
        else:
            writer.write(NO_CONTENT)

    async def never_again(which: int, request: int, writer: asyncio.StreamWriter) -> None:
        if which or request:
            writer.transport.abort()
        else:
            writer.write(NO_CONTENT)

    async def begins(which: int, request: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 2" if request else NO_CONTENT)
        if request:
            writer.close()

    async def scenario() -> None:
        async with Peer().serving(once_each) as peer, calling() as get:
            for _ in range(3):
                assert (await get(f"http://127.0.0.1:{peer.port}/")).status == 204
            assert (len(peer.heads), peer.connections) == (5, 3)
        async with Peer().serving(never_again) as peer, calling() as get:
            await get(f"http://127.0.0.1:{peer.port}/")
            with pytest.raises(Unanswered):
                await get(f"http://127.0.0.1:{peer.port}/")
            assert len(peer.heads) == 3
        async with Peer().serving(begins) as peer, calling() as get:
            await get(f"http://127.0.0.1:{peer.port}/")
            with pytest.raises(ConnectionError, match="during the answer"):
                await get(f"http://127.0.0.1:{peer.port}/")
            assert len(peer.heads) == 2

    asyncio.run(scenario())


@every(
    ("answer", "status", "body", "is_kept"),
    [
        (b"HTTP/1.1 204 \r\nConnection: keep-alive\r\n\r\n", 204, b"", True),
        (b"HTTP/1.1 204 \r\ncontent-length: 3\r\n\r\n", 204, b"", True),
        (b"HTTP/1.1 204 \r\nconnection: close\r\n\r\n", 204, b"", False),
        (b"HTTP/1.1 304 \r\ncontent-length: 3\r\n\r\n", 304, b"", True),
        (b"HTTP/1.1 307 \r\nlocation: /\r\ncontent-length: 0\r\n\r\n", 307, b"", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok", True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, b"ok", True),
        (b"HTTP/1.1 200 OK\r\n\r\nok", 200, b"ok", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok", False),
        (b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok", True),
    ],
)
@every("is_whole", [True, False])
def test_an_answer_is_read_to_its_end(answer: bytes, status: int, body: bytes, is_kept: bool, is_whole: bool) -> None:
    async def serve(which: int, request: int, writer: asyncio.StreamWriter) -> None:
        for piece in [answer] if is_whole else [answer[at : at + 1] for at in range(len(answer))]:
            writer.write(piece)
            await asyncio.sleep(0)
        if not is_kept:
            writer.close()

    async def scenario() -> None:
        async with Peer().serving(serve) as peer, calling() as get:
            for _ in range(2):
                reply = await get(f"http://127.0.0.1:{peer.port}/")
                assert (reply.status, reply.body, reply.is_cut) == (status, body, False)
            assert peer.connections == (1 if is_kept else 2)

    asyncio.run(scenario())


def test_a_connection_with_more_on_it_than_its_answer_is_not_kept() -> None:
    async def serve(which: int, request: int, writer: asyncio.StreamWriter) -> None:
        writer.write(NO_CONTENT + b"more")

    async def scenario() -> None:
        async with Peer().serving(serve) as peer, calling() as get:
            for _ in range(2):
                assert (await get(f"http://127.0.0.1:{peer.port}/")).status == 204
            assert peer.connections == 2

    asyncio.run(scenario())


def test_what_waits_on_a_kept_connection_is_not_taken_for_an_answer() -> None:
    async def serve(which: int, request: int, writer: asyncio.StreamWriter) -> None:
        writer.write(NO_CONTENT)
        writers.append(writer)

    async def scenario() -> None:
        async with Peer().serving(serve) as peer, calling() as get:
            await get(f"http://127.0.0.1:{peer.port}/")
            writers[0].write(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")  # the loop has not seen it
            assert (await get(f"http://127.0.0.1:{peer.port}/")).status == 204
            assert (len(peer.heads), peer.connections) == (2, 2)

    writers: list[asyncio.StreamWriter] = []
    asyncio.run(scenario())


@pytest.mark.parametrize(
    "head", [b"content-length: 2000\r\n\r\n", b"\r\n", b"transfer-encoding: chunked\r\n\r\n7d0\r\n"]
)
def test_a_body_is_read_up_to_its_bound(head: bytes) -> None:
    async def serve(which: int, request: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + bytes(2000))

    async def scenario() -> None:
        async with Peer().serving(serve) as peer, calling() as get:
            for _ in range(2):
                reply = await get(f"http://127.0.0.1:{peer.port}/")
                assert (reply.status, reply.is_cut) == (200, True)
            assert peer.connections == 2

    asyncio.run(scenario())


def test_a_kept_connection_ends_when_it_was_not_used_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "KEPT_S", 0.02)

    async def scenario() -> None:
        async with Peer().serving(obliging) as peer, calling() as get:
            await get(f"http://127.0.0.1:{peer.port}/")
            async with asyncio.timeout(PATIENCE_S):
                await peer.ended.wait()

    asyncio.run(scenario())


def test_a_call_on_a_kept_connection_waits_for_no_socket_and_others_wait_for_theirs() -> None:
    async def silent(which: int, request: int, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await free.wait()
        writer.write(NO_CONTENT)

    async def scenario() -> None:
        caller = Caller(Sockets(2))  # one for calls, one that is kept

        async def get(port: int) -> int:
            target = target_of(f"http://127.0.0.1:{port}/")
            return (await caller.call(target, target.head(b"GET", b"", None), PATIENCE_S, 1000)).status

        async with Peer().serving(obliging) as kept, Peer().serving(silent) as slow, Peer().serving(obliging) as new:
            assert await get(kept.port) == 204
            held = asyncio.create_task(get(slow.port))
            await asked.wait()
            waiting = asyncio.create_task(get(new.port))
            assert await get(kept.port) == 204
            assert (kept.connections, new.connections, waiting.done()) == (1, 0, False)
            free.set()
            assert await asyncio.gather(held, waiting) == [204, 204]
            await caller.close()

    asked, free = asyncio.Event(), asyncio.Event()
    asyncio.run(scenario())


def test_names_are_looked_up_once_for_all_and_remembered_and_failures_are_not() -> None:
    asked: list[str] = []

    async def resolve(name: str) -> Sequence[str]:
        asked.append(name)
        await asyncio.sleep(0)
        if len(asked) == 1:
            raise OSError("no such name")
        return [f"127.0.0.{len(asked)}"]

    async def scenario() -> None:
        names = Names(resolve)
        failed = await asyncio.gather(*(names.addresses("a") for _ in range(3)), return_exceptions=True)
        assert len(asked) == 1 and all(isinstance(error, OSError) for error in failed)
        assert await asyncio.gather(*(names.addresses("a") for _ in range(3))) == [["127.0.0.2"]] * 3
        assert await names.addresses("a") == ["127.0.0.2"] and len(asked) == 2
        names.forget()
        assert await names.addresses("a") == ["127.0.0.3"]
        await names.close()

    asyncio.run(scenario())


def test_who_gives_up_does_not_end_the_look_up_of_others() -> None:
    async def scenario() -> None:
        found = asyncio.Event()

        async def resolve(name: str) -> Sequence[str]:
            await found.wait()
            return ["127.0.0.1"]

        names = Names(resolve)
        hasty, patient = (asyncio.ensure_future(names.addresses("a")) for _ in range(2))
        await asyncio.sleep(0)
        hasty.cancel()
        await asyncio.gather(hasty, return_exceptions=True)
        found.set()
        assert await patient == ["127.0.0.1"]
        await names.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("uri", "line", "authority"),
    [
        ("http://h.example", "/", "h.example"),
        ("http://h.example:80/a b?c=d e#f", "/a%20b?c=d+e", "h.example"),
        ("https://h.example:80/%7Ea/%2F?x=%41+b", "/~a/%2F?x=A+b", "h.example:80"),
        ("http://bücher.example/é?ü=ß", "/%C3%A9?%C3%BC=%C3%9F", "xn--bcher-kva.example"),
        ("http://h/a\r\nX: y", "/aX:%20y", "h"),
        ("http://[::1]:9/", "/", "[::1]:9"),
    ],
)
def test_a_uri_is_a_target(uri: str, line: str, authority: str) -> None:
    assert target_of(uri).start.decode() == f" {line} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: headwater\r\n"


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://h/",
        "http:///x",
        "h:80/x",
        "http://user@h/",
        "http://:secret@h/",
        "http://h x/",
        "http://h\x00/",
        "/secret",
    ],
)
def test_what_is_no_target_is_refused_and_not_told(uri: str) -> None:
    with pytest.raises(ValueError) as refused:
        target_of(uri)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "fields", [{"a": "x\r\ny: z"}, {"a": "x\n"}, {"a": "\x00"}, {"a\r\nb": "x"}, {"a b": "x"}, {"": "x"}, {"a:": ""}]
)
def test_no_field_can_end_its_line(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="contains an invalid character"):
        lines_of(fields)
    assert lines_of({"a": "b c\t", "ce-d": "é"}) == "a: b c\t\r\nce-d: é\r\n".encode()
