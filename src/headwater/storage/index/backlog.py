"""Back-pressure: bounds the bytes of index entries that a process holds in memory only, by delaying appends.

One worker writes the index files, behind the appends. Entries that it has not written are in memory, and a start after
a crash reads their events again. So a ceiling limits their bytes, for all logs together:

    unindexed bytes         a bulk load (staged batches, Flight)      all other appends
    ----------------------  ----------------------------------------  --------------------------------------------
    below half              passes                                    pass
    half to the ceiling     pauses before each append                 pass
    ceiling to 1.25 times   waits for room, then Overloaded           pass
    from 1.25 times on      waits for room, then Overloaded           Overloaded

A caller that gets Overloaded waits or passes the error on; the index wakes the waiters. Frames that a log reads at a
start or fetches from its home, and marks without events, are never refused. A log whose indexing fails repeatedly does
not count towards the limit of other logs; its own appends get StorageUnavailable instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain

from ...core.errors import EventLogError, Overloaded, StorageUnavailable

UNINDEXED_BYTES_MAX = 64 * 1024 * 1024
"""About 600,000 events with two short tags, for which a start took 2 to 4 s (record 202)."""
FAILURES_MAX = 3
"""After this many failures in a row, appends no longer wait."""
PAUSE_S_MAX = 0.25
"""The pause of a bulk load before an append, just below the ceiling."""
ROOM_S_MAX = 1.0
"""How long a bulk load waits for room. A refused caller waits at least as long before it repeats the call."""
EVENT_BYTES = 32
TAG_BYTES = 32
"""The memory of an event, and of each of its tags without the tag's text, in a table (`postings`)."""
ID_BYTES = 24
"""The memory of an event's id. A run (`runs`) knows the rest of its memory."""
_STEPS = 16 * 1024
"""A log's account grows in steps of this fraction of the ceiling, so that not every event takes the process lock."""
_EVENTS_AT_ONCE = 1024
EXPECTED_EVENT_BYTES = 128
"""The bytes counted for an event from submission to answer, whatever its tags."""


def weight(tags: Sequence[tuple[str, ...]]) -> int:
    """The bytes of events with these tags. A single call for millions of tags would block other threads."""
    size = EVENT_BYTES * len(tags)
    for start in range(0, len(tags), _EVENTS_AT_ONCE):
        some = tags[start : start + _EVENTS_AT_ONCE]
        size += TAG_BYTES * sum(map(len, some)) + sum(map(len, chain.from_iterable(some)))
    return size


def coded_weight(events: int, tags: int, text_bytes: int) -> int:
    """Like `weight`, for events with `tags` tags whose distinct texts take `text_bytes`."""
    return EVENT_BYTES * events + TAG_BYTES * tags + text_bytes


class Backlog:
    """The account of one process. Safe to call from any thread; its lock is held only briefly."""

    def __init__(self, bytes_max: int = UNINDEXED_BYTES_MAX) -> None:
        """`bytes_max` is the ceiling."""
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        self._urgent = threading.Condition(self._lock)
        """Notified when indexing becomes urgent."""
        self._eased = threading.Condition(self._lock)
        """Notified when the index has made progress, or fails."""
        self._shares: set[LogBacklog] = set()
        self._stuck: set[LogBacklog] = set()
        """The shares of logs whose indexing fails repeatedly."""
        self._bytes = self._unindexed = 0
        self._is_awaited = False
        """Whether an append was refused since the last wake."""
        self.interrupts = 0
        """How often waits were ended."""

    @property
    def bytes(self) -> int:
        """The unindexed bytes of all logs and of pending appends."""
        return self._bytes

    @property
    def unindexed(self) -> int:
        """The unindexed bytes of all logs."""
        return self._unindexed

    @property
    def is_urgent(self) -> bool:
        """Whether unindexed bytes reach half the ceiling. If so, every part is indexed, however small.

        Logs whose indexing fails repeatedly do not count: indexing small parts of other logs would not help them.
        """
        return (self._unindexed - self._unindexable()) * 2 >= self.bytes_max

    def share(self, name: str, wake: Callable[[], None] = lambda: None) -> LogBacklog:
        """The share of the log with that name. `wake` is called on any thread when there is room again."""
        share = LogBacklog(self, name, wake)
        with self._lock:
            self._shares.add(share)
        return share

    def wait_until_urgent(self, timeout_s: float) -> None:
        """Wait until indexing is urgent, for at most that time or until `interrupt`."""
        with self._lock:
            if not self.is_urgent:
                self._urgent.wait(timeout_s)

    def interrupt(self) -> None:
        """End the current waits."""
        with self._lock:
            self.interrupts += 1
            self._urgent.notify_all()
            self._eased.notify_all()

    # For the shares, which hold the lock

    def _add(self, unindexed: int) -> None:
        was_urgent = self.is_urgent
        self._unindexed += unindexed
        self._bytes += unindexed
        if self.is_urgent and not was_urgent:
            self._urgent.notify_all()

    def _wakes(self) -> list[Callable[[], None]]:
        """The callbacks to call after the lock is released, if an append was refused and there is room again."""
        if not self._is_awaited or self._bytes - self._unindexable() >= self.bytes_max:
            return []
        self._is_awaited = False
        return [share.wake for share in self._shares]

    def _unindexable(self, besides: LogBacklog | None = None) -> int:
        """The unindexed bytes of logs whose indexing fails repeatedly, except one."""
        if not self._stuck:
            return 0
        return sum([each._unindexed for each in tuple(self._stuck) if each is not besides])


