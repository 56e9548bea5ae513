"""What every handler needs: the logs that are served, opened once per event loop, and who may do what with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ..core.access import ANYBODY, Guard, Right, Unauthenticated, User
from ..core.asynchronous import AsyncLog
from ..core.local import LocalLog
from ..core.store import LogStore
from ..formats.authorization import UNREADABLE, credentials_of
from .errors import Header
from .exchange import Exchange

T = TypeVar("T")


class HostedLog:
    """One open log, its asyncio face, and what its answers repeat."""

    __slots__ = ("asynchronous", "has_partitions", "incarnation", "log")

    def __init__(self, log: LocalLog, incarnation: str) -> None:
        self.log = log
        self.asynchronous = AsyncLog(log)
        self.incarnation = incarnation
        self.has_partitions = log.settings.partitions > 1

    def headers(self, head: int) -> list[Header]:
        """The header fields with which each read answers the head."""
        return [(b"headwater-head", b"%d" % head), (b"headwater-incarnation", self.incarnation.encode())]


class Host:
    """The logs of one store on one event loop."""

    def __init__(self, store: LogStore, guard: Guard) -> None:
        self.store, self.guard = store, guard
        self.stopping = asyncio.Event()
        """Set when the server stops: streams end, and new requests are refused."""
        self._hosted: dict[str, HostedLog] = {}
        self._turn = asyncio.Lock()
        """One at a time changes which logs there are."""

    async def log(self, exchange: Exchange, right: Right) -> HostedLog:
        """The log that the path names first, for a user who has the right.

        Raises Unauthenticated, Forbidden, LogNotFound, StorageCorrupted.
        """
        name = exchange.arguments[0]
        if not self.guard.is_open:
            self.guard.authorize(await self.user(exchange), right, name)
        hosted = self._hosted.get(name)
        if hosted is not None and not hosted.log.is_closed:
            return hosted
        return await self._open(name)

    async def user(self, exchange: Exchange) -> User:
        """Who asks. Raises Unauthenticated."""
        if self.guard.is_open:
            return ANYBODY
        return await authenticate(self.guard, exchange.header(b"authorization"), exchange.peer)

    async def authorize(self, exchange: Exchange, right: Right) -> str:
        """The log's name in the path, for a user who has the right, whether or not there is such a log."""
        name = exchange.arguments[0]
        if not self.guard.is_open:
            self.guard.authorize(await self.user(exchange), right, name)
        return name

    async def change(self, name: str, change: Callable[[], T]) -> T:
        """Create, change or delete a log: in a thread, one at a time. Whoever follows a deleted log is woken."""
        async with self._turn:
            try:
                return await asyncio.to_thread(change)
            finally:
                hosted = self._hosted.get(name)
                if hosted is not None and hosted.log.is_closed:
                    self._drop(name)

    def stop(self) -> None:
        """End the streams and refuse what comes; the logs themselves stay open for their owner to close."""
        self.stopping.set()

    def close(self) -> None:
        """Let go of the logs."""
        for name in list(self._hosted):
            self._drop(name)

    async def _open(self, name: str) -> HostedLog:
        async with self._turn:
            hosted = self._hosted.get(name)
            if hosted is not None:
                if not hosted.log.is_closed:
                    return hosted
                self._drop(name)
            log, incarnation = await asyncio.to_thread(_opened, self.store, name)
            self._hosted[name] = HostedLog(log, incarnation)
            return self._hosted[name]

    def _drop(self, name: str) -> None:
        if (hosted := self._hosted.pop(name, None)) is not None:
            hosted.asynchronous.close()


async def authenticate(guard: Guard, header: bytes | None, peer: str) -> User:
    """The user that an Authorization header shows. Raises Unauthenticated.

    The guard refuses a header that cannot be read as well, so that it is counted and logged as any other.
    """
    credentials = credentials_of(header)
    try:
        return await guard.authenticate(credentials, peer)
    except Unauthenticated:
        if credentials is UNREADABLE:
            raise Unauthenticated("the Authorization header is not well-formed Basic or Bearer") from None
        raise


def _opened(store: LogStore, name: str) -> tuple[LocalLog, str]:
    log = store.open(name)
    return log, log.info().incarnation
