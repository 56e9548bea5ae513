"""The HTTP front end over a store, on a loopback port, in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading

from headwater import dcb
from headwater.core import LogStore, OpenGuard
from headwater.server.config.settings import Http
from headwater.server.httpd.server import HttpServer
from headwater.server.process.event_loop import EventLoop

START_S_MAX = 60.0


class Serving:
    """A server from its construction to `close`."""

    def __init__(self, store: LogStore) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = HttpServer(dcb.Application(store, OpenGuard()), [self._socket], Http(), None)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="serving")
        self._thread.start()
        assert self._ready.wait(START_S_MAX), "the server did not start"

    def close(self) -> None:
        """Stop and wait for the end."""
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=EventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        """Serve, then drop all connections; requests that are still served end with the event loop."""
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        await self._server.start()
        self._ready.set()
        await self._ending.wait()
        self._server.refuse_connections()
        for connection in tuple(self._server.open_connections):
            connection.transport.abort()
        while self._server.connections:
            await asyncio.sleep(0)
