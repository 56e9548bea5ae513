"""uvicorn, run by us: on sockets that are bound already, without its signal handlers, its exits and its log lines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import cast

import uvicorn

from ..http import Application
from .admission import Admission
from .config import Http
from .http_connection import HttpConnection
from .unfinished import Unfinished
from .websocket_protocol import MESSAGE_BYTES_MAX, PING_INTERVAL_S, PING_TIMEOUT_S, BoundedWebSocketProtocol

logger = logging.getLogger("headwater.server")

KEEP_ALIVE_S = 75
"""Longer than the pools of common clients keep an idle connection, so that the client is the one to close it."""
LAST_ANSWERS_S = 2
"""What answers still get when everything behind them has ended."""
LAST_BYTES_S = LAST_ANSWERS_S / 2
"""What a peer gets then to take what it was answered already."""


OpenConnection = HttpConnection | BoundedWebSocketProtocol


class HttpServer:
    """One ASGI application on some bound sockets, from `start` to `stop`."""

    def __init__(
        self,
        application: Application,
        sockets: Sequence[socket.socket],
        http: Http,
        tls: ssl.SSLContext | None,
        admission: Admission | None = None,
        died: Callable[[], None] = lambda: None,
        unfinished: Unfinished | None = None,
    ) -> None:
        """`admission` says how many connections there may be; by default, as many as are configured.

        `died` is called if it ends and was not asked to stop: no client could connect any more. Messages of WebSockets
        draw from `unfinished` while they come.
        """
        self._died, self._has_died = died, False
        self.admission = admission or Admission(http.connections_max)
        self._sockets = list(sockets)
        self._server = _Server(
            uvicorn.Config(
                application,
                http=partial(HttpConnection, admission=self.admission),  # type: ignore[arg-type]
                ws=partial(BoundedWebSocketProtocol, unfinished=unfinished),  # type: ignore[arg-type]
                ws_max_size=MESSAGE_BYTES_MAX,
                ws_ping_interval=PING_INTERVAL_S,
                ws_ping_timeout=PING_TIMEOUT_S,
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(http.trusted_proxies),
                forwarded_allow_ips=list(http.trusted_proxies),
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=LAST_ANSWERS_S,
                ssl_context_factory=(lambda *_: tls) if tls else None,
            )
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def open_connections(self) -> Collection[OpenConnection]:
        """Those that are open, WebSockets included."""
        return cast("Collection[OpenConnection]", self._server.server_state.connections)

    @property
    def connections(self) -> int:
        """How many are open, WebSockets included."""
        return len(self._server.server_state.connections)

    async def start(self) -> None:
        """Accept connections."""
        self._task = asyncio.create_task(self._server.serve(sockets=self._sockets))
        self._task.add_done_callback(self._has_ended)
        is_up = asyncio.create_task(self._server.is_up.wait())
        await asyncio.wait((self._task, is_up), return_when=asyncio.FIRST_COMPLETED)
        is_up.cancel()
        if self._task.done():
            self._task.result()

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        if self._server.is_up.is_set() and not self._server.should_exit:
            error = None if task.cancelled() else task.exception()
            logger.critical("HTTP is not served any more; the server stops", exc_info=error)
            self._has_died = True
            self._died()

    def refuse_connections(self) -> None:
        """Accept no more connections; those that are open stay."""
        for listener in self._server.servers:
            listener.close()

    def cut_off(self) -> None:
        """Drop the connections on which an answer still runs; to the application it is as if their clients had left."""
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, HttpConnection) and connection.is_answering:
                connection.transport.abort()

    async def stop(self) -> None:
        """Close what is idle, give answers under way a moment, and end. May be called again."""
        assert self._task is not None
        self._server.should_exit = True
        if not (await asyncio.wait((self._task,), timeout=LAST_BYTES_S))[0]:
            for connection in tuple(self.open_connections):  # peers that do not take what they were sent
                if not self._server.server_state.tasks or not getattr(connection, "is_answering", True):
                    connection.transport.abort()
            await asyncio.wait((self._task,))
        if not self._has_died:
            self._task.result()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
