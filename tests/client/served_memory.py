"""A real HTTP server over logs in memory, in a thread of this process, and a bad connection to it."""

import asyncio
import contextlib
import socket
import struct
import threading

from headwater import dcb
from headwater.cne import server as cne
from headwater.core import OpenGuard
from headwater.server.app import by_room
from headwater.server.config.settings import Http
from headwater.server.httpd.server import HttpServer
from headwater.server.process.event_loop import EventLoop
from headwater.storage.memory import MemoryStore


class ServedMemory:
    """The server, and what is behind it. It can be stopped and started again on its port."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", self.port))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._started = threading.Event()
        self._thread.start()
        assert self._started.wait(10), "the server did not start"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=EventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        application = dcb.Application(self.store, OpenGuard())
        clouds = cne.Application(self.store, OpenGuard())
        await clouds.start()
        rooms = by_room(dict.fromkeys(cne.ROOMS, clouds), application)
        server = HttpServer(rooms, [self._socket], Http(), None)
        await server.start()
        self._started.set()
        await self._stopping.wait()
        application.stop()  # the subscriptions end first, as in the real server
        await server.stop()
        await clouds.close()


class CuttingProxy:
    """Stands between client and server, and cuts the first answers off after so many bytes each: what it sent to one
    connection, by its end, or with a reset."""

    def __init__(self, upstream_port: int, cuts: list[int], *, resets: bool = False) -> None:
        self._upstream_port, self._resets = upstream_port, resets
        self.cuts = cuts
        self.answered = bytearray()
        """What was passed on to clients, whatever the connection."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        upstream = socket.create_connection(("127.0.0.1", self._upstream_port))
        if self._resets:  # by the close of the second thread
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        threading.Thread(target=self._pump, args=(client, upstream), daemon=True).start()
        self._pump(upstream, client, self.cuts.pop(0) if self.cuts else None, self.answered)

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        bytes_max: int | None = None,
        passed: bytearray | None = None,
    ) -> None:
        with source, sink, contextlib.suppress(OSError):
            while bytes_max is None or bytes_max > 0:
                received = source.recv(65536)[:bytes_max]
                if not received:
                    break
                if passed is not None:
                    passed += received
                sink.sendall(received)
                bytes_max = None if bytes_max is None else bytes_max - len(received)
            for end in (source, sink):
                end.shutdown(socket.SHUT_RD if self._resets else socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
