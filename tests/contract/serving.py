"""The HTTP front end over a store, on a loopback port, in a thread."""

from __future__ import annotations

import socket
import threading
import time

import uvicorn

from headwater import dcb
from headwater.core import LogStore, OpenGuard


class Serving:
    """A server from its construction to `close`."""

    def __init__(self, store: LogStore) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        application = dcb.Application(store, OpenGuard())
        self._server = uvicorn.Server(uvicorn.Config(application, log_config=None, ws="none"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="serving")
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    def close(self) -> None:
        """Stop and wait for the end."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._socket.close()
