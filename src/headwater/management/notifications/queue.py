"""The bounded queue of one listener's notifications. The oldest is lost first, and the next one says how many were
lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from ...core.watch.bus import Bus, Notification
from ...core.watch.notification_types import EVERY_TYPE, NotificationType
from .catalog import LOST

WAITING_MAX = 1000
"""The limit for examined notifications, and for unexamined ones: this many each."""
LOOKS_MAX = 32
"""The number of notifications examined at once, so that many listeners do not block the event loop."""


class NotificationQueue:
    """Carries notifications from the threads that emit them to one listener.

    When the empty queue gets a notification, it calls `wake`, in any thread; `wake` must only hand over
    (`loop.call_soon_threadsafe`). It is not called again until `take` has found the queue empty.
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
        """Listen to these types from now on. `accepts` is called in the thread that takes, never in a thread that
        emits.

        If notifications were lost before one, it has the attribute `lost` when `accepts` sees it.
        """
        self._wake, self._accepts = wake, accepts
        self._waiting_max = waiting_max
        self._lock = threading.Lock()
        self._waiting: deque[Notification] = deque()
        """Notifications not examined yet."""
        self._lost = 0
        """How many unexamined notifications were lost since the last accepted one."""
        self._is_awake = False
        self._accepted: deque[tuple[Notification, int]] = deque()
        """Accepted notifications, each with the number that were lost before it. Only the taking thread uses this."""
        self.lost_total = 0
        self._unsubscribe = bus.subscribe(self._put, types)

    @property
    def is_empty(self) -> bool:
        """Whether no notification is waiting, accepted or not."""
        return not self._waiting and not self._accepted

    @property
    def waiting(self) -> int:
        """How many notifications wait, accepted or not."""
        return len(self._waiting) + len(self._accepted)

    @property
    def is_looked_at(self) -> bool:
        """Whether all queued notifications are accepted."""
        return not self._waiting

    def take(
        self, count: int, *, looks_max: int = LOOKS_MAX, goes_on: Callable[[], bool] = lambda: True
    ) -> list[Notification]:
        """Remove and return at most `count` accepted notifications, examining at most `looks_max` more.

        `goes_on` is called after each examination, and returns whether there is time for another.

        If the queue `is_empty` afterwards, `wake` announces the next one; otherwise call again. The attribute `lost`
        counts the notifications lost before one, even those that would not have been accepted: they were not examined.
        """
        for _ in range(looks_max):
            if len(self._accepted) >= count or not self._look_at_next() or not goes_on():
                break
        return [_with_lost(*self._accepted.popleft()) for _ in range(min(count, len(self._accepted)))]

    def look(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Call this when nothing can be taken, so that unwanted notifications do not fill the queue.

        `goes_on` is as for `take`.

        If the queue `is_looked_at` afterwards, `wake` announces the next one; otherwise call again.
        """
        for _ in range(LOOKS_MAX):
            if not self._look_at_next() or not goes_on():
                return

    def lose_oldest(self) -> None:
        """Drop the oldest notification to make room; the next one reports this."""
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
        """Stop listening and drop all references to the listener, so that it is freed at once."""
        self._unsubscribe()
        self._unsubscribe = self._wake = _nothing
        self._accepts = None
        self._waiting.clear()
        self._accepted.clear()

    def _look_at_next(self) -> bool:
        """Accept the next one, or drop it. Returns whether there was one."""
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
