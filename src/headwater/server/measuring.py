"""What the console is shown of the whole server: counters where they stand, in one go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ..amqp.container import Container
from ..console.rings import FINE_S
from ..console.series import LOG_SERIES, LogSample, Sample
from ..core.errors import StorageUnavailable
from ..core.local import LocalLog
from ..core.settings import is_own
from ..core.store import LogStore
from .gate import Gate
from .protocol_traffic import TrafficNow


class Measuring:
    """Any thread may call `sample`: it looks at the disk, too."""

    def __init__(
        self,
        store: LogStore,
        gate: Gate,
        container: Container,
        refusals: Callable[[], Mapping[str, int]],
        traffic: TrafficNow,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`refusals` are those of logins and accesses, `traffic` is of each protocol; the clock counts s since 1970."""
        self._store, self._gate, self._container, self._refusals = store, gate, container, refusals
        self._traffic, self._clock = traffic, clock

    def sample(self) -> Sample:
        """What was counted until now. Logs that nobody has opened yet have counted nothing."""
        opened = [log for log in self._store.opened() if not is_own(log.name)]
        logs = {log.name: _sample(log) for log in opened}
        statistics = self._container.statistics
        appended, read = (sum(_count(log, name) for log in opened) for name in ("events_appended", "events_read"))
        counts: dict[str, float] = {
            "events_appended": appended,
            "events_read": read,
            "requests": sum(list(self._gate.meter.counts.values())),
            "refusals": sum(list(self._refusals().values())),
            "amqp_messages_received": statistics.messages_received,
            "amqp_messages_sent": statistics.messages_sent,
        }
        for protocol, (came_in, went_out) in self._traffic().items():
            counts |= {f"{protocol}_events_in": came_in, f"{protocol}_events_out": went_out}
        gauges: dict[str, float] = {
            "streams": self._gate.streams,
            "amqp_connections": len(self._container.connections),
            "queued_bytes": sum(_count(log, "queued_bytes") for log in opened),
        }
        gauges.update(self._disk())
        return Sample(self._clock(), counts, gauges, logs)

    def _disk(self) -> Mapping[str, float]:
        """Nothing where logs are in memory, or the disk does not answer."""
        from ..storage import Engine  # a server that keeps its logs in memory need not load it

        if not isinstance(self._store, Engine):
            return {}
        room = self._store.room
        try:
            standing = room.look()
            return {
                "disk_free_bytes": standing.free_bytes,
                "disk_bytes": room.size_bytes,
                "disk_reserve_bytes": standing.reserve_bytes,
            }
        except (OSError, StorageUnavailable):
            return {}


def _sample(log: LocalLog) -> LogSample:
    longest_s = log.statistics.fsync_peaks.since(int(time.monotonic()) - FINE_S)
    return LogSample(log.head(), tuple(_count(log, name) for name in LOG_SERIES), (longest_s,))


def _count(log: LocalLog, name: str) -> float:
    value: float = getattr(log.statistics, name)
    return value
