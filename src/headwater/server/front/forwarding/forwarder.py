"""Forwards requests of a replica's clients to the primary: an ASGI application alongside the front ends.

Bodies and answers are streamed; a client or primary that does not read makes the other one wait. The outcomes of a
request:

| the connection ends | answer |
| --- | --- |
| before the head was sent, twice | 503: it was not sent and will not be |
| a reused one, before any answer to a GET, HEAD or OPTIONS | it is sent once more, on a new connection |
| before the answer to a request without side effects | 503 |
| before the answer to any other | 504 `outcome_unknown` |
| during the answer, or the WebSocket | it is interrupted there |

A request ends in the same way when its server is no longer the primary, even if the connection stays open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.utils import formatdate
from typing import Protocol

from ....core.errors import OutcomeUnknown
from ....core.loop.memory import Share
from ....homes.home_secret import NO_SECRET, HomeSecret
from ....http import Receive, Scope, Send
from ....http.asgi import MEMORY, WRITER, answer_websocket
from ....http.errors import CLOSE, BrokenOff, Unready
from ....http.problems import problem_of
from ..problems import answer_problem
from ..web_guard import looks
from .answer import ForwardedAnswer
from .connection import ClientLeft, HopConnection, HopLost, NearEnd
from .connections import HopConnections
from .fields import accepted_head, answer_fields, expects_continue, has_body, is_chunked, request_head

logger = logging.getLogger("headwater.server")

ROUTE = "forwarded"
"""The route of forwarded requests in metrics."""
ATTEMPTS = 2
"""The number of attempts to send a head."""
LOOK_S = 1.0
"""The interval between checks that running requests still go to the primary. Others end at the second check."""
REFUSAL_BYTES_MAX = 64 * 1024
"""The longest answer that refuses a WebSocket."""
STATE = "$state"
"""The subject of an unknown outcome, except for appends to a log."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_APPENDS = frozenset({"append", "events"})


class NotSent(Exception):
    """Not a single byte of a request was sent."""


@dataclass(slots=True)
class ForwardingCounts:
    """Counts since the start."""

    requests: int = 0
    websockets: int = 0
    not_sent: int = 0
    unknown: int = 0
    broken_off: int = 0


class _Call:
    """One request in progress."""

    __slots__ = ("answer", "connection", "is_deposed", "is_kept", "is_over", "is_sent", "is_stream", "url")

    def __init__(self, *, is_sent: bool) -> None:
        self.url = ""
        self.connection: HopConnection
        self.answer: ForwardedAnswer
        self.is_kept = False
        """Whether the connection carried a request before."""
        self.is_sent = is_sent
        """Whether the whole body was sent."""
        self.is_over = self.is_stream = self.is_deposed = False
        """Whether the client has got the whole answer; whether it lasts until a server stops; whether its server was
        not the primary at the last check.
        """


class Upgradable(Protocol):
    """A WebSocket request whose connection can become the end of a tunnel (scope key WRITER)."""

    def pass_through(self, answer: bytes, far: HopConnection) -> ClientEnd | None:
        """Send that answer, and pass bytes on from now on. Returns None if the client has disconnected."""


class ClientEnd(NearEnd, Protocol):
    """The client's end of a tunnel."""

    ended: asyncio.Event


