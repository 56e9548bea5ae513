"""The notifications that wait for one listener: bounded; the oldest is lost first, and the next says how many were."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from ...core.watch.bus import Bus, Notification
from ...core.watch.notification_types import EVERY_TYPE, NotificationType
from .catalog import LOST

WAITING_MAX = 1000
"""Of what was looked at, and of what was not: so many each."""
LOOKS_MAX = 32
"""So many are looked at in one go, so that an event loop has other turns, however many listeners have theirs."""


class NotificationQueue:
    """Notifications on their way from the threads that emit them to one listener.

    `wake` is called, in any thread, when there is something to take after there was nothing; it must only hand over
    (`loop.call_soon_threadsafe`). After that it is not called again until `take` has found the queue empty.
    """

    def __init__(
        self,
        bus: Bus,
        wake: Callable[[], None],
        types: Iterable[NotificationType] = EVERY_TYPE,
        *,
        accepts: Callable[[Notification], bool] | None = None,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        """Listen from now on to those types. `accepts` is asked in the thread that takes, never in one that emits.

        What it is asked about has the attribute `lost` already, if notifications were lost before it.
        """
        self._wake, self._accepts = wake, accepts
        self._waiting_max = waiting_max
        self._lock = threading.Lock()
        self._waiting: deque[Notification] = deque()
        """What was not looked at yet."""
        self._lost = 0
        """Of those, since the last that was accepted."""
        self._is_awake = False
        self._accepted: deque[tuple[Notification, int]] = deque()
        """What was looked at and waits to be taken, each with how many were lost before it. Only who takes is here."""
        self.lost_total = 0
        self._unsubscribe = bus.subscribe(self._put, types)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, accepted or not."""
        return not self._waiting and not self._accepted

    @property
    def waiting(self) -> int:
        """How many notifications wait, accepted or not."""
        return len(self._waiting) + len(self._accepted)

    @property
    def is_looked_at(self) -> bool:
        """Whether nothing waits but what is accepted."""
        return not self._waiting

    def take(
        self, count: int, *, looks_max: int = LOOKS_MAX, goes_on: Callable[[], bool] = lambda: True
    ) -> list[Notification]:
        """The next ones, at most so many, that are accepted, of the next `looks_max`. They do not wait any more.

        `goes_on` is asked after each look: whether there is time for another.

        If the queue `is_empty` afterwards, `wake` is called for the next; else come again. What was lost before one
        is in its attribute `lost`, also if what was lost would not have been accepted: nobody has looked at it.
        """
        for _ in range(looks_max):
            if len(self._accepted) >= count or not self._look_at_next() or not goes_on():
                break
        return [_with_lost(*self._accepted.popleft()) for _ in range(min(count, len(self._accepted)))]

    def look(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """To be called where nothing can be taken: so that what is not accepted takes no room from what is.

        `goes_on` as for `take`.

        If the queue `is_looked_at` afterwards, `wake` is called for the next; else come again.
        """
        for _ in range(LOOKS_MAX):
            if not self._look_at_next() or not goes_on():
                return

    def lose_oldest(self) -> None:
        """There is no room for all: the oldest is lost, and the next one says so."""
        with self._lock:
            lost = 1
            if self._accepted:
                lost += self._accepted.popleft()[1]
            elif self._waiting:
                self._waiting.popleft()
                self._is_awake = bool(self._waiting)
            if self._accepted:
                oldest, before = self._accepted[0]
                self._accepted[0] = oldest, before + lost
            else:
                self._lost += lost
            self.lost_total += 1

    def close(self) -> None:
        """Listen no more, and know nothing of the listener, so that it goes at once."""
        self._unsubscribe()
        self._unsubscribe = self._wake = _nothing
        self._accepts = None
        self._waiting.clear()
        self._accepted.clear()

    def _look_at_next(self) -> bool:
        """Accept the next one, or drop it; whether there was one."""
        with self._lock:
            if not self._waiting:
                return False
            notification = self._waiting.popleft()
            self._is_awake = bool(self._waiting)
            lost = self._lost
        if self._accepts is None or self._accepts(_with_lost(notification, lost)):
            with self._lock:
                self._lost -= lost
            self._accept(notification, lost)
        return True

    def _accept(self, notification: Notification, lost: int) -> None:
        self._accepted.append((notification, lost))
        if len(self._accepted) > self._waiting_max:
            _, before = self._accepted.popleft()
            oldest, lost = self._accepted[0]
            self._accepted[0] = oldest, lost + before + 1
            with self._lock:
                self.lost_total += 1

    def _put(self, notification: Notification) -> None:
        with self._lock:
            if len(self._waiting) >= self._waiting_max:
                self._waiting.popleft()
                self._lost += 1
                self.lost_total += 1
            self._waiting.append(notification)
            if self._is_awake:
                return
            self._is_awake = True
        self._wake()


def _nothing() -> None:
    pass


def _with_lost(notification: Notification, lost: int) -> Notification:
    return notification._replace(attributes={**notification.attributes, LOST: lost}) if lost else notification
