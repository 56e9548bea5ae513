"""Registered consumers, looked at once a second: who falls behind, who caught up, how far archivers have come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.bus import Bus
from ..core.consumer import Consumer
from ..core.errors import EventLogError
from ..core.local import LocalLog
from ..core.notification_types import NotificationType
from ..core.query import ALL
from ..core.settings import is_own

ARCHIVER = "ARCHIVER"
"""The component of a consumer that copies a log elsewhere."""
_Key = tuple[LocalLog, str, str]


@dataclass(slots=True)
class _Seen:
    """What is remembered of a consumer between two looks."""

    acknowledged: int
    is_lagging: bool = False
    next_recorded_at: int | None = None
    """When the first event after `acknowledged` was recorded; None if that was not looked up yet."""


class ConsumerWatch:
    """Call `look` once a second, from one thread at a time; it may read one event of each consumer that is behind."""

    def __init__(
        self,
        bus: Bus,
        opened: Callable[[], Sequence[LocalLog]],
        *,
        lag_events: int = 0,
        lag_ms: int = 0,
        wall_clock: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A consumer lags that is further behind than so many numbers, or events of that age; 0 = however many."""
        self._bus, self._opened = bus, opened
        self._lag_events, self._lag_ms = lag_events, lag_ms
        self._wall_clock, self._clock = wall_clock or _wall_clock_ms, clock
        self._seen: dict[_Key, _Seen] = {}
        self._looked_at = clock()
        for log, consumer in self._consumers():
            self._seen[log, consumer.owner, consumer.component] = _Seen(consumer.acknowledged)

    def look(self) -> None:
        """Notify of what has changed since the last look."""
        now = self._clock()
        interval_ms = max(1, round((now - self._looked_at) * 1000))
        self._looked_at = now
        before, self._seen = self._seen, {}
        for log, consumer in self._consumers():
            key = log, consumer.owner, consumer.component
            seen = self._seen[key] = before.get(key) or _Seen(consumer.acknowledged)
            if consumer.acknowledged != seen.acknowledged:
                if consumer.component.upper() == ARCHIVER and consumer.acknowledged > seen.acknowledged:
                    count = consumer.acknowledged - seen.acknowledged
                    progressed = NotificationType.ARCHIVE_PROGRESSED
                    self._notify(progressed, log, consumer, count=count, intervalMs=interval_ms)
                seen.acknowledged, seen.next_recorded_at = consumer.acknowledged, None
            if self._lag_events or self._lag_ms:
                self._judge(log, consumer, seen)

    def _judge(self, log: LocalLog, consumer: Consumer, seen: _Seen) -> None:
        head = log.head()
        behind = max(0, head - consumer.acknowledged)
        age_ms = self._age_ms(log, seen) if behind and self._lag_ms else 0
        lags = 0 < self._lag_events < behind or 0 < self._lag_ms < age_ms
        if lags is seen.is_lagging:
            return
        seen.is_lagging = lags
        type = NotificationType.CONSUMER_LAGGING if lags else NotificationType.CONSUMER_CAUGHT_UP
        lag_ms = self._age_ms(log, seen) if behind else 0
        self._notify(type, log, consumer, head=head, lagEvents=behind, lagMs=lag_ms)

    def _notify(self, type: NotificationType, log: LocalLog, consumer: Consumer, **more: int) -> None:
        self._bus.emit(
            type,
            log=log.name,
            owner=consumer.owner,
            component=consumer.component,
            acknowledged=consumer.acknowledged,
            **more,
        )

    def _age_ms(self, log: LocalLog, seen: _Seen) -> int:
        """How old the first event is that was not acknowledged. That event stays the same until it is."""
        if seen.next_recorded_at is None:
            try:
                page = log.read_page(ALL, seen.acknowledged, limit=1)
            except EventLogError:  # the log was closed meanwhile
                return 0
            if not page.events:
                return 0
            seen.next_recorded_at = page.events[0].recorded_at
        return max(0, self._wall_clock() - seen.next_recorded_at)

    def _consumers(self) -> list[tuple[LocalLog, Consumer]]:
        return [(log, consumer) for log in self._opened() if not is_own(log.name) for consumer in log.consumers()]


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
