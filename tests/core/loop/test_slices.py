"""Long work in slices: the loop goes round once for each, whatever the number of jobs."""

from __future__ import annotations

import asyncio

import pytest

from headwater.core import Event
from headwater.core.errors import InvalidEvent, TooLarge
from headwater.core.limits import check_append
from headwater.core.loop import append_builder, slices
from headwater.core.loop.append_builder import AppendBuilder
from headwater.core.loop.slices import Slices


def test_one_slice_of_all_jobs_runs_in_each_round_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    order: list[str] = []

    async def job(name: str) -> None:
        mine = Slices()
        for _ in range(5):
            await mine.pause()
            order.append(name)

    async def bystander() -> None:
        for _ in range(12):
            await asyncio.sleep(0)
            order.append("-")

    async def scenario() -> None:
        async with asyncio.timeout(10):
            await asyncio.gather(job("a"), job("b"), job("c"), bystander())

    asyncio.run(scenario())
    told = "".join(order)
    assert sorted(told.replace("-", "")) == sorted("abc" * 5)
    for pair in ("ab", "bc", "ca"):
        assert pair not in told[: told.rindex("-")], "the bystander has its turn between any two"


def test_a_slice_that_is_not_over_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        mine = Slices()
        assert not mine.is_over
        steps = mine.pause()
        with pytest.raises(StopIteration):
            steps.send(None)

    monkeypatch.setattr(slices, "SLICE_S", 60.0)
    asyncio.run(scenario())


def test_a_job_that_is_cancelled_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)

    async def job() -> int:
        mine = Slices()
        for _ in range(3):
            await mine.pause()
        return 1

    async def scenario() -> None:
        tasks = [asyncio.create_task(job()) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[2].cancel()
        async with asyncio.timeout(10):
            assert await asyncio.gather(tasks[1], tasks[3]) == [1, 1]

    asyncio.run(scenario())


def test_what_is_gathered_in_parts_is_checked_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [Event("A", b"x" * number, (f"t:{number}",), id=str(number)) for number in range(20)]
    parts = AppendBuilder(1024)
    parts.add(events[:7])
    parts.add([])
    parts.add(events[7:])
    one, whole = parts.columns(), check_append(events, 1024)
    alone = ("bytes", "count", "is_gated")
    assert [list(getattr(one, name)) for name in one.__slots__ if name not in alone] == [
        list(getattr(whole, name)) for name in whole.__slots__ if name not in alone
    ]
    assert [getattr(one, name) for name in alone] == [getattr(whole, name) for name in alone]
    with pytest.raises(InvalidEvent, match=r"events\[22\].type"):
        parts.add([Event("A"), Event("A"), Event("")])
    with pytest.raises(TooLarge, match=r"events\[20\].data"):
        parts.add([Event("A", bytes(1025))])
    monkeypatch.setattr(append_builder, "APPEND_BYTES_MAX", parts.columns().bytes)
    with pytest.raises(TooLarge, match=r"events: \d+ bytes given"):
        parts.add([Event("A")])
    monkeypatch.setattr(append_builder, "APPEND_EVENTS_MAX", 20)
    with pytest.raises(TooLarge, match="events: 21 events given, at most 20 are allowed"):
        parts.add([Event("A")])
    with pytest.raises(InvalidEvent, match="at least one event"):
        AppendBuilder(1024).columns()
