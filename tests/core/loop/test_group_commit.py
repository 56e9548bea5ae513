"""Group commit: who asks while a commit runs shares the next one."""

from __future__ import annotations

import asyncio
import gc

import pytest

from headwater.core.loop.group_commit import GroupCommit


class Held:
    """Commits that end when they are told to."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[int]] = []

    async def __call__(self) -> int:
        self.begun.append(asyncio.get_running_loop().create_future())
        return await self.begun[-1]

    async def begins(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.begun) < count:
                await asyncio.sleep(0)


def test_those_that_ask_while_a_commit_runs_share_the_next_one() -> None:
    async def test() -> None:
        held = Held()
        commits = GroupCommit(held)
        first = asyncio.ensure_future(commits.committed())
        await held.begins(1)
        later = [asyncio.ensure_future(commits.committed()) for _ in range(5)]
        await asyncio.sleep(0)
        held.begun[0].set_result(1)
        assert await first == 1
        await held.begins(2)
        held.begun[1].set_result(2)
        assert await asyncio.gather(*later) == [2] * 5
        assert len(held.begun) == 2

    asyncio.run(test())


def test_a_commit_that_fails_is_the_outcome_of_all_that_shared_it_and_of_no_other() -> None:
    async def test() -> None:
        held = Held()
        commits = GroupCommit(held)
        ended = [asyncio.ensure_future(commits.committed()) for _ in range(2)]
        await held.begins(1)
        held.begun[0].set_exception(OSError("away"))
        assert [str(each) for each in await asyncio.gather(*ended, return_exceptions=True)] == ["away"] * 2
        again = asyncio.ensure_future(commits.committed())
        await held.begins(2)
        held.begun[1].set_result(3)
        assert await again == 3

    asyncio.run(test())


def test_a_commit_goes_on_when_one_that_waits_for_it_is_cancelled() -> None:
    async def test() -> None:
        held = Held()
        commits = GroupCommit(held)
        gone, stays = (asyncio.ensure_future(commits.committed()) for _ in range(2))
        await held.begins(1)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        held.begun[0].set_result(1)
        assert await stays == 1

    asyncio.run(test())


def test_a_commit_that_fails_for_callers_that_are_gone_is_no_error_of_the_loop() -> None:
    async def test() -> list[object]:
        heard: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context["message"]))
        held = Held()
        gone = asyncio.ensure_future(GroupCommit(held).committed())
        await held.begins(1)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        held.begun[0].set_exception(OSError("away"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        return heard

    assert asyncio.run(test()) == []
