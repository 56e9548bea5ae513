"""Notifications of events that are too frequent to be reported individually: refused appends and failed conditions.
They are reported once a second with a count.

Logs count these anyway, so the append path is not involved. Nothing is sampled: the counts of all notifications add
up to the counters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...core.local import LocalLog
from ...core.settings import is_own
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType


class _Counts(NamedTuple):
    refused: int
    duplicates: int
    conditions_failed: int


_NOTHING = _Counts(0, 0, 0)


class Summaries:
    """Call `look` once a second, from one thread at a time."""

    def __init__(
        self, bus: Bus, opened: Callable[[], Sequence[LocalLog]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`opened` returns the open logs; `clock` returns seconds."""
        self._bus, self._opened, self._clock = bus, opened, clock
        self._seen = {log: _counts(log) for log in self._logs()}
        self._looked_at = clock()

    def look(self) -> None:
        """Notify of the counts since the last check, including the last counts of a log that was deleted in between."""
        now = self._clock()
        interval_ms = max(1, round((now - self._looked_at) * 1000))
        self._looked_at = now
        logs = self._logs()
        before, self._seen = self._seen, {}
        for log in {**before, **dict.fromkeys(logs)}:
            self._seen[log] = counts = _counts(log)
            if counts != (seen := before.get(log, _NOTHING)):
                self._notify(log.name, counts, seen, interval_ms)
        for gone in before.keys() - set(logs):
            del self._seen[gone]

    def _notify(self, log: str, counts: _Counts, seen: _Counts, interval_ms: int) -> None:
        duplicates = counts.duplicates - seen.duplicates
        rejected = counts.refused - seen.refused + duplicates
        if rejected:
            self._bus.emit(
                NotificationType.APPEND_REJECTED, log=log, count=rejected, duplicates=duplicates, intervalMs=interval_ms
            )
        if failed := counts.conditions_failed - seen.conditions_failed:
            self._bus.emit(NotificationType.CONDITION_FAILED, log=log, count=failed, intervalMs=interval_ms)

    def _logs(self) -> list[LocalLog]:
        return [log for log in self._opened() if not is_own(log.name)]


def _counts(log: LocalLog) -> _Counts:
    statistics = log.statistics
    return _Counts(statistics.refused, statistics.duplicates, statistics.conditions_failed)
