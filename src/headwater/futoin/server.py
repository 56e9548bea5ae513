"""The ASGI application: `/futoin/{log}` over HTTP and WebSocket, and the interface definitions below it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from ..core.access import Guard
from ..core.loop.scheduler import FairScheduler
from ..core.readers import Readers
from ..core.store import LogStore
from ..http import Exchange, Receive, Scope, Send, refuse_websocket
from ..http.errors import Disconnected
from . import http
from .calls import Handler
from .functions import generate, poll
from .functions.push import Pushing
from .host import Host
from .messages import interface
from .settings import Settings
from .websocket import FutoinConnection

ENDPOINT = "/futoin/{log}"
_GEN, _POLL, _PUSH = "futoin.evt.gen", "futoin.evt.poll", "futoin.evt.push"
_OUR_GEN, _OUR_POLL = "headwater.evt.gen", "headwater.evt.poll"


def handlers(pushing: Pushing) -> Mapping[tuple[str, str], Handler]:
    """The handler of each function; a test checks that none is missing."""
    return {
        **{(name, "ping"): generate.ping for name in (_GEN, _POLL, _PUSH, _OUR_GEN, _OUR_POLL)},
        **{(name, "addEvent"): generate.add_event for name in (_GEN, _OUR_GEN)},
        (_OUR_GEN, "addEvents"): generate.add_events,
        **{(name, "registerConsumer"): poll.register_consumer for name in (_POLL, _PUSH, _OUR_POLL)},
        **{(name, "pollEvents"): poll.poll_events for name in (_POLL, _PUSH, _OUR_POLL)},
        (_PUSH, "readyToReceive"): pushing.ready_to_receive,
    }


class Application:
    """FutoIn event streams for the logs of one store, on one event loop.

    Call `stop` before the HTTP server waits for its connections to end, and `close` after that.
    """

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        settings: Settings | None = None,
        turns: FairScheduler | None = None,
        readers: Readers | None = None,
    ) -> None:
        """`guard` checks permissions; `turns` schedules the loop's time among readers, and `readers` records pushes.
        Create it on its event loop.
        """
        self._host = Host(store, guard, settings or Settings(), turns, readers)
        self.pushing = Pushing()
        self.statistics = self._host.statistics
        self._handlers = handlers(self.pushing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3: one request or one WebSocket. The application that mounts it must stop and close it."""
        path = http.segments_of(scope)[2:]  # "", "futoin", the log, and what comes below it
        if path and path[-1] == "":
            path.pop()
        if path:
            scope["route"] = ENDPOINT
        exchange = Exchange(scope, receive, send)
        if scope["type"] == "websocket":
            await self._connect(path, exchange, receive, send)
        else:
            with suppress(Disconnected):
                await self._answer(path, exchange)

    def stop(self) -> None:
        """Close the connections cleanly, and refuse new requests."""
        self._host.stop()

    async def close(self) -> None:
        """Release the logs, which stay open for their owner to close."""
        self._host.logs.close()

    async def _answer(self, path: list[str], exchange: Exchange) -> None:
        method = exchange.scope["method"]
        definition = interface.file_text(path[1]) if len(path) == 2 else None
        if definition is not None and method in ("GET", "HEAD"):
            await exchange.answer(200, definition)
        elif len(path) == 1 and method == "POST":
            await http.post(self._host, self._handlers, path[0], exchange)
        elif len(path) > 1 and method == "GET":
            await http.get(self._host, self._handlers, path[0], path[1:], exchange)
        else:
            # No HEAD: it would call the function, which may change something, and discard the result.
            allowed = b"POST" if len(path) == 1 else b"GET" if definition is None else b"GET, HEAD"
            await exchange.answer(400, b"", b"text/plain", [(b"allow", allowed)] if path else ())

    async def _connect(self, path: list[str], exchange: Exchange, receive: Receive, send: Send) -> None:
        if len(path) != 1:
            await refuse_websocket(send)
            return
        connection = FutoinConnection(self._host, self._handlers, path[0], http.Request(exchange), receive, send)
        with suppress(OSError):  # the peer has left
            await connection.serve()
