"""The clock that events are recorded by: jumps are held and told, all else is followed; and spoilt logs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Bus, LogSettings, NotificationType
from headwater.core.errors import LogNotFound, StorageUnavailable
from headwater.storage import Engine, MemoryStore, repair_clock
from headwater.storage.append.clock import (
    GAP_MS_MAX,
    MADE_AT_MS,
    PATIENCE_MS,
    TOLERANCE_MS,
    TrustedClock,
    accept_clock,
    elapsed_ms,
    show_ms,
)
from headwater.storage.segments.meta import META_NAME

from ...management.told import Told
from ..builders import engine, event, log_directory, numbers
from ..clocks import DAY_MS, HOUR_MS, IN_2200_MS, MINUTE_MS, NOW_MS, Machine


def clock_of(machine: Machine, bus: Bus | None = None, **options: int) -> TrustedClock:
    return TrustedClock(machine.shown, machine.elapsed, bus=bus, **options)


def served(data: Path, machine: Machine, bus: Bus | None = None) -> Engine:
    return engine(data, clock=clock_of(machine, bus), bus=bus)


# The clock by itself.


def test_a_jump_forward_is_held_and_time_goes_on() -> None:
    machine, bus = Machine(), Bus()
    told, clock = Told(bus), clock_of(machine, bus)
    assert clock() == NOW_MS
    machine.now = IN_2200_MS
    machine.passes(MINUTE_MS)
    assert clock() == NOW_MS + MINUTE_MS
    machine.passes(MINUTE_MS)
    assert clock() == NOW_MS + 2 * MINUTE_MS
    (jump,) = told.of(NotificationType.CLOCK_JUMPED)
    assert (jump["shown"], jump["trusted"]) == ("2200-01-01T00:01:00Z", show_ms(NOW_MS + MINUTE_MS))
    assert jump["aheadMs"] == IN_2200_MS - NOW_MS and jump["patienceMs"] == PATIENCE_MS
    assert "headwater clock --accept" in (clock.trouble() or "")
    machine.now = NOW_MS + 2 * MINUTE_MS
    machine.passes(MINUTE_MS)
    assert clock() == NOW_MS + 3 * MINUTE_MS
    assert [each["how"] for each in told.of(NotificationType.CLOCK_SETTLED)] == ["returned"]
    assert clock.trouble() is None


def test_a_clock_that_stays_as_it_is_is_believed_after_the_patience() -> None:
    """Which is right where a device without a clock of its own is set by the network."""
    machine, bus = Machine(), Bus()
    told, clock = Told(bus), clock_of(machine, bus)
    clock()
    machine.now += 3 * 365 * DAY_MS
    right = machine.now
    for _ in range(PATIENCE_MS // MINUTE_MS):
        assert clock() < NOW_MS + PATIENCE_MS
        machine.passes(MINUTE_MS)
    assert clock() == right + PATIENCE_MS
    assert [each["how"] for each in told.of(NotificationType.CLOCK_SETTLED)] == ["patience"]


def test_a_clock_that_jumps_about_is_not_believed() -> None:
    machine = Machine()
    clock = clock_of(machine)
    clock()
    for _ in range(20):
        machine.now += DAY_MS
        machine.passes(PATIENCE_MS // 2)
        assert clock() == NOW_MS + machine.up - 5_000


def test_an_operator_accepts_a_clock() -> None:
    machine, bus = Machine(), Bus()
    told, clock = Told(bus), clock_of(machine, bus)
    clock()
    machine.now += DAY_MS
    assert clock() == NOW_MS
    clock.accept()
    assert clock() == NOW_MS + DAY_MS
    assert [each["how"] for each in told.of(NotificationType.CLOCK_SETTLED)] == ["accepted"]


def test_without_patience_a_jump_is_told_and_believed() -> None:
    machine, bus = Machine(), Bus()
    told, clock = Told(bus), clock_of(machine, bus, patience_ms=0)
    clock()
    machine.now += DAY_MS
    assert clock() == NOW_MS + DAY_MS
    assert len(told.of(NotificationType.CLOCK_JUMPED)) == 1


def test_suspension_is_time_that_has_passed() -> None:
    machine = Machine()
    clock = clock_of(machine)
    clock()
    machine.passes(90 * DAY_MS)
    assert clock() == NOW_MS + 90 * DAY_MS
    before = elapsed_ms()
    assert before <= elapsed_ms() and abs(before - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000) < 60_000


def test_a_clock_that_was_never_set_is_no_evidence() -> None:
    machine = Machine(0)
    clock = clock_of(machine)
    assert clock() == 0
    machine.passes(MINUTE_MS)
    machine.now = NOW_MS
    assert clock() == NOW_MS
    machine.now = IN_2200_MS
    assert clock() == NOW_MS


def test_steps_back_are_followed_and_steps_back_to_what_was_are_no_jumps() -> None:
    machine = Machine()
    clock = clock_of(machine)
    clock()
    machine.now -= 30 * DAY_MS
    assert clock() == NOW_MS - 30 * DAY_MS
    machine.now += 30 * DAY_MS
    assert clock() == NOW_MS


def test_a_clock_that_was_corrected_for_good_is_what_is_trusted() -> None:
    """Who accepted the year 2200 by mistake, and set the clock right, is guarded again."""
    machine = Machine()
    clock = clock_of(machine)
    clock()
    machine.now = IN_2200_MS
    clock.accept()
    machine.now = NOW_MS
    assert clock() == NOW_MS
    machine.passes(PATIENCE_MS)
    clock()
    machine.now = IN_2200_MS
    assert clock() == NOW_MS + PATIENCE_MS


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("passes"), st.integers(1, 30 * DAY_MS)),
        st.tuples(st.just("drifts"), st.integers(-MINUTE_MS, MINUTE_MS)),
        st.tuples(st.just("jumps"), st.integers(TOLERANCE_MS + 2 * MINUTE_MS, 200 * 365 * DAY_MS)),
        st.tuples(st.just("back"), st.integers(1, 400 * DAY_MS)),
    ),
    max_size=30,
)


@given(STEPS)
def test_no_time_is_later_than_what_can_have_passed_unless_the_clock_has_stayed_so(
    steps: list[tuple[str, int]],
) -> None:
    machine = Machine()
    clock = clock_of(machine, patience_ms=1 << 60)
    latest = clock()
    for step, ms in steps:
        if step == "passes":
            machine.passes(ms)
            latest += ms
        elif step == "back":
            machine.now = max(MADE_AT_MS, machine.now - ms)
        else:
            machine.now += ms
            if step == "drifts":
                latest += max(0, ms)
        assert clock() <= latest + TOLERANCE_MS


@given(st.lists(st.tuples(st.integers(0, 10 * DAY_MS), st.integers(-MINUTE_MS, MINUTE_MS)), max_size=30))
def test_a_clock_that_only_drifts_is_always_followed(steps: list[tuple[int, int]]) -> None:
    machine = Machine()
    clock = clock_of(machine)
    for ms, drift in steps:
        machine.passes(ms)
        machine.now += drift
        assert clock() == machine.now
        assert not clock.is_held


# All logs of a server.


def test_a_jump_stops_neither_retention_nor_look_ups_and_drops_nothing(data: Path) -> None:
    machine, bus = Machine(), Bus()
    with served(data, machine, bus) as one:
        log = one.create("orders", LogSettings(retention_ms=HOUR_MS))
        log.append([event()])
        machine.now = IN_2200_MS
        log.append([event()])
        one.maintain()
        assert [each.recorded_at for each in log.read()] == [NOW_MS, NOW_MS]
        assert log.first_retained == 1
        (trouble,) = one.troubles()
        assert "the clock jumped ahead" in trouble
        machine.now = NOW_MS
        machine.passes(2 * HOUR_MS)
        log.append([event()])
        assert log.sequence_number_at(NOW_MS + HOUR_MS) == 3
        one.maintain()
        assert log.first_retained == 3
        assert one.troubles() == []


def test_the_log_in_memory_has_the_same_clock() -> None:
    machine = Machine()
    store = MemoryStore(clock=clock_of(machine))
    log = store.create("orders")
    log.append([event()])
    machine.now = IN_2200_MS
    log.append([event()])
    assert [each.recorded_at for each in log.read()] == [NOW_MS, NOW_MS]
    assert len(store.troubles()) == 1


@pytest.mark.parametrize("off_ms", [0, 21 * DAY_MS, 399 * DAY_MS])
def test_a_server_that_was_off_for_long_starts_as_ever(data: Path, off_ms: int) -> None:
    machine = Machine()
    with served(data, machine) as one:
        one.create("orders").append([event()])
    machine.reboots(off_ms)
    with served(data, machine) as one:
        one.open("orders").append([event()])
        assert one.troubles() == []
        assert [each.recorded_at for each in one.open("orders").read()] == [NOW_MS, NOW_MS + off_ms]


def test_a_start_in_the_far_future_is_held(data: Path) -> None:
    machine = Machine()
    with served(data, machine) as one:
        one.create("orders").append([event()])
    machine.reboots()
    machine.now = IN_2200_MS
    with served(data, machine) as one:
        log = one.open("orders")
        log.append([event()])
        assert [each.recorded_at for each in log.read()] == [NOW_MS, NOW_MS]
        assert len(one.troubles()) == 1


def test_a_clock_stays_held_over_a_restart_and_is_believed_when_its_patience_ends(data: Path) -> None:
    machine = Machine()
    with served(data, machine) as one:
        one.create("orders").append([event()])
        machine.now += 30 * DAY_MS  # less than a server may be off
        one.maintain()
    machine.reboots(10 * MINUTE_MS)
    with served(data, machine) as one:
        log = one.open("orders")
        log.append([event()])
        assert log.recorded_at == NOW_MS + 10 * MINUTE_MS
        machine.passes(50 * MINUTE_MS)
        log.append([event()])
        assert log.recorded_at == NOW_MS + 30 * DAY_MS + HOUR_MS


def test_a_directory_of_older_software_is_judged_by_when_it_was_last_open(data: Path) -> None:
    machine = Machine()
    with served(data, machine) as one:
        one.create("orders").append([event()])
        one.state.delete("clock", "known")
        one._clock_memory.save = lambda: None  # type: ignore[method-assign]
    os.utime(log_directory(data) / META_NAME, ns=(NOW_MS * 1_000_000,) * 2)
    machine.reboots()
    machine.now = NOW_MS + GAP_MS_MAX + DAY_MS
    with served(data, machine) as one:
        assert len(one.troubles()) == 1
        assert one.clock() == NOW_MS


def test_a_device_without_a_clock_of_its_own_is_set_by_the_network(data: Path) -> None:
    machine = Machine()
    with served(data, machine) as one:
        one.create("orders").append([event()])
    machine.reboots()
    machine.now = 0
    with served(data, machine) as one:
        log = one.open("orders")
        log.append([event()])
        assert one.troubles() == []
        machine.passes(MINUTE_MS)
        machine.now = NOW_MS + 20 * DAY_MS
        log.append([event()])
        assert [each.recorded_at for each in log.read()] == [NOW_MS, NOW_MS, NOW_MS + 20 * DAY_MS]


def test_an_operator_accepts_the_clock_of_a_server_that_runs(data: Path) -> None:
    machine = Machine()
    with served(data, machine) as one:
        machine.now += 10 * DAY_MS
        one.maintain()
        assert one.clock() == NOW_MS
        accept_clock(one.state)
        one.maintain()
        assert one.clock() == NOW_MS + 10 * DAY_MS
        one.maintain()
        assert one.troubles() == []


# Logs that a wrong clock has written on.


def spoilt(data: Path) -> Machine:
    """A log with three good events, and two that were recorded in 2200."""
    machine = Machine()
    with served(data, machine) as one:
        log = one.create("orders", LogSettings(retention_ms=30 * DAY_MS))
        for _ in range(3):
            log.append([event()])
            machine.passes(MINUTE_MS)
        machine.now = IN_2200_MS
        one.clock.accept()
        log.append([event()])
        log.append([event()])
        assert log.recorded_at == IN_2200_MS
    machine.reboots()
    machine.now = NOW_MS + HOUR_MS
    return machine


def test_a_spoilt_log_is_told_with_its_remedy(data: Path) -> None:
    machine = spoilt(data)
    with served(data, machine) as one:
        log = one.open("orders")
        log.append([event()])
        assert log.recorded_at == IN_2200_MS
        (trouble,) = one.troubles()
        assert "headwater check --repair-clock orders" in trouble and "2200-01-01" in trouble


def test_a_mended_log_goes_on_by_time(data: Path) -> None:
    machine = spoilt(data)
    mended_at = machine.now
    assert repair_clock(data, "orders", mended_at) == (4, 5, IN_2200_MS, mended_at)
    assert repair_clock(data, "orders", mended_at) is None
    with served(data, machine) as one:
        log = one.open("orders")
        assert one.troubles() == []
        machine.passes(HOUR_MS)
        assert log.append([event()]).first == 6
        times = [each.recorded_at for each in log.read()]
        assert times[3:] == [IN_2200_MS, IN_2200_MS, mended_at + HOUR_MS], "what is stored stays; it goes back once"
        found = {ms: log.sequence_number_at(ms) for ms in (NOW_MS, NOW_MS + 1, mended_at, mended_at + 1, IN_2200_MS)}
        assert found == {NOW_MS: 1, NOW_MS + 1: 2, mended_at: 4, mended_at + 1: 6, IN_2200_MS: 7}
        machine.passes(29 * DAY_MS)
        one.maintain()
        assert log.first_retained == 1
        machine.passes(DAY_MS)
        one.maintain()
        assert numbers(log.read()) == [6], (
            "the spoilt ones were dropped when they were as old as that, since the mending"
        )
    with served(data, machine) as again:
        assert again.open("orders").append([event()]).first == 7
        assert again.open("orders").recorded_at == machine.now


def test_a_mended_log_that_is_spoilt_again_can_be_mended_again(data: Path) -> None:
    machine = spoilt(data)
    repair_clock(data, "orders", machine.now)
    with served(data, machine) as one:
        log = one.open("orders")
        log.append([event()])
        machine.now = IN_2200_MS
        one.clock.accept()
        log.append([event()])
    machine.reboots()
    machine.now = NOW_MS + 2 * HOUR_MS
    found = repair_clock(data, "orders", machine.now)
    assert found is not None and (found.first, found.last) == (7, 7)
    with served(data, machine) as one:
        assert one.open("orders").sequence_number_at(NOW_MS + HOUR_MS + 1) == 7
        assert one.open("orders").sequence_number_at(NOW_MS + 2 * HOUR_MS + 1) == 8


def test_what_cannot_be_mended_is_told(data: Path) -> None:
    machine = spoilt(data)
    with pytest.raises(LogNotFound):
        repair_clock(data, "flights", machine.now)
    with served(data, machine), pytest.raises(StorageUnavailable):
        repair_clock(data, "orders", machine.now)
