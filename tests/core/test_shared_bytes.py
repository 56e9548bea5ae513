"""The budget of what threads hold: no holder takes all, and all comes back."""

from __future__ import annotations

import threading

import pytest

from headwater.core.errors import Overloaded, TooLarge
from headwater.core.shared_bytes import FREE_BYTES, KIB, MIB, STEP_BYTES, SharedBytes

BUDGET = 64 * MIB


def test_the_first_64_kib_of_a_part_are_not_in_the_budget() -> None:
    shared = SharedBytes(BUDGET)
    parts = [shared.part() for _ in range(10_000)]
    assert all(part.take(FREE_BYTES) for part in parts)
    assert shared.bytes == 0
    assert parts[0].take(1) and shared.bytes == STEP_BYTES


def test_one_part_holds_half_of_what_others_leave() -> None:
    shared = SharedBytes(BUDGET)
    first, second = shared.part(), shared.part()
    while first.take(MIB):
        pass
    assert first.bytes == BUDGET // 2
    while second.take(MIB):
        pass
    assert second.bytes == BUDGET // 4
    assert shared.refused == 2


def test_any_number_of_parts_stays_within_the_budget() -> None:
    shared = SharedBytes(BUDGET)
    parts = [shared.part() for _ in range(1000)]
    for part in parts:
        while part.take(STEP_BYTES):
            pass
    assert shared.bytes <= BUDGET
    assert sum(part.bytes for part in parts) <= BUDGET + 1000 * FREE_BYTES
    for part in parts:
        part.give(part.bytes)
    assert shared.bytes == 0


def test_what_can_never_fit_is_too_large_and_what_does_not_fit_now_is_overloaded() -> None:
    shared = SharedBytes(BUDGET)
    first, second = shared.part(), shared.part()
    with pytest.raises(TooLarge, match=f"{BUDGET} bytes of memory given, at most {shared.largest} are allowed"):
        first.claim(BUDGET, "events")
    first.claim(shared.largest, "events")
    with pytest.raises(Overloaded, match=f"{shared.largest} bytes of memory are needed") as refused:
        second.claim(shared.largest, "events")
    assert (refused.value.waiting_bytes, refused.value.allowed_bytes) == (shared.largest, BUDGET // 4 + FREE_BYTES)
    first.give(first.bytes)
    second.claim(shared.largest, "events")


def test_the_room_is_what_can_be_taken() -> None:
    shared = SharedBytes(BUDGET)
    first, second = shared.part(), shared.part()
    first.claim(10 * MIB, "events")
    second.claim(5 * MIB + 1, "events")
    assert not second.take(second.room + STEP_BYTES)
    assert second.take(second.room - STEP_BYTES)


def test_what_is_there_already_is_counted_whatever_room_there_is() -> None:
    shared = SharedBytes(BUDGET)
    holding, asking = shared.part(), shared.part()
    holding.hold(2 * BUDGET)
    assert asking.take(FREE_BYTES) and not asking.take(1)
    holding.give(2 * BUDGET)
    assert shared.bytes == 0 and asking.take(1)


def test_many_threads_never_exceed_it_and_give_all_back() -> None:
    shared = SharedBytes(MIB)
    most: list[int] = []

    def run() -> None:
        part, peak = shared.part(), 0
        for number in range(3000):
            size = (number * 7919) % 300_000
            if part.take(size):
                peak = max(peak, shared.bytes)
                part.give(size)
        most.append(peak)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(most) == 8 and max(most) <= MIB
    assert shared.bytes == 0


@pytest.mark.parametrize("budget", [1, 20_000, 100 * KIB, 300 * KIB, MIB + 7])
def test_what_may_be_taken_at_most_can_be_taken_and_a_byte_more_never_fits(budget: int) -> None:
    shared = SharedBytes(budget)
    part = shared.part()
    assert part.take(part.largest)
    part.give(part.bytes)
    with pytest.raises(TooLarge):
        part.claim(part.largest + 1, "events")
