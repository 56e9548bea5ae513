"""Watches all readers that have a position, once a second: which ones lag, which ones have caught up, and how far
archivers have come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from ...core.clocks import wall_clock_ms
from ...core.consumer import Consumer
from ...core.errors import Closed, EventLogError, LogNotFound
from ...core.followers import NO_LAG, Follower, FollowerKind, Lag, Waiting, events_behind, first_waiting, lag_of
from ...core.local import LocalLog
from ...core.settings import is_own
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType

ARCHIVER = "ARCHIVER"
"""The component of a consumer that copies a log elsewhere."""
LOOKUPS_MAX = 1000
"""How many events are looked up in one check. Readers that are skipped because of this limit come first in the next
check.
"""
_Key = tuple[LocalLog, FollowerKind, str, str]


@dataclass(slots=True)
class _Seen:
    """What is remembered about a position between two checks."""

    after: int
    """Never changes, because another position gets another object."""
    is_lagging: bool = False
    next: Waiting | None = None
    """The first event after `after`; None if it is unknown."""
    looked_upto: int = 0
    """No event exists from `after` up to this number."""


class ConsumerWatch:
    """Call `look` once a second, from one thread at a time. It looks some events up by number.

    All other methods may be called from any thread at any time: the state of a position is replaced when its reader
    moves.
    """

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
        """A reader lags if it is over `lag_events` behind, or its next event is older than `lag_ms`; 0: no bound."""
        self._bus, self._opened = bus, opened
        self._lag_events, self._lag_ms = lag_events, lag_ms
        self._wall_clock, self._clock = wall_clock or wall_clock_ms, clock
        self._seen: dict[_Key, _Seen] = {}
        self._postponed: set[_Key] = set()
        self._lookups = 0
        """The remaining part of LOOKUPS_MAX."""
        self.followers: Sequence[Follower] = ()
        """The readers seen in the last check: streams that have reported a position, but not registered consumers."""
        self._looked_at = clock()
        for follower in self._registered():
            self._seen[_key(follower)] = _Seen(follower.after)

    def look(self, followers: Sequence[Follower] = ()) -> None:
        """Notify of changes since the last check. `followers` are readers that are not registered in their logs."""
        now = self._clock()
        followers = [*followers, *self._streams()]
        interval_ms = max(1, round((now - self._looked_at) * 1000))
        self._looked_at, self.followers = now, followers
        present = [*self._registered(), *followers]
        found: dict[_Key, _Seen] = {}
        for follower in present:
            seen = self._seen.get(_key(follower)) or _Seen(follower.after)
            if follower.after != seen.after:
                self._notify_progress(follower, seen, interval_ms)
                seen = _Seen(follower.after, seen.is_lagging)
            found[_key(follower)] = seen
        self._seen = found
        if self._lag_events or self._lag_ms:
            self._judge_all(present)

    def lasting(self) -> Iterator[Follower]:
        """Readers whose position outlives the connection: registered consumers now, and others as of the last check."""
        yield from self._registered()
        for each in self.followers:
            if each.kind is not FollowerKind.RECEIVER and not each.log.is_closed:
                yield each

    def lag(self, follower: Follower) -> Lag:
        """How far behind a reader is; zero if the log cannot be read. See `measured`."""
        return self.measured(follower) or NO_LAG

    def measured(self, follower: Follower) -> Lag | None:
        """How far behind a reader is; None if the log cannot be read or no longer exists.

        For readers watched each second, the event that was looked up is kept until the reader moves.
        """
        seen = self._seen.get(_key(follower))
        if seen is None or seen.after != follower.after:
            seen = _Seen(follower.after)
        return self._lag(follower, seen)

    def furthest_behind(self, followers: Iterable[Follower], count: int) -> list[Follower]:
        """At most `count` of them, starting with the ones that are furthest behind the head."""
        return nsmallest(count, followers, key=lambda each: -events_behind(each.log, each.after, each.upto))

    def _judge_all(self, present: list[Follower]) -> None:
        self._lookups = LOOKUPS_MAX
        postponed, self._postponed = self._postponed, set()
        if postponed:
            present.sort(key=lambda follower: _key(follower) not in postponed)
        old: dict[LocalLog, int] = {}
        for follower in present:
            if self._lag_ms and follower.log not in old:
                old[follower.log] = self._first_young(follower.log)
            self._judge(follower, self._seen[_key(follower)], old.get(follower.log, 0))

    def _first_young(self, log: LocalLog) -> int:
        """The number of the first event that is not too old. One search serves all readers of the log."""
        try:
            return log.sequence_number_at(self._wall_clock() - self._lag_ms)
        except EventLogError:  # closed meanwhile
            return 0

    def _judge(self, follower: Follower, seen: _Seen, first_young: int) -> None:
        behind = events_behind(follower.log, follower.after, follower.upto)
        may_lag = 0 < self._lag_events < behind or (behind > 0 and follower.after + 1 < first_young)
        if not may_lag and not seen.is_lagging:
            return
        if behind and seen.next is None:
            if self._lookups <= 0:
                self._postponed.add(_key(follower))
                return
            self._lookups -= 1
        lag = self._lag(follower, seen) or NO_LAG
        lags = 0 < self._lag_events < lag.events or 0 < self._lag_ms < lag.age_ms
        if lags is seen.is_lagging:
            return
        seen.is_lagging = lags
        self._bus.emit(
            NotificationType.CONSUMER_LAGGING if lags else NotificationType.CONSUMER_CAUGHT_UP,
            **_of(follower),
            kind=follower.kind.value,
            partition=follower.partition,
            head=follower.log.head(),
            lagEvents=lag.events,
            lagMs=lag.age_ms,
            user=follower.user,
        )

    def _notify_progress(self, follower: Follower, seen: _Seen, interval_ms: int) -> None:
        is_archiver = follower.kind is FollowerKind.REGISTERED and follower.component.upper() == ARCHIVER
        if is_archiver and follower.after > seen.after:
            count = follower.log.events_between(seen.after + 1, follower.after)
            type = NotificationType.ARCHIVE_PROGRESSED
            self._bus.emit(type, **_of(follower), count=count, intervalMs=interval_ms)

    def _lag(self, follower: Follower, seen: _Seen) -> Lag | None:
        """Like `core.followers.lag_of`, with the event that was looked up before; None if the log cannot be read."""
        now_ms, log = self._wall_clock(), follower.log
        try:
            return lag_of(
                log,
                follower.after,
                now_ms,
                partition=follower.partition,
                upto=follower.upto,
                first=lambda: self._next(follower, seen),
            )
        except EventLogError:  # its log has reported it, or it was closed in the meantime
            return None

    def _next(self, follower: Follower, seen: _Seen) -> Waiting | None:
        """The reader's next event. It remains the same until the position moves."""
        found = seen.next
        if found is None:
            head = follower.log.head()
            found = seen.next = first_waiting(follower.log, max(seen.after, seen.looked_upto), follower.partition)
            if found is None:
                seen.looked_upto = head
        return found

    def _registered(self) -> Iterator[Follower]:
        for log in self._opened():
            if not is_own(log.name):
                for each in _consumers(log):
                    kind = FollowerKind.REGISTERED
                    yield Follower(log, kind, each.owner, each.component, each.acknowledged)

    def _streams(self) -> Iterator[Follower]:
        for log in self._opened():
            if not is_own(log.name):
                for each in log.streams.all():
                    yield Follower(log, FollowerKind.STREAM, each.owner, each.name, each.position)


def _consumers(log: LocalLog) -> Sequence[Consumer]:
    try:
        return log.consumers()
    except (Closed, LogNotFound):  # deleted since
        return ()


def _key(follower: Follower) -> _Key:
    return follower.log, follower.kind, follower.owner, follower.component


def _of(follower: Follower) -> dict[str, str | int]:
    return {
        "log": follower.log.name,
        "owner": follower.owner,
        "component": follower.component,
        "acknowledged": follower.after,
    }
