"""The clock that events are recorded by: the system's, as far as it can be right. One for all logs of a server.

`recorded_at` never goes back, so one step of the system's clock into the far future would stay for ever: events would
keep that time, nothing would grow old any more, and no look-up by time would find anything. So a step forward that time
cannot have made (`CLOCK_BOOTTIME` tells how much has passed, suspension included) is told and *held*: time goes on from
what was trusted. The clock is believed once it has shown the same for as long as the patience, or as an operator says
so. A step back is taken over at once, as ever: `recorded_at` waits for it.

Where nothing is known (a new data directory), whatever the clock shows is believed; and a time before this software was
made is that of a clock that was never set, so that the step to the right time is no jump.

`ClockMemory` stores the last trusted time in the data directory, so that the next process can judge the clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ...core.state import StateStore
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType
from ...formats.decoders import json_decoder
from ..segments.meta import META_NAME

logger = logging.getLogger("headwater.storage")

TOLERANCE_MS = 10 * 60 * 1000
"""A step forward by less than that is no jump: time servers do so."""
GAP_MS_MAX = 400 * 24 * 60 * 60 * 1000
"""So long a server may have been off, as far as its clock says at the start."""
PATIENCE_MS = 60 * 60 * 1000
MADE_AT_MS = 1_767_225_600_000
"""2026-01-01: a clock that shows less was never set."""


def shown_ms() -> int:
    """The system's clock, in ms since 1970 UTC. With that of `core.clocks`, appends would pass one file more."""
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    """ms since some moment, by a clock that nobody sets, and that goes on while the system is suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True)
class Known:
    """What outlives the process, so that the next one can judge the clock. All are ms since 1970 UTC."""

    trusted_ms: int
    """The time that events got."""
    shown_ms: int
    """What the system's clock showed then."""
    held_from_ms: int = 0
    """What it showed when it jumped; 0 if it is believed."""


class TrustedClock:
    """Answers the time when called, in ms since 1970 UTC. Any thread may call it."""

    def __init__(
        self,
        shown: Callable[[], int] = shown_ms,
        elapsed: Callable[[], int] = elapsed_ms,
        *,
        patience_ms: int = PATIENCE_MS,
        bus: Bus | None = None,
    ) -> None:
        """`shown` is the system's clock; `bus` is told when it jumps, and when it is believed again."""
        self._shown, self._elapsed, self.patience_ms, self._bus = shown, elapsed, patience_ms, bus or Bus()
        self._changing = threading.Lock()
        self._is_known = False
        self._line = self._line_at = 0
        """What was trusted last, and `elapsed` then. No time can be later than that plus what has passed, but for..."""
        self._allowance = GAP_MS_MAX
        """...that: a tolerance, or at the start how long the server may have been off."""
        self._held_since: int | None = None
        """`elapsed` when the clock jumped; None while it is believed."""
        self._behind_since: int | None = None
        """`elapsed` when the clock went back behind what was trusted: after the patience, that is what is trusted."""
        self._held_from = self._ahead = 0
        """What it showed then, and by how much that was too late."""

    def __call__(self) -> int:
        """The time to record events by."""
        with self._changing:
            return self._judged(self._shown(), self._elapsed())

    @property
    def is_held(self) -> bool:
        """Whether the system's clock has jumped, and is not believed yet."""
        return self._held_since is not None

    @property
    def ahead_ms(self) -> int:
        """By how much the system's clock is ahead of what is trusted; 0 while it is believed."""
        return self._ahead if self.is_held else 0

    def trouble(self) -> str | None:
        """What to tell an operator; None while the system's clock is believed."""
        if not self.is_held:
            return None
        with self._changing:
            left_s = max(0, self.patience_ms - (self._elapsed() - (self._held_since or 0))) // 1000
        return (
            f"the clock jumped ahead by {_duration(self._ahead)}: events keep the time before it. If it is right now, "
            f"accept it (headwater clock --accept), or wait {left_s} s; if it is wrong, set it"
        )

    def accept(self) -> None:
        """An operator says that the system's clock is right."""
        with self._changing:
            shown, passed = self._shown(), self._elapsed()
            self._line, self._line_at, self._is_known, self._allowance = shown, passed, True, TOLERANCE_MS
            self._settle("accepted", shown)

    def known(self) -> Known | None:
        """What the next process is to know; None if nothing is known."""
        with self._changing:
            shown, passed = self._shown(), self._elapsed()
            trusted = self._judged(shown, passed)
            if not self._is_known:
                return None
            return Known(
                max(trusted, self._line + passed - self._line_at), shown, self._held_from if self.is_held else 0
            )

    def restore(self, known: Known) -> None:
        """Go on from what a process before this one knew."""
        with self._changing:
            shown, passed = self._shown(), self._elapsed()
            self._is_known, self._line, self._line_at, self._allowance = True, known.trusted_ms, passed, GAP_MS_MAX
            off = shown - known.shown_ms
            if known.held_from_ms and 0 <= off <= GAP_MS_MAX and known.held_from_ms <= shown:
                self._line += off  # the same clock, still wrong or right after all
                self._allowance = TOLERANCE_MS
                self._hold(shown, passed - (shown - known.held_from_ms), shown - self._line, known.held_from_ms)

    def _judged(self, shown: int, passed: int) -> int:
        if not self._is_known:
            self._is_known, self._line, self._line_at = shown >= MADE_AT_MS, shown, passed
            self._allowance = TOLERANCE_MS
            return shown
        line = self._line + passed - self._line_at
        if shown > line + self._allowance:
            return self._doubted(shown, passed, line)
        if self.is_held:
            self._settle("returned", shown)
        if shown >= line - TOLERANCE_MS:
            self._allowance, self._behind_since = TOLERANCE_MS, None
        elif shown >= MADE_AT_MS:
            self._behind_since = passed if self._behind_since is None else self._behind_since
        is_corrected = self._behind_since is not None and passed - self._behind_since >= self.patience_ms
        if shown >= line or is_corrected:
            self._line, self._line_at, self._behind_since = shown, passed, None
        return shown

    def _doubted(self, shown: int, passed: int, line: int) -> int:
        ahead = shown - line
        if not self.is_held or abs(ahead - self._ahead) > TOLERANCE_MS:
            self._hold(shown, passed, ahead, shown)
        assert self._held_since is not None
        if passed - self._held_since < self.patience_ms:
            return line
        self._line, self._line_at, self._allowance = shown, passed, TOLERANCE_MS
        self._settle("patience", shown)
        return shown

    def _hold(self, shown: int, since: int, ahead: int, held_from: int) -> None:
        self._held_since, self._held_from, self._ahead = since, held_from, ahead
        logger.warning(
            "the clock jumped ahead by %s, to %s: events keep the time before it, until it has stayed so for %s, "
            "or is accepted (headwater clock --accept)",
            _duration(ahead), show_ms(shown), _duration(self.patience_ms),
        )  # fmt: skip
        self._bus.emit(
            NotificationType.CLOCK_JUMPED,
            shown=show_ms(shown),
            trusted=show_ms(shown - ahead),
            aheadMs=ahead,
            patienceMs=self.patience_ms,
        )

    def _settle(self, how: str, trusted: int) -> None:
        if self.is_held:
            self._held_since = None
            self._bus.emit(NotificationType.CLOCK_SETTLED, how=how, trusted=show_ms(trusted))


