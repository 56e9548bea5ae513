"""ASGI 3 as types, and the parts of it that are not requests: refused WebSockets and the lifespan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping, Sequence
from typing import Any, cast
from urllib.parse import quote

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

MEMORY = "headwater.memory"
"""Scope key of the connection's `core.loop.memory.Share`."""
HELD = "headwater.held"
"""Scope key of the number of bytes that the request has taken from that share. The server releases them after the
application is done."""
WHOLE = "headwater.whole"
"""Scope key of a server that takes a whole answer in one message: its `http.response.start` has the `body` too."""
WRITER = "headwater.writer"
"""Scope key of a WebSocket's writer, which shows whether the peer reads what it is sent: `is_full`, `drained()`."""

POLICY_VIOLATION, SERVICE_RESTART = 1008, 1012
"""Close codes for refusing a WebSocket (RFC 6455, 7.4.1, and the IANA registry)."""


class Later:
    """A call that runs when awaited. If never awaited, it does not run, and Python does not warn."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, None, None]:
        return self._begin().__await__()


class _Done(tuple[()]):
    """An awaitable that is already done: a coroutine costs more than many messages. Awaiting it iterates nothing."""

    __slots__ = ()
    __await__ = tuple.__iter__


DONE = cast(Awaitable[None], _Done())


def raw_path(scope: Scope) -> str:
    """The path as the client wrote it, percent-encoded, below the application's mount point."""
    return path_below(scope.get("root_path", ""), written_path(scope))


def written_path(scope: Scope) -> bytes:
    """The path as the client wrote it, percent-encoded, perhaps with the query; quoted here if the server lacks it."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]).encode() if raw is None else raw


def path_below(root: str, written: bytes) -> str:
    """The path below a mount point, of a written path."""
    return written.partition(b"?")[0].decode("latin-1").removeprefix(root)


async def refuse_websocket(
    send: Send, reason: str = "no WebSocket is served here", code: int = POLICY_VIOLATION
) -> None:
    """Reject a WebSocket before it is accepted."""
    await send({"type": "websocket.close", "code": code, "reason": reason})


async def answer_websocket(scope: Scope, send: Send, status: int, headers: Sequence[Header], body: bytes) -> None:
    """Reject a WebSocket before it is accepted, with an HTTP answer; with a bare 403 if the server cannot send one."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await refuse_websocket(send)
        return
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


async def live(
    receive: Receive, send: Send, start: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]
) -> None:
    """The `lifespan` of a standalone server: starts an application before the first request and ends it at shutdown."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await start()
            await send({"type": "lifespan.startup.complete"})
        else:
            await end()
            await send({"type": "lifespan.shutdown.complete"})
            return
