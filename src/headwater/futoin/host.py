"""What every call needs: the logs that are served, opened once, who may do what with them, and who receives pushes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..core.access import Guard, Right
from ..core.asynchronous import AsyncLog
from ..core.errors import LogNotFound
from ..core.local import LocalLog
from ..core.settings import LOG_NAME
from ..core.store import LogStore
from .identity import Caller
from .naming import Naming
from .settings import Settings

if TYPE_CHECKING:
    from .pushing import Push


class HostedLog:
    """One open log, its asyncio face, and who is pushed to."""

    def __init__(self, log: LocalLog, naming: Naming) -> None:
        self.log = log
        self.naming = naming
        self.asynchronous = AsyncLog(log)
        self.pushes: dict[tuple[str, str], Push] = {}
        """The push of each reliable consumer; there is one at a time."""

    async def committed(
        self, next_commit: asyncio.Future[None], timeout_s: float, stopping: asyncio.Future[None]
    ) -> bool:
        """Wait for that commit; False if it did not come in time, or the server stops."""
        await asyncio.wait((next_commit, stopping), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return next_commit.done() and not stopping.done()


class Host:
    """The logs of one store on one event loop."""

    def __init__(self, store: LogStore, guard: Guard, settings: Settings) -> None:
        self.store, self.guard, self.settings = store, guard, settings
        self.stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server stops: connections end, and new requests are refused."""
        self._hosted: dict[str, HostedLog] = {}
        self._turn = asyncio.Lock()

    async def log(self, name: str, caller: Caller, right: Right) -> HostedLog:
        """The log of that name, for a caller who has the right. Raises Forbidden, LogNotFound, StorageCorrupted."""
        if (hosted := self.opened(name, caller, right)) is not None:
            return hosted
        if not LOG_NAME.fullmatch(name):
            raise LogNotFound(name)
        return await self._open(name)

    def opened(self, name: str, caller: Caller, right: Right) -> HostedLog | None:
        """The same, if the log is open; None says nothing. Raises Forbidden."""
        if not self.guard.is_open:
            self.guard.authorize(caller.user, right, name)
        hosted = self._hosted.get(name)
        return None if hosted is None or hosted.log.is_closed else hosted

    def stop(self) -> None:
        """End the connections and refuse what comes; the logs stay open for their owner to close."""
        if not self.stopping.done():
            self.stopping.set_result(None)

    def close(self) -> None:
        """Let go of the logs."""
        for hosted in self._hosted.values():
            hosted.asynchronous.close()
        self._hosted.clear()

    async def _open(self, name: str) -> HostedLog:
        async with self._turn:
            hosted = self._hosted.get(name)
            if hosted is not None:
                if not hosted.log.is_closed:
                    return hosted
                hosted.asynchronous.close()
                del self._hosted[name]
            log = await asyncio.to_thread(self.store.open, name)
            settings = self.settings
            self._hosted[name] = HostedLog(log, Naming.of_log(name, settings.aliases, settings.without_other))
            return self._hosted[name]
