"""How long no server ran, by what runs write down of themselves."""

from __future__ import annotations

from headwater.amqp.positions import downtime
from headwater.storage.memory import MemoryState

HOUR_MS = 3_600_000
START_MS = 1_790_000_000_000


def begun(state: MemoryState, now_ms: int) -> downtime.UptimeRun:
    """A run that is noted at its start, as a container does."""
    run = downtime.begin(state, now_ms)
    downtime.note(state, run, now_ms)
    return run


def test_a_run_that_ends_at_once_counts_from_its_start() -> None:
    """Power is lost before the first ten minutes are over."""
    state = MemoryState()
    assert begun(state, START_MS).down_ms == 0
    assert begun(state, START_MS + 100 * HOUR_MS).down_ms == 100 * HOUR_MS


def test_a_run_counts_up_to_where_it_was_noted() -> None:
    state = MemoryState()
    run = begun(state, START_MS)
    downtime.note(state, run, START_MS + HOUR_MS)
    assert begun(state, START_MS + 3 * HOUR_MS).down_ms == 2 * HOUR_MS


def test_a_clock_that_starts_in_1970_adds_no_years() -> None:
    state = MemoryState()
    begun(state, START_MS)
    run = begun(state, 5_000)
    downtime.note(state, run, 5_000 + HOUR_MS)
    assert begun(state, START_MS + HOUR_MS).down_ms == HOUR_MS
