"""Requests whose head is known are those that the parser would have read: the same bytes, both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.loop.deadline import Deadline
from headwater.http import Application, Receive, Scope, Send
from headwater.http.asgi import MEMORY, WHOLE
from headwater.server.httpd import connection as connection_module
from headwater.server.httpd.admission import Admission
from headwater.server.httpd.connection import KEEP_ALIVE_S, HttpConnection
from headwater.server.httpd.heads import HEADS_KEPT, WHOLE_BYTES_MAX, Head, whole_head
from headwater.server.httpd.server_state import Date, ServerState
from tests.every import every

PLAIN = [
    b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nauthorization: Bearer y\r\n\r\n",
    b"POST /a%2Fb HTTP/1.1\r\nhost: x\r\ncontent-length: 12\r\ncontent-type: application/json\r\n\r\n",
    b"DELETE /a HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
    b"GET http://x/a HTTP/1.1\r\nhost: y\r\n\r\n",
]
OTHER = [
    b"GET /a HTTP/1.0\r\nhost: x\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: x\r\nproxy-connection: close\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3, 3\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: +3\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 0x3\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n",
    b"GET /a HTTP/1.1\nhost: x\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: x\nconnection: close\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: x\r\n folded: y\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost : x\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: x\0y\r\n\r\n",
    b"GET /a\r\n\r\n",
    b"GET /\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\r\nGET /a HTTP/1.1\r\nhost: x\r\n\r\nGET /b HTTP/1.1\r\nhost: x\r\n\r\n",
    b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("data", PLAIN)
def test_plain_heads_are_known(data: bytes) -> None:
    head = whole_head(data)
    assert head is not None and whole_head(data) is head
    assert head.scope["path"] in ("/a", "/a/b") and head.keeps_alive and not head.expects_continue


@every("data", OTHER)
def test_any_other_is_left_to_the_parser_of_its_connection(data: bytes) -> None:
    assert whole_head(data) is None


def test_what_is_remembered_is_bounded() -> None:
    assert whole_head.cache_info().maxsize == HEADS_KEPT
    long = b"GET /a HTTP/1.1\r\nhost: x\r\nlong: %b\r\n\r\n" % (b"y" * WHOLE_BYTES_MAX)
    before = whole_head.cache_info().currsize
    assert len(asked([long * 2])[0]) == 2
    assert whole_head.cache_info().currsize == before


def test_the_host_of_a_target_counts() -> None:
    head = whole_head(PLAIN[-1])
    assert head is not None and head.scope["headers"] == [(b"host", b"x")]


class NoDate(Date):
    """A field that is missing."""

    __slots__ = ()

    def renew(self) -> None:
        """There is nothing to say."""


class Undated(ServerState):
    """One whose answers are the same at any time."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.date = NoDate()


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written, self.is_closed = b"", False
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = write_eof = close

    def can_write_eof(self) -> bool:
        return True

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        """Nobody reads: what is given is given."""

    resume_reading = pause_reading


def asked(
    pieces: list[bytes],
    application: Application | None = None,
) -> tuple[list[Any], bytes, bool]:
    """What an application is asked by what comes in these pieces, what is answered, and whether the end is closed."""
    requests: list[Any] = []

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", scope["type"] == "http"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        requests.append(({**scope, "asgi": None, "state": None, MEMORY: None}, body))
        answer = b"%d" % len(requests)
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]}
        )
        await send({"type": "http.response.body", "body": answer})

    async def run() -> Wire:
        connection, wire = HttpConnection(Undated(application or counting, Admission(1))), Wire()
        connection.connection_made(wire)  # type: ignore[arg-type]
        for piece in pieces:
            if not wire.is_closed:
                connection.data_received(piece)
            await _settled(connection)
        (wire.protocol or connection).connection_lost(None)
        await _settled(connection)
        return wire

    wire = asyncio.run(run())
    return requests, wire.written, wire.is_closed


async def _settled(connection: HttpConnection) -> None:
    for _ in range(80):
        await asyncio.sleep(0)


