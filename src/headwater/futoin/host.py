"""The context of every call: the open logs with their event type names, and the guard that checks permissions."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from ..core.access import Guard, Right
from ..core.errors import LogNotFound
from ..core.loop.memory import Share
from ..core.loop.open_logs import OpenLog, OpenLogs
from ..core.loop.scheduler import FairScheduler
from ..core.loop.traffic import Traffic
from ..core.readers import Readers
from ..core.settings import LOG_NAME
from ..core.store import LogStore
from ..http.host import own_by_address
from .identity import Caller
from .naming import Naming
from .settings import Settings


@dataclass(slots=True)
class Statistics:
    """Counts since the server started. Only the event loop updates them; any thread may read them."""

    calls: Counter[str] = field(default_factory=Counter)
    """The number of valid calls, by interface and function."""
    errors: Counter[str] = field(default_factory=Counter)
    """Errors sent, by name."""
    pushes: Counter[str] = field(default_factory=Counter)
    """Groups pushed: `reliable` and `live`."""
    redeliveries: int = 0
    """Reliable groups that were pushed again after an error or a timeout."""
    traffic: Traffic = field(default_factory=Traffic)
    """Events that were added, and events that were polled or pushed."""
    skipped: int = 0
    """Log numbers that live consumers missed because they were too slow."""


Opened = OpenLog[Naming]


class Host:
    """The server as seen by calls on one event loop."""

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        settings: Settings,
        turns: FairScheduler | None = None,
        readers: Readers | None = None,
    ) -> None:
        """`turns` schedules the loop's time among readers; `readers` records pushes."""
        self.readers = readers or Readers()
        self.turns = turns or FairScheduler()
        self.guard, self.settings, self.may_act = guard, settings, store.may_act
        self.has_lapsed = store.has_lapsed
        self.statistics = Statistics()
        self.stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server stops: connections end, and new requests are refused."""
        self.logs = OpenLogs(
            store,
            lambda name, _: Naming.of_log(name, settings.aliases, settings.without_other),
            self.turns,
            self.statistics.traffic,
        )

    async def log(self, name: str, caller: Caller, right: Right) -> Opened:
        """The log of that name, if the caller has the right. Raises Forbidden, LogNotFound, StorageCorrupted."""
        if not self.guard.is_open:
            self.guard.authorize(caller.user, right, name)
        if (opened := self.logs.get(name)) is not None:
            return opened
        if not LOG_NAME.fullmatch(name):
            raise LogNotFound(name)
        return await self.logs.open(name)

    def opened(self, name: str, caller: Caller, right: Right) -> Opened | None:
        """The same, if the log is open and the caller has the right. None decides nothing and does not count as a
        refusal."""
        opened = self.logs.get(name)
        return opened if opened is not None and (self.guard.is_open or caller.user.may(right, name)) else None

    def own_unknown(self, share: Share, peer: str) -> None:
        """Set the owner of a connection's bytes until a message is verified: all unknown peers share one."""
        if self.guard.is_open:
            own_by_address(share, peer)
        else:
            share.belong(share.account.strangers)

    def stop(self) -> None:
        """End the connections and refuse new requests; the logs stay open for their owner to close."""
        if not self.stopping.done():
            self.stopping.set_result(None)