class LogBacklog:
    """The share of one log."""

    def __init__(self, backlog: Backlog, name: str, wake: Callable[[], None]) -> None:
        self.backlog, self._name, self.wake = backlog, name, wake
        self.step_bytes = backlog.bytes_max // _STEPS
        self._unindexed = 0
        self._reserved = 0
        self._failures = 0
        self._problem: str | None = None

    @property
    def unindexed(self) -> int:
        """The unindexed bytes of the log."""
        return self._unindexed

    @property
    def problem(self) -> str | None:
        """Why indexing fails and how to fix it, after FAILURES_MAX failures in a row; None otherwise."""
        return self._problem

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to index the log failed."""
        return self._failures > 0

    @property
    def is_urgent(self) -> bool:
        """Whether to index every part of the log: indexing is urgent for all logs, or the last attempt failed.

        So an attempt succeeds only if it indexed something.
        """
        return self.backlog.is_urgent or self.is_failing

    @property
    def has_room(self) -> bool:
        """Whether a copy may fetch more of the log: below the ceiling, or if the log has less than an even share.

        So a copy skips the logs that fill the backlog and fetches the others.
        """
        backlog = self.backlog
        with backlog._lock:
            return self._counted() < backlog.bytes_max or self._unindexed * len(backlog._shares) < backlog.bytes_max

    def reserve(self, events: int, *, is_bulk: bool) -> None:
        """Admit an append of that many events. Raises Overloaded, or StorageUnavailable with the `problem`.

        An append larger than the ceiling passes while less than half the ceiling is used.
        """
        backlog, wanted = self.backlog, events * EXPECTED_EVENT_BYTES
        with backlog._lock:
            if backlog._bytes * 2 >= backlog.bytes_max:
                allowed = backlog.bytes_max if is_bulk else backlog.bytes_max * 5 // 4
                if counted := self._excess(events, allowed):
                    if self._problem is not None:
                        reason = f"the events of log {self._name} cannot be indexed"
                        raise StorageUnavailable(self._problem, reason=reason)
                    backlog._is_awaited = True
                    raise Overloaded(counted, allowed, is_of_index=True)
            self._reserved += wanted
            backlog._bytes += wanted

    def give_back(self, events: int) -> None:
        """Release the reservation of that many events: they are in the index, or refused."""
        backlog = self.backlog
        with backlog._lock:
            released = min(events * EXPECTED_EVENT_BYTES, self._reserved)  # none after the log was closed
            self._reserved -= released
            backlog._bytes -= released
            wakes = backlog._wakes() if backlog._is_awaited else []
        for wake in wakes:
            wake()

    def count(self, unindexed: int) -> None:
        """Set the log's unindexed bytes, after each rise by `step_bytes` and each fall; ignored once it is closed."""
        with self.backlog._lock:
            if self not in self.backlog._shares:
                return
            change, self._unindexed = unindexed - self._unindexed, unindexed
            self.backlog._add(change)
            if change < 0:
                self.backlog._eased.notify_all()
            wakes = self.backlog._wakes()
        for wake in wakes:
            wake()

    def pause_s(self) -> float:
        """The pause of a bulk load before its next append."""
        half = self.backlog.bytes_max / 2
        return PAUSE_S_MAX * min(max(self._counted() / half - 1, 0), 1)

    def pause(self, events: int) -> None:
        """Before a bulk load appends that many events: pause, then wait until they are admitted.

        A pause ends when the backlog shrinks, and the wait after ROOM_S_MAX, at `interrupt`, or if indexing fails.
        """
        backlog, deadline = self.backlog, time.monotonic() + ROOM_S_MAX
        with backlog._lock:
            interrupts = backlog.interrupts
            if (seconds := self.pause_s()) > 0:
                backlog._eased.wait(seconds)
            while self._excess(events, backlog.bytes_max) and not self.is_failing and interrupts == backlog.interrupts:
                if not backlog._eased.wait(deadline - time.monotonic()):
                    return

    def failed(self, error: EventLogError | OSError) -> None:
        """Record a failed attempt to index the log."""
        with self.backlog._lock:
            self._failures += 1
            self.backlog._eased.notify_all()
            if self._failures < FAILURES_MAX:
                return
            self._problem = (
                f"log {self._name}: its events could not be indexed {self._failures} times in a row ({error}); appends "
                "are refused until indexing succeeds, which is retried every second: free disk space if the disk is "
                "full, or stop the server, then run headwater check to find damage"
            )
            self.backlog._stuck.add(self)
            wakes = [share.wake for share in self.backlog._shares]
        for wake in wakes:
            wake()

    def succeeded(self) -> None:
        """Record a successful attempt to index the log."""
        if self._failures:
            with self.backlog._lock:
                self._failures, self._problem = 0, None
                self.backlog._stuck.discard(self)
                if self.backlog.is_urgent:
                    self.backlog._urgent.notify_all()

    def close(self) -> None:
        """Stop counting the bytes of a closed log."""
        with self.backlog._lock:
            self.backlog._shares.discard(self)
            self.backlog._stuck.discard(self)
            self.backlog._add(-self._unindexed)
            self.backlog._bytes -= self._reserved
            self._unindexed = self._reserved = 0
            self.backlog._eased.notify_all()
            wakes = self.backlog._wakes()
        for wake in wakes:
            wake()

    def _excess(self, events: int, allowed: int) -> int:
        """The bytes that already count, if that many more events would exceed those allowed; 0 if they are admitted."""
        counted = self._counted()
        is_over = counted * 2 >= self.backlog.bytes_max and counted + events * EXPECTED_EVENT_BYTES > allowed
        return counted if is_over else 0

    def _counted(self) -> int:
        """The bytes that count for an append to this log: all except the bytes of other logs whose indexing fails."""
        backlog = self.backlog
        return backlog._bytes - (backlog._unindexable(besides=self) if backlog._stuck else 0)
