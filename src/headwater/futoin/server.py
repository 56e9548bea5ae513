"""The ASGI application: `/futoin/{log}` over HTTP and WebSocket, and the interface definitions below it."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

from ..core.access import Guard
from ..core.store import LogStore
from . import generating, http, interface, polling, pushing
from .calls import Handler
from .host import Host, Settings
from .websocket import Connection

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_logger = logging.getLogger("headwater.futoin")

ENDPOINT = "/futoin/{log}"
_GEN, _POLL, _PUSH = "futoin.evt.gen", "futoin.evt.poll", "futoin.evt.push"
_OUR_GEN, _OUR_POLL = "headwater.evt.gen", "headwater.evt.poll"

HANDLERS: Mapping[tuple[str, str], Handler] = {
    **{(name, "ping"): generating.ping for name in (_GEN, _POLL, _PUSH, _OUR_GEN, _OUR_POLL)},
    **{(name, "addEvent"): generating.add_event for name in (_GEN, _OUR_GEN)},
    (_OUR_GEN, "addEvents"): generating.add_events,
    **{(name, "registerConsumer"): polling.register_consumer for name in (_POLL, _PUSH, _OUR_POLL)},
    **{(name, "pollEvents"): polling.poll_events for name in (_POLL, _PUSH, _OUR_POLL)},
    (_PUSH, "readyToReceive"): pushing.ready_to_receive,
}
"""What implements each function; a test finds none missing."""


class Application:
    """FutoIn event streams for the logs of one store, on one event loop.

    Call `stop` before the HTTP server waits for its connections to end, and `close` after that.
    """

    def __init__(self, store: LogStore, guard: Guard, settings: Settings) -> None:
        self._host = Host(store, guard, settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3: one request, or one WebSocket. Who mounts it stops and closes it."""
        path = http.segments_of(scope)[2:]  # "", "futoin", the log, and what comes below it
        if path and path[-1] == "":
            path.pop()
        if path:
            scope["route"] = ENDPOINT
        if scope["type"] == "websocket":
            await self._connect(path, scope, receive, send)
        else:
            with suppress(http.Gone):
                await self._answer(path, scope, receive, send)

    def stop(self) -> None:
        """Close the connections in order, and refuse new requests."""
        self._host.stop()

    async def close(self) -> None:
        """Let go of the logs, which stay open."""
        self._host.close()

    async def _answer(self, path: list[str], scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if len(path) == 2 and method in ("GET", "HEAD") and (text := interface.file_text(path[1])) is not None:
            await http.send_bytes(send, 200, b"application/json", text)
        elif len(path) == 1 and method == "POST":
            await http.post(self._host, HANDLERS, path[0], _Request(scope), scope, receive, send)
        elif len(path) > 1 and method == "GET":
            await http.get(self._host, HANDLERS, path[0], _Request(scope), path[1:], scope, send)
        else:
            await http.send_bytes(send, 400, b"text/plain", b"")

    async def _connect(self, path: list[str], scope: Scope, receive: Receive, send: Send) -> None:
        if len(path) != 1:
            await send({"type": "websocket.close", "code": 1008, "reason": "no WebSocket is served here"})
            return
        request = _Request(scope)
        connection = Connection(
            self._host,
            HANDLERS,
            path[0],
            receive,
            send,
            peer=request.peer,
            is_secure=request.is_secure,
            authorization=request.authorization,
        )
        with suppress(OSError):  # the peer has left
            await connection.serve()


class _Request:
    """What one HTTP request says of the channel that it came through."""

    connection = None

    def __init__(self, scope: Scope) -> None:
        client = scope.get("client")
        self.peer: str = client[0] if client else ""
        self.is_secure = scope.get("scheme") in ("https", "wss") or _is_loopback(self.peer)
        """TLS ends here, or at a proxy that is trusted to say so, or nobody is between."""
        self.authorization: bytes | None = next(
            (value for name, value in scope["headers"] if name == b"authorization"), None
        )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def application(store: LogStore, guard: Guard, settings: Settings | None = None) -> Application:
    """The ASGI application for the logs of a store; `guard` says who may do what. To be made on its event loop."""
    return Application(store, guard, settings or Settings())