class Forwarder:
    """Forwards requests and WebSockets on one event loop."""

    def __init__(self, primary: Callable[[], str | None], secret: HomeSecret) -> None:
        """`primary` returns the URL of the current primary; None if it is unknown, or is this server."""
        self._primary, self._secret = primary, secret
        self._connections = HopConnections()
        self._calls: set[_Call] = set()
        self._look: asyncio.TimerHandle | None = None
        self._is_retired = False
        self.counts = ForwardingCounts()

    @property
    def running(self) -> int:
        """Requests and WebSockets in progress."""
        return len(self._calls)

    def takes(self, scope: Scope) -> bool:
        """Whether a request can be forwarded.

        A request with a client certificate cannot, because the primary cannot verify it. Neither can one whose end
        HTTP/1.0 could not show."""
        if "tls" in (scope.get("extensions") or {}) or scope.get("method") == "CONNECT":
            return False
        if scope["http_version"] == "1.0" and is_chunked(scope):
            return False
        return not self._is_retired and self._primary() is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request or WebSocket."""
        scope["route"] = ROUTE
        forward = self._forward_request
        if scope["type"] == "websocket":
            forward = self._forward_websocket
            self.counts.websockets += 1
        else:
            self.counts.requests += 1
        try:
            await forward(scope, receive, send)
        except ClientLeft:
            return
        except NotSent as error:
            self.counts.not_sent += 1
            detail = f"the request was not sent to the primary ({error}); try again"
            await _refuse(scope, receive, send, Unready(detail))

    def retire(self) -> None:
        """This server becomes the primary: running requests end soon, unless the former primary ends them first."""
        self._is_retired = True
        self._connections.close_idle()

    def stop(self) -> None:
        """See FrontEnd. Streams and WebSockets end. Their clients reconnect to another server."""
        self._is_retired = True
        for call in [each for each in self._calls if each.is_stream]:
            call.connection.fail(HopLost("the server is stopping"))

    async def close(self) -> None:
        """See FrontEnd."""
        if self._look is not None:
            self._look.cancel()
        await self._connections.close()

    # requests

    async def _forward_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = _Call(is_sent=not has_body(scope))
        await self._send_head(call, scope)
        sending = asyncio.get_running_loop().create_task(_send_rest(call, scope, receive))
        try:
            await self._await_answer(call, scope)
            await self._pass_on(call, scope, send)
        except HopLost as error:
            await self._refuse_lost(scope, receive, send, error)
        finally:
            sending.cancel()
            self._end(call)

    async def _send_head(self, call: _Call, scope: Scope, *, is_new: bool = False) -> None:
        """Send the head of a request to the current primary. `is_new`: use a new connection. Raises NotSent."""
        why = "no primary is known"
        for _ in range(ATTEMPTS):
            secret, url = await self._secret.fetched(), self._primary()
            if secret is None:
                why = NO_SECRET
            if url is None or secret is None or self._is_retired:
                break
            connection = None if is_new else self._connections.kept(url)
            call.is_kept = connection is not None
            if connection is None:
                try:
                    connection = await self._connections.open(url)
                except (OSError, ValueError) as error:
                    why = f"{url}: {error or type(error).__name__}"
                    continue
            if connection.is_open:
                is_upgrade = scope["type"] == "websocket"
                method = "GET" if is_upgrade else scope["method"]
                call.answer = ForwardedAnswer(method, scope["http_version"], is_upgrade=is_upgrade)
                call.url, call.connection = url, connection
                connection.begin(request_head(scope, secret), call.answer)
                self._begin(call)
                return
            why = f"{url} closed the connection"
        raise NotSent(why)

    async def _await_answer(self, call: _Call, scope: Scope) -> None:
        """Wait for the head of the answer. Raises HopLost, ClientLeft, NotSent."""
        try:
            await call.connection.head()
        except HopLost:
            if not (call.is_kept and call.is_sent and scope["method"] in _SAFE and looks(scope)):
                raise
            self._end(call)  # the primary closed the idle connection in the meantime
            await self._send_head(call, scope, is_new=True)
            await call.connection.head()

    async def _pass_on(self, call: _Call, scope: Scope, send: Send) -> None:
        """Pass the answer on as it arrives. Raises BrokenOff, ClientLeft."""
        answer, share = call.answer, scope.get(MEMORY)
        fields = answer_fields(answer.status, answer.fields, call.url)
        if not call.is_sent:
            fields.append(CLOSE)  # the rest of the body is not needed
        call.is_stream = any(
            name == b"content-type" and value.startswith(b"text/event-stream") for name, value in fields
        )
        await send({"type": "http.response.start", "status": answer.status, "headers": fields})
        try:
            while not call.is_over:
                piece = await call.connection.read()
                call.is_over = not answer.has_more
                with _held(share, len(piece)):
                    await send({"type": "http.response.body", "body": piece, "more_body": not call.is_over})
        except HopLost as error:
            self.counts.broken_off += 1
            raise BrokenOff(f"the response of the primary was interrupted: {error}") from None

    async def _refuse_lost(self, scope: Scope, receive: Receive, send: Send, error: HopLost) -> None:
        """Refuse a request whose connection ended before the answer."""
        logger.info("%s %s: no response from the primary: %s", scope["method"], scope["path"], error)
        if looks(scope):
            await _refuse(scope, receive, send, Unready(f"the primary did not answer ({error}); try again"))
            return
        self.counts.unknown += 1
        await _refuse(scope, receive, send, OutcomeUnknown(_subject(scope["path"])))

    # WebSockets

    async def _forward_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = _Call(is_sent=True)
        await self._send_head(call, scope, is_new=True)
        leaving = asyncio.get_running_loop().create_task(_watch_client(call, receive))
        try:
            await call.connection.head()
            if call.answer.status != 101:
                await self._refuse_websocket(call, scope, send)
                return
            leaving.cancel()
            call.is_over = True
            await self._tunnel(call, scope)
        except HopLost as error:
            detail = f"the primary did not answer ({error}); try again"
            await _refuse(scope, receive, send, Unready(detail))
        finally:
            leaving.cancel()
            self._end(call)

    async def _refuse_websocket(self, call: _Call, scope: Scope, send: Send) -> None:
        """Pass on the answer with which the primary refuses a WebSocket. Raises HopLost, ClientLeft."""
        answer, body = call.answer, b""
        while answer.has_more and len(body) < REFUSAL_BYTES_MAX:
            body += await call.connection.read()
        fields = [
            each for each in answer_fields(answer.status, answer.fields, call.url) if each[0] != b"content-length"
        ]
        await answer_websocket(scope, send, answer.status, fields, body[:REFUSAL_BYTES_MAX])

    async def _tunnel(self, call: _Call, scope: Scope) -> None:
        """Pass bytes on in both directions, until one side ends."""
        head = accepted_head(call.answer.fields, formatdate(usegmt=True), call.url)
        client: Upgradable = scope[WRITER]
        end = client.pass_through(head, call.connection)
        if end is None:
            call.connection.close()
            return
        call.is_stream = True
        call.connection.lead_to(end)
        await end.ended.wait()

    # requests and WebSockets

    def _begin(self, call: _Call) -> None:
        self._calls.add(call)
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_at_calls)

    def _end(self, call: _Call) -> None:
        """End a request, and keep or close its connection. A tunnel closes its connections itself."""
        self._calls.discard(call)
        if call.answer.status == 101:
            return
        if call.is_over and call.is_sent:
            self._connections.keep(call.url, call.connection)
        else:
            call.connection.close()

    def _look_at_calls(self) -> None:
        self._look = None
        primary = self._primary()
        for call in list(self._calls):
            was_deposed = call.is_deposed
            call.is_deposed = self._is_retired or (primary is not None and primary != call.url)
            if call.is_deposed and was_deposed:
                call.connection.fail(HopLost(f"{call.url} is no longer the primary"))
        if self._calls:
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_at_calls)


async def _send_rest(call: _Call, scope: Scope, receive: Receive) -> None:
    """Send the body, and then watch for the client's disconnect."""
    try:
        if has_body(scope):
            if expects_continue(scope) and not await call.connection.is_asked_to_go_on():
                return
            if not await _send_body(call, scope, receive):
                call.connection.fail(ClientLeft("the client disconnected during its request"))
                return
        while (await receive())["type"] != "http.disconnect":
            pass
    except ConnectionError:  # waiting for the answer raises the same error
        return
    if not call.is_over:
        call.connection.fail(ClientLeft("the client disconnected before the response"))