def show_ms(ms: int) -> str:
    """A time for people, in UTC, however wrong it is."""
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms after 1970"


def _duration(ms: int) -> str:
    hours = ms / 3_600_000
    return (
        f"{hours / 24:,.0f} days" if hours >= 48 else f"{hours:,.1f} hours" if hours >= 1 else f"{ms // 60_000} minutes"
    )


KIND, KNOWN, ACCEPTED = "clock", "known", "accepted"
SAVE_MS = 60 * 60 * 1000
"""So often it is written down how late it is: at the next start, days do not matter."""
POISONED_MS = 24 * 60 * 60 * 1000
"""An event that is recorded so far in the future was so by a wrong clock (or the present one is wrong)."""


class ClockMemory:
    """Restores a clock when its directory is opened, and writes down what it knows. One thread at a time."""

    def __init__(self, state: StateStore, clock: TrustedClock, logs: Path) -> None:
        """`logs` has the directories of the logs: where nothing is written down, it is seen when they were open."""
        self._state, self._clock = state, clock
        known = read_known(state) or _seen(logs, clock())
        if known is not None:
            clock.restore(known)
        self._saved = known
        self.look()

    def look(self) -> None:
        """Judge the clock, whether events come or not; follow what the operator has said of it; write it down."""
        self._clock()
        if self._state.get(KIND, ACCEPTED) is not None:
            self._clock.accept()
            self._state.delete(KIND, ACCEPTED)
            self.save()
        elif (known := self._clock.known()) is not None and self._is_news(known):
            self.save()

    def save(self) -> None:
        """Write down what the next process is to know."""
        if (known := self._clock.known()) is not None:
            self._state.put(KIND, KNOWN, msgspec.json.encode(known), is_durable=False)
            self._saved = known

    def _is_news(self, known: Known) -> bool:
        saved = self._saved
        return (
            saved is None
            or known.held_from_ms != saved.held_from_ms
            or abs(known.trusted_ms - saved.trusted_ms) >= SAVE_MS
        )


def read_known(state: StateStore) -> Known | None:
    """What is written down of the clock; None if nothing is, or nothing that can be read: it is judged anew."""
    entry = state.get(KIND, KNOWN)
    try:
        return None if entry is None else json_decoder(Known).decode(entry.value)
    except msgspec.MsgspecError:
        return None


def accept_clock(state: StateStore) -> None:
    """An operator says that the clock is right; whoever serves the directory finds that within a second."""
    state.put(KIND, ACCEPTED, b"")


def _seen(logs: Path, now: int) -> Known | None:
    """When a log of this directory was last opened or closed, as the clock showed then; None if nothing tells."""
    times = [path.stat().st_mtime_ns // 1_000_000 for path in logs.glob(f"*/{META_NAME}")]
    newest = max(times, default=now + 1)
    return Known(newest, newest) if newest <= now else None


def poisoned(name: str, recorded_at: int, now: int) -> str | None:
    """What to tell an operator of a log whose newest event is recorded far in the future; None if it is not."""
    if recorded_at <= now + POISONED_MS or now < MADE_AT_MS:
        return None
    return (
        f"log {name}: its newest event is recorded at {show_ms(recorded_at)}, in the future: until then "
        f"retention by age drops nothing, and look-ups by time miss new events. Stop the server, and repair it: "
        f"headwater check --repair-clock {name}"
    )