LINES = [
    b"GET /a HTTP/1.1", b"POST /a HTTP/1.1", b"HEAD /a?b HTTP/1.1", b"GET http://y/a HTTP/1.1", b"POST /a HTTP/1.0",
    b"GET /a", b"POST /a HTTP/1.1 ", b"OPTIONS * HTTP/1.1", b"get /a HTTP/1.1", b"CONNECT x:1 HTTP/1.1",
]  # fmt: skip
FIELDS = [
    b"host: x",
    b"Host: y",
    b"content-length: 5",
    b"Content-Length: 0",
    b"content-length: 5 ",
    b"content-length: -1",
    b"content-length: 05",
    b"content-length: 5, 5",
    b"content-length:",
    b"transfer-encoding: chunked",
    b"x: y",
    b" x: y",
    b"transfer-encoding: identity",
    b"Transfer-Encoding : chunked",
    b"connection: close",
    b"connection: keep-alive",
    b"proxy-connection: close",
    b"connection: x, close",
    b"upgrade: h2c",
    b"connection: upgrade",
    b"expect: 100-continue",
    b"te: trailers",
    b"x",
    b": x",
    b"cookie: a=b",
    b"trailer: x",
    b"x: \x00",
    b"x: \xff",
]
BODIES = [
    b"",
    b"hello",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5\r\nhello\r\n0\r\nhost: z\r\n\r\n",
    b"hell",
    b"\r\n",
]
ENDS = [b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"]


@st.composite
def one_request(draw: st.DrawFn) -> bytes:
    """A request, or something like one."""
    lines = [draw(st.sampled_from(LINES)), *draw(st.lists(st.sampled_from(FIELDS), max_size=4)), b""]
    return b"".join(line + draw(st.sampled_from(ENDS)) for line in lines) + draw(st.sampled_from(BODIES))


@st.composite
def plain_request(draw: st.DrawFn) -> bytes:
    """One that is well-formed."""
    body = draw(st.sampled_from([b"", b"hello", b"0\r\n\r\n", b"GET /hidden HTTP/1.1\r\n\r\n"]))
    length = b"content-length: %d\r\n" % len(body) if body or draw(st.booleans()) else b""
    return b"POST /%b HTTP/1.1\r\nhost: x\r\n%b\r\n%b" % (draw(st.sampled_from([b"a", b"b"])), length, body)


def by_the_parser_alone(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(connection_module, "whole_head", _none_is_known)
        return ask()


def _none_is_known(_: bytes) -> Head | None:
    return None


@given(requests=st.lists(one_request() | plain_request(), min_size=1, max_size=4), cut=st.integers(0, 200))
def test_both_ways_understand_the_same(requests: list[bytes], cut: int) -> None:
    data = b"".join(requests)
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = by_the_parser_alone(monkeypatch, lambda: asked([data]))
    assert asked([data]) == expected
    assert asked([data[:cut], data[cut:]] if 0 < cut < len(data) else [data]) == expected


@given(requests=st.lists(plain_request(), min_size=1, max_size=6))
def test_requests_that_are_well_formed_are_all_asked(requests: list[bytes]) -> None:
    assert len(asked(requests)[0]) == len(asked([b"".join(requests)])[0]) == len(requests)


def test_fields_behind_a_body_are_nobodys() -> None:
    data = b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nauthorization: y\r\n\r\n"
    ((scope, body),), _, _ = asked([data])
    assert body == b"a" and [name for name, _ in scope["headers"]] == [b"host", b"transfer-encoding"]


@pytest.mark.parametrize("before", [b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b""])
def test_a_connect_is_answered_as_any_other_request_behind_those_before_it_and_is_the_last(before: bytes) -> None:
    connect = b"CONNECT /b HTTP/1.1\r\nhost: x\r\n\r\n"
    requests, written, is_closed = asked([before + connect + b"GET /tunnelled HTTP/1.1\r\nhost: x\r\n\r\n"])
    assert [scope["path"] for scope, _ in requests] == (["/a", "/b"] if before else ["/b"])
    assert written.count(b"HTTP/1.1 200 ") == len(requests) and b"connection: close" in written and is_closed


ANSWERED_SOME = b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"


@pytest.mark.parametrize("begin", [b"0\r\nx: ", b"0\r\n", b"5;x=", b"0"], ids=["value", "name", "extension", "size"])
def test_what_comes_without_end_beside_a_body_is_refused(begin: bytes) -> None:
    data = ANSWERED_SOME + begin + b"0" * 3 * connection_module.HEAD_BYTES_MAX
    pieces = [
        data[at : at + connection_module.PIECE_BYTES] for at in range(0, len(data), connection_module.PIECE_BYTES)
    ]
    requests, written, is_closed = asked(pieces)
    assert not requests and written.startswith(b"HTTP/1.1 431 ") and is_closed


def test_an_answer_without_length_ends_with_its_connection_where_chunks_are_not_known() -> None:
    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello ", "more_body": True})
        await send({"type": "http.response.body", "body": b"world"})

    _, written, is_closed = asked([b"GET /a HTTP/1.0\r\nhost: x\r\n\r\n"], streaming)
    assert written == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello world" and is_closed


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_a_whole_answer_in_one_message_is_the_same_as_in_two(method: bytes) -> None:
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope[WHOLE]
        await send({**start, "body": b"some"})

    async def halves(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start)
        await send({"type": "http.response.body", "body": b"some"})

    data = [method + b" /a HTTP/1.1\r\nhost: x\r\n\r\n"] * 2
    _, written, is_closed = asked(data, whole)
    assert (written, is_closed) == asked(data, halves)[1:]
    assert written.count(b"some") == (2 if method == b"GET" else 0) and not is_closed


async def at_once(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuses without a look at the body."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def test_a_client_that_was_not_told_to_go_on_does_not_have_its_next_request_taken_for_the_body() -> None:
    head = b"POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n"
    _, written, is_closed = asked([head, b"GET /b HTTP/1.1\r\nhost: x\r\n\r\n"], at_once)
    assert written.count(b"HTTP/1.1 ") == 1 and b"connection: close" in written and is_closed
    _, written, is_closed = asked([head + b"body", b"GET /b HTTP/1.1\r\nhost: x\r\n\r\n"], at_once)
    assert written.count(b"HTTP/1.1 401 ") == 2 and not is_closed


@pytest.mark.parametrize(("version", "told"), [(b"1.1", 1), (b"1.0", 0)])
def test_only_a_client_that_knows_interim_answers_is_told_to_go_on(version: bytes, told: int) -> None:
    head = b"POST /a HTTP/%b\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n" % version
    requests, written, _ = asked([head, b"body"])
    assert len(requests) == 1 and written.count(b" 100 Continue\r\n") == told


def test_a_connection_whose_answer_came_before_the_end_of_the_body_is_idle_from_that_end_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Deadline, "set", lambda _, seconds: waits.append(seconds))
    asked([b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nab", b"cd"], at_once)
    assert connection_module.BODY_PAUSE_S in waits
    assert waits[-1] == KEEP_ALIVE_S
