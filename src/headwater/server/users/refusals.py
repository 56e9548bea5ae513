"""Recent refusals by peer: a small table, in which one peer can have only a few rows.

Each place has its own rows; above its limit, refusals are counted in one row without the names that were tried.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...core.client_subnet import place_of
from ...core.clocks import wall_clock_ms
from ...core.quoting import cut
from ...core.watch.bus import Bus, Notification
from ...core.watch.notification_types import NotificationType

ROWS_MAX, ROWS_OF_PLACE_MAX = 1000, 16
KEPT_MS = 3_600_000
_NOTED = {NotificationType.CONNECTION_REFUSED: "connection", NotificationType.AUTHENTICATION_FAILED: "login"}
TEXT_CHARS_MAX = 256


class About(NamedTuple):
    """The fields that distinguish refusals."""

    kind: str
    """`connection`, `login` or `access`."""
    reason: str
    protocol: str | None
    user: str | None
    """None for users beyond the number that is distinguished."""
    peer: str | None


@dataclass(slots=True)
class RefusalCount:
    """A count of equal refusals."""

    number: int
    about: About
    first_at: int
    last_at: int
    """In ms since 1970."""
    count: int = 0
    right: str | None = None
    log: str | None = None
    """For accesses: the log of the last refused access."""


class Refusals:
    """The refusals of one server. Any thread may call it."""

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: OrderedDict[About, RefusalCount] = OrderedDict()
        """The most recent one is last."""
        self._by_number: dict[int, RefusalCount] = {}
        self._places: Counter[str] = Counter()
        self._counted = 0

    def listen(self, bus: Bus) -> None:
        """Record refusals reported on the bus."""
        bus.subscribe(self._take, _NOTED)

    def _take(self, notification: Notification) -> None:
        told = notification.attributes
        kind = _NOTED[notification.type]
        texts = {name: str(told[name]) for name in ("protocol", "user", "peer") if name in told}
        self.note(kind, str(told["reason"]), **texts)

    def note(
        self,
        kind: str,
        reason: str,
        *,
        protocol: str | None = None,
        user: str | None = None,
        peer: str | None = None,
        right: str | None = None,
        log: str | None = None,
    ) -> None:
        """Record a refusal."""
        user = None if user is None else cut(user, TEXT_CHARS_MAX)
        about = About(kind, reason, protocol, user, peer)
        with self._lock:
            row = self._rows.get(about) or self._rows.get(about := self._bounded(about)) or self._added(about)
            row.last_at = self._clock()
            row.count += 1
            if right is not None:
                row.right, row.log = right, None if log is None else cut(log, TEXT_CHARS_MAX)
            self._rows.move_to_end(about)
            self._forget()

    def numbers(self) -> list[int]:
        """The numbers of all kept rows, in order."""
        with self._lock:
            self._forget()
            return list(self._by_number)

    def row(self, number: int) -> RefusalCount | None:
        """A copy of that row, if it is kept."""
        with self._lock:
            row = self._by_number.get(number)
            return None if row is None else replace(row)

    def _bounded(self, about: About) -> About:
        """The same; or, if its place has the maximum number of rows, without the fields that a peer can invent."""
        if self._places[_place(about)] < ROWS_OF_PLACE_MAX:
            return about
        peer = None if about.peer is None else _place(about)
        return about._replace(user=None, peer=peer)

    def _added(self, about: About) -> RefusalCount:
        self._counted += 1
        now = self._clock()
        row = self._rows[about] = self._by_number[self._counted] = RefusalCount(self._counted, about, now, now)
        self._places[_place(about)] += 1
        return row

    def _forget(self) -> None:
        until = self._clock() - KEPT_MS
        while self._rows:
            about, oldest = next(iter(self._rows.items()))
            if len(self._rows) <= ROWS_MAX and oldest.last_at > until:
                return
            del self._rows[about], self._by_number[oldest.number]
            place = _place(about)
            self._places[place] -= 1
            if not self._places[place]:
                del self._places[place]


def _place(about: About) -> str:
    return f"user {about.user}" if about.peer is None else place_of(about.peer)
