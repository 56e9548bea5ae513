"""The clock for `recorded_at`: the system clock, as long as it is plausible. All logs of a server share one clock.

`recorded_at` never goes back, so one step of the system clock into the far future would be permanent: events would keep
that time, retention by age would stop, and lookups by time would find nothing. So a step forward larger than the time
that passed (by `CLOCK_BOOTTIME`, which includes suspension) is reported and *held*: time continues from the last
trusted time. The clock is trusted again once it has stayed consistent for the patience, or when an operator accepts it.
A step back is accepted at once: `recorded_at` waits for it.

In a new data directory, any time is trusted. A time before this software was written means that the clock was never
set, so the step to the right time is not a jump.

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
"""A smaller step forward is not a jump: time servers make such steps."""
GAP_MS_MAX = 400 * 24 * 60 * 60 * 1000
"""The longest time for which a server may have been off, by its clock at the start."""
PATIENCE_MS = 60 * 60 * 1000
MADE_AT_MS = 1_767_225_600_000
"""2026-01-01: a clock that shows an earlier time was never set."""
_ELAPSED: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def shown_ms() -> int:
    """The system clock, in ms since 1970 UTC. Using the clock of `core.clocks` would add a file to the append path."""
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    """ms since a fixed moment, by a clock that cannot be set and that runs while the system is suspended."""
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000


@dataclass(frozen=True)
class Known:
    """What the next process needs to judge the clock. All times are ms since 1970 UTC."""

    trusted_ms: int
    """The time with which events were recorded."""
    shown_ms: int
    """The system clock at that moment."""
    held_from_ms: int = 0
    """The system clock when it jumped; 0 while it is trusted."""


class TrustedClock:
    """A callable that returns the time in ms since 1970 UTC. Safe to call from any thread."""

    def __init__(
        self,
        shown: Callable[[], int] = shown_ms,
        elapsed: Callable[[], int] = elapsed_ms,
        *,
        patience_ms: int = PATIENCE_MS,
        bus: Bus | None = None,
    ) -> None:
        """`shown` is the system clock; `bus` is notified when it jumps and when it is trusted again."""
        self._shown, self._elapsed, self.patience_ms, self._bus = shown, elapsed, patience_ms, bus or Bus()
        self._changing = threading.Lock()
        self._is_known = False
        self._line = self._line_at = 0
        """The last trusted time, and `elapsed` at that moment. No time can be later than that time plus the time
        passed, plus..."""
        self._allowance = GAP_MS_MAX
        """...this: a tolerance or, at the start, the time for which the server may have been off."""
        self._held_since: int | None = None
        """`elapsed` when the clock jumped; None while it is trusted."""
        self._behind_since: int | None = None
        """`elapsed` when the clock fell behind the trusted time: after the patience, it is trusted."""
        self._held_from = self._ahead = 0
        """The system clock at that moment, and its lead over the trusted time."""

    def __call__(self) -> int:
        """The time with which to record events."""
        with self._changing:
            return self._judged(self._shown(), self._elapsed())

    @property
    def is_held(self) -> bool:
        """Whether the system clock has jumped and is not trusted yet."""
        return self._held_since is not None

    @property
    def ahead_ms(self) -> int:
        """How far the system clock is ahead of the trusted time; 0 while it is trusted."""
        return self._ahead if self.is_held else 0

    def trouble(self) -> str | None:
        """A message for the operator; None while the system clock is trusted."""
        if not self.is_held:
            return None
        with self._changing:
            left_s = max(0, self.patience_ms - (self._elapsed() - (self._held_since or 0))) // 1000
        return (
            f"the clock jumped ahead by {_duration(self._ahead)}: events get the trusted "
            f"time instead. If the clock is right, "
            f"accept it (headwater clock --accept), or wait {left_s} s; if it is wrong, set it"
        )

    def accept(self) -> None:
        """Trust the system clock, because an operator says that it is right."""
        with self._changing:
            shown, passed = self._shown(), self._elapsed()
            self._line, self._line_at, self._is_known, self._allowance = shown, passed, True, TOLERANCE_MS
            self._settle("accepted", shown)

    def known(self) -> Known | None:
        """What to store for the next process; None if nothing is known."""
        with self._changing:
            shown, passed = self._shown(), self._elapsed()
            trusted = self._judged(shown, passed)
            if not self._is_known:
                return None
            return Known(
                max(trusted, self._line + passed - self._line_at), shown, self._held_from if self.is_held else 0
            )

    def restore(self, known: Known) -> None:
        """Continue from the state that an earlier process stored."""
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
        if self._held_since is not None:
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
            "the clock jumped ahead by %s, to %s: events get the trusted time until the clock has been stable for %s "
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
    """A time in readable form, in UTC, however wrong it is."""
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
"""The interval at which the time is stored. At the next start, days do not matter."""
POISONED_MS = 24 * 60 * 60 * 1000
"""An event recorded this far in the future was recorded by a wrong clock (or the present one is wrong)."""


class ClockMemory:
    """Restores a clock when its directory is opened, and stores what it knows. One thread at a time."""

    def __init__(self, state: StateStore, clock: TrustedClock, logs: Path) -> None:
        """`logs` contains the log directories: if nothing is stored, they show when the logs were open."""
        self._state, self._clock = state, clock
        known = read_known(state) or _seen(logs, clock())
        if known is not None:
            clock.restore(known)
        self._saved = known
        self.look()

    def look(self) -> None:
        """Judge the clock even without events, apply the operator's decision about it, and store it."""
        self._clock()
        if self._state.get(KIND, ACCEPTED) is not None:
            self._clock.accept()
            self._state.delete(KIND, ACCEPTED)
            self.save()
        elif (known := self._clock.known()) is not None and self._is_news(known):
            self.save()

    def save(self) -> None:
        """Store what the next process needs."""
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
    """The stored state of the clock; None if none is readable. The clock is then judged without it."""
    entry = state.get(KIND, KNOWN)
    try:
        return None if entry is None else json_decoder(Known).decode(entry.value)
    except msgspec.MsgspecError:
        return None


def accept_clock(state: StateStore) -> None:
    """Record that an operator trusts the clock; the process that serves the directory notices within a second."""
    state.put(KIND, ACCEPTED, b"")


def _seen(logs: Path, now: int) -> Known | None:
    """When a log of this directory was last opened or closed, by the clock of that moment; None if unknown."""
    times = [path.stat().st_mtime_ns // 1_000_000 for path in logs.glob(f"*/{META_NAME}")]
    newest = max(times, default=now + 1)
    return Known(newest, newest) if newest <= now else None


def poisoned(name: str, recorded_at: int, now: int) -> str | None:
    """A message for the operator if the newest event of a log is recorded far in the future; else None."""
    if recorded_at <= now + POISONED_MS or now < MADE_AT_MS:
        return None
    return (
        f"log {name}: its newest event is recorded at {show_ms(recorded_at)}, in the future: until then "
        f"retention by age drops nothing and lookups by time miss new events. Stop the server and repair it: "
        f"headwater check --repair-clock {name}"
    )
