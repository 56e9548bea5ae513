"""What a data directory remembers of its clock, and what an operator says of it there; logs whose time is too late."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..core.state import StateStore
from ..formats.decoders import json_decoder
from .append.clock import MADE_AT_MS, Known, TrustedClock, show_ms
from .segments.meta import META_NAME

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
