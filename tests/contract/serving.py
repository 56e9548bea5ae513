"""The HTTP front end over a store, on a loopback port, in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading

import uvicorn

from headwater import dcb
from headwater.core import LogStore, OpenGuard

START_S_MAX = 60.0


class Serving:
    """A server from its construction to `close`."""

    def __init__(self, store: LogStore) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        application = dcb.Application(store, OpenGuard())
        self._server = _PromptServer(uvicorn.Config(application, log_config=None, ws="none"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="serving")
        self._thread.start()
        assert self._server.ready.wait(START_S_MAX), "the server did not start"

    def close(self) -> None:
        """Stop and wait for the end."""
        self._server.end()
        self._thread.join()
        self._socket.close()


class _PromptServer(uvicorn.Server):
    """Starts and ends by events: uvicorn's own looks ten times a second whether it should end, then sleeps as long."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    def end(self) -> None:
        """End it from another thread."""
        self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        """See uvicorn."""
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        await self.on_tick(0)
        self.ready.set()
        await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drop all connections; requests that are still served end with the event loop."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        while self.server_state.connections:
            await asyncio.sleep(0)
