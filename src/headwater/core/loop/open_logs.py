"""The logs of one store that are open on one event loop: opened once, in a thread, and released when closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from ..local import LocalLog
from ..store import LogStore
from .async_log import AsyncLog
from .scheduler import FairScheduler
from .traffic import Traffic

T = TypeVar("T")
Answer = TypeVar("Answer")


class OpenLog(Generic[T]):
    """A log, its asyncio interface, and the front end's view of it."""

    __slots__ = ("asynchronous", "log", "view")

    def __init__(self, log: LocalLog, view: T, turns: FairScheduler, traffic: Traffic) -> None:
        self.log, self.view = log, view
        self.asynchronous = AsyncLog(log, turns, traffic)


class OpenLogs(Generic[T]):
    """The logs that one front end has opened, by name."""

    def __init__(
        self, store: LogStore, view: Callable[[str, LocalLog], T], turns: FairScheduler, traffic: Traffic | None = None
    ) -> None:
        """`view` creates the front end's own object for a log, from the log and its name. It may block.

        `turns` assigns the loop's time to readers; `traffic` counts appended events.
        """
        self._turns = turns
        self.traffic = traffic or Traffic()
        self.store = store
        self._view = view
        self._opened: dict[str, OpenLog[T]] = {}
        self._turn = asyncio.Lock()
        """Serializes changes to the set of logs."""

    def get(self, name: str) -> OpenLog[T] | None:
        """The log of that name, if it is open here; None does not mean that it does not exist."""
        opened = self._opened.get(name)
        return None if opened is None or opened.log.is_closed else opened

    async def open(self, name: str) -> OpenLog[T]:
        """The log of that name. Raises LogNotFound, StorageUnavailable, StorageCorrupted."""
        async with self._turn:
            if (opened := self.get(name)) is not None:
                return opened
            self._drop(name)
            log, view = await asyncio.to_thread(self._open, name)
            opened = self._opened[name] = OpenLog(log, view, self._turns, self.traffic)
            return opened

    async def change(self, name: str, change: Callable[[], Answer]) -> Answer:
        """Create, change or delete a log: in a thread, one at a time. Followers of a deleted log are woken."""
        async with self._turn:
            try:
                return await asyncio.to_thread(change)
            finally:
                if self.get(name) is None:
                    self._drop(name)

    def close(self) -> None:
        """Release the logs; their owner closes them. Their followers end."""
        for name in list(self._opened):
            self._drop(name)

    def _open(self, name: str) -> tuple[LocalLog, T]:
        log = self.store.open(name)
        return log, self._view(name, log)

    def _drop(self, name: str) -> None:
        if (opened := self._opened.pop(name, None)) is not None:
            opened.asynchronous.close()
