"""ASGI 3 as types, and the two things of it that are no requests: WebSockets that nobody serves, and the lifespan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping, Sequence
from typing import Any
from urllib.parse import quote

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

MEMORY = "headwater.memory"
"""The key in the scope of the connection's `core.loop.memory.Share`."""
HELD = "headwater.held"
"""The key in the scope of the bytes of that share that the request has taken. The server gives them back when its
application is done."""
WRITER = "headwater.writer"
"""The key in the scope of a WebSocket of what tells whether its peer takes what it is sent: `is_full`, `drained()`."""

POLICY_VIOLATION, SERVICE_RESTART = 1008, 1012
"""Why a WebSocket is refused (RFC 6455, 7.4.1, and the IANA registry)."""


class Later:
    """A call that runs when it is awaited; without an await it never runs, and Python does not warn."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, None, None]:
        return self._begin().__await__()


class _Done:
    """An awaitable that is done already: a coroutine costs more than many messages."""

    def __await__(self) -> Generator[None, None, None]:
        return _NOTHING


def _nothing() -> Generator[None, None, None]:
    return
    yield


_NOTHING = _nothing()
DONE = _Done()


def raw_path(scope: Scope) -> str:
    """The path as the client wrote it, percent-encoded, below what the application is mounted at."""
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")
    return path.removeprefix(scope.get("root_path", ""))


async def refuse_websocket(
    send: Send, reason: str = "no WebSocket is served here", code: int = POLICY_VIOLATION
) -> None:
    """Turn a WebSocket away before it is accepted."""
    await send({"type": "websocket.close", "code": code, "reason": reason})


async def answer_websocket(scope: Scope, send: Send, status: int, headers: Sequence[Header], body: bytes) -> None:
    """Turn a WebSocket away before it is accepted, with an answer of HTTP; by 403 alone where the server cannot."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await refuse_websocket(send)
        return
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


async def live(
    receive: Receive, send: Send, start: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]
) -> None:
    """The `lifespan` of a server of its own: it starts an application before the first request, and ends it at last."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await start()
            await send({"type": "lifespan.startup.complete"})
        else:
            await end()
            await send({"type": "lifespan.shutdown.complete"})
            return
