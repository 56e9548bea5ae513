"""The context of every handler: the host with its open logs, and the parts that all answers of a log repeat."""

from __future__ import annotations

from ..core.access import Guard
from ..core.local import LocalLog
from ..core.loop.open_logs import OpenLog
from ..core.loop.scheduler import FairScheduler
from ..core.readers import Readers
from ..core.store import LogStore
from ..core.workers import Workers
from ..http import Header, LogHost
from .event_times import EventTimes


class Described:
    """Parts that all answers of one log repeat."""

    __slots__ = ("_field", "has_partitions", "incarnation")

    def __init__(self, name: str, log: LocalLog) -> None:
        self.incarnation = log.info().incarnation
        self._field = (b"headwater-incarnation", self.incarnation.encode())
        self.has_partitions = log.settings.partitions > 1

    def headers(self, head: int) -> list[Header]:
        """The header fields by which each read reports the head."""
        return [(b"headwater-head", b"%d" % head), self._field]


class Host(LogHost[Described]):
    """The open logs, the keeper of their worker groups, and the cached event times."""

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        turns: FairScheduler | None = None,
        readers: Readers | None = None,
        workers: Workers | None = None,
    ) -> None:
        super().__init__(store, guard, Described, turns, readers)
        self.workers = workers
        self.event_times = EventTimes()


Opened = OpenLog[Described]
