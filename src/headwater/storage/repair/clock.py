"""Repairs a log written with a wrong clock, whose last events are recorded in the future.

The events stay unchanged. META records their numbers and the time of the repair. From now on, look-ups by time and
retention by age use that time for them. `recorded_at` continues from there: it decreases this one time.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ...core.clocks import wall_clock_ms
from ...core.errors import LogNotFound
from ..append.clock import TOLERANCE_MS, accept_clock
from ..catalog.directories import LOGS, known_logs
from ..catalog.identity import identified, record_identity
from ..catalog.trim_point import take_over
from ..index.builder import frames_of
from ..segments.meta import FRAMES, Meta
from ..segments.recovery import scanned_segments
from ..state.data_directory import lock_directory, open_state


class Distrusted(NamedTuple):
    """The events recorded by a wrong clock."""

    first: int
    last: int
    recorded_at: int
    """The time of the first of them."""
    taken_as: int
    """The time that is used for them. Like `recorded_at`, in ms since 1970 UTC."""


def repair_clock(directory: Path, name: str, now: int | None = None) -> Distrusted | None:
    """Distrust the events of a log recorded after `now` (default: the system clock's time).

    Returns None if there are none. The data directory must not be served. The system clock is trusted at the next
    start, whatever it was before. Raises LogNotFound, StorageUnavailable, StorageCorrupted.
    """
    now = wall_clock_ms() if now is None else now
    with closing(lock_directory(directory)), closing(open_state(directory, is_locked=True)) as state:
        entry = known_logs(state).get(name)
        if entry is None:
            raise LogNotFound(name)
        log_directory = directory / LOGS / entry.directory
        meta, _ = identified(state, log_directory)
        found = _found(log_directory, meta, now)
        if found is not None:
            distrusted = [*meta.distrusted, (found.first, found.last, found.taken_as)]
            take_over(state, meta)
            meta = meta.changed(distrusted=distrusted)
            record_identity(state, log_directory, meta)
            meta.write(log_directory)
        accept_clock(state)
        return found


def _found(log_directory: Path, meta: Meta, now: int) -> Distrusted | None:
    """The events from the first one recorded after `now` to the end: times never decrease by themselves."""
    first = last = recorded_at = before = 0
    for segment in scanned_segments(log_directory / FRAMES, meta):
        for frame in frames_of(segment):
            taken_as, last = meta.counts_as(frame.last), frame.last
            if first or taken_as is not None or frame.recorded_at <= now + TOLERANCE_MS:
                before = before if first else (taken_as or frame.recorded_at)
            else:
                first, recorded_at = frame.first, frame.recorded_at
    return Distrusted(first, last, recorded_at, max(now, before)) if first else None