async def _send_body(call: _Call, scope: Scope, receive: Receive) -> bool:
    """Stream the body. Returns False if the client disconnects before its end. Raises ConnectionError."""
    chunked, share, has_more = is_chunked(scope), scope.get(MEMORY), True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return False
        body, has_more = message.get("body", b""), message.get("more_body", False)
        with _held(share, len(body)):
            if chunked:
                body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if has_more else b"0\r\n\r\n")
            if body:
                await call.connection.send(body)
    call.is_sent = True
    return True


async def _watch_client(call: _Call, receive: Receive) -> None:
    """End a WebSocket request whose client disconnects before the answer."""
    while (await receive())["type"] != "websocket.disconnect":
        pass
    if not call.is_over:
        call.connection.fail(ClientLeft("the client disconnected before the response"))


@contextmanager
def _held(share: Share | None, size: int) -> Iterator[None]:
    """Count a piece in the client's memory while it is passed on."""
    if share is None:
        yield
        return
    share.hold(size)
    try:
        yield
    finally:
        share.give(size)


async def _refuse(scope: Scope, receive: Receive, send: Send, error: Exception) -> None:
    problem = problem_of(error)
    assert problem is not None, error
    fields = problem.headers if CLOSE in problem.headers else (*problem.headers, CLOSE)
    await answer_problem(scope, receive, send, replace(problem, headers=fields))


def _subject(path: str) -> str:
    """The log that a request appends to; for other requests, the state."""
    segments = path[1:].split("/")
    is_append = len(segments) == 3 and segments[0] in ("logs", "dcb") and segments[2] in _APPENDS
    return segments[1] if is_append else STATE
