"""An AMQP server on an event loop in a thread of its own, over logs in memory."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from headwater.amqp.attach import attach
from headwater.amqp.client import Client
from headwater.amqp.connections.transport import Attach
from headwater.amqp.container import Container
from headwater.amqp.management.node import ManagementNode
from headwater.amqp.server import AmqpReception, AmqpServer
from headwater.amqp.settings import AmqpSettings
from headwater.core.access import Guard, OpenGuard
from headwater.core.local import LocalLog
from headwater.core.loop.gil_yield import GilYield
from headwater.core.loop.memory import MemoryAccount
from headwater.core.settings import LogSettings
from headwater.core.store import LogStore
from headwater.core.watch.bus import Bus
from headwater.server.process.event_loop import EventLoop
from headwater.server.process.sockets import listen
from headwater.storage.memory import MemoryStore


class Served:
    """A container on a free port of loopback; a context manager that stops it."""

    def __init__(
        self,
        *,
        store: LogStore | None = None,
        guard: Guard | None = None,
        settings: AmqpSettings | None = None,
        tls: ssl.SSLContext | None = None,
        bus: Bus | None = None,
        memory: MemoryAccount | None = None,
        reception: Callable[[Container, Attach], AmqpReception] = AmqpReception,
        loop: Callable[[], asyncio.AbstractEventLoop] = EventLoop,
    ) -> None:
        self.memory = memory or MemoryAccount(2**30)
        self.bus = bus or Bus()
        self.store = store or MemoryStore(bus=self.bus)
        self._guard, self._settings, self._tls = guard or OpenGuard(), settings or AmqpSettings(), tls
        self._sockets = listen("127.0.0.1", 0, "--amqp-port")
        self.port = self._sockets[0].getsockname()[1]
        self._received, self.loop = reception, loop()
        self._gives_way = GilYield()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> Served:
        self._thread.start()
        self.run(self._start)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _start(self) -> None:
        self.container = Container(self.store, self._guard, self._settings, bus=self.bus, memory=self.memory)
        await self.container.nodes.begin()
        self.management = ManagementNode(self.container)
        self.reception = self._received(self.container, self.attach())
        self.server = AmqpServer(self.reception, self._sockets, self._tls)
        await self.server.start()
        self._gives_way.start()

    def attach(self) -> Attach:
        """What answers attaches."""
        return partial(attach, self.container, self.management)

    def stop(self) -> None:
        """Stop the server; again does nothing."""
        self.run(self._stop)

    async def _stop(self) -> None:
        self._gives_way.stop()
        await self.server.stop()

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run something on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(30)  # type: ignore[arg-type]

    def log(self, name: str = "orders", **settings: Any) -> LocalLog:
        """The log of that name, made if need be."""
        return self.store.create(name, LogSettings(**settings) if settings else None)

    def url(self, user: str = "") -> str:
        """The server's address; `user` is `name:password@`."""
        return f"amqp{'s' if self._tls else ''}://{user}127.0.0.1:{self.port}"

    def client(self, user: str = "", **options: Any) -> Client:
        """A client of it."""
        return Client(self.url(user), **{"timeout_s": 10.0, **options})
