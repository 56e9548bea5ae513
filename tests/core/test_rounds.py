"""A few places: everybody in turn, and none for who is gone."""

from __future__ import annotations

import asyncio

from headwater.core.rounds import Rounds


class Visits:
    """Stays at the places, in the order in which they began; each lasts until it is told to end."""

    def __init__(self, places: int) -> None:
        self.rounds = Rounds(places)
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def visit(self, payer: str, name: str) -> asyncio.Task[None]:
        self.ends[name] = asyncio.Event()
        return asyncio.create_task(self._visit(payer, name))

    async def _visit(self, payer: str, name: str) -> None:
        async with self.rounds.place(payer):
            self.begun.append(name)
            await self.ends[name].wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_so_many_at_a_time_and_payers_in_turn() -> None:
    async def scenario() -> None:
        visits = Visits(2)
        tasks = [visits.visit("busy", f"b{number}") for number in range(5)]
        await settled()
        tasks += [visits.visit("other", "o0"), visits.visit("other", "o1")]
        await settled()
        assert visits.begun == ["b0", "b1"]
        for name in ("b0", "b1", "b2", "o0"):
            visits.ends[name].set()
            await settled()
        assert visits.begun == ["b0", "b1", "b2", "o0", "b3", "o1"]
        for end in visits.ends.values():
            end.set()
        await asyncio.gather(*tasks)
        assert sorted(visits.begun) == sorted(visits.ends)

    asyncio.run(scenario())


def test_who_goes_is_passed_over_and_a_place_is_given_back_whatever_happens() -> None:
    async def scenario() -> None:
        visits = Visits(1)
        first, gone, last = (visits.visit("a", name) for name in ("first", "gone", "last"))
        await settled()
        gone.cancel()
        first.cancel()
        await settled()
        assert visits.begun == ["first", "last"]
        last.cancel()
        await settled()
        again = visits.visit("b", "again")
        await settled()
        assert visits.begun[-1] == "again"
        again.cancel()
        await asyncio.gather(first, gone, last, again, return_exceptions=True)

    asyncio.run(scenario())


def test_a_place_that_is_given_to_somebody_who_goes_in_that_moment_is_passed_on() -> None:
    async def scenario() -> None:
        rounds = Rounds(1)
        await rounds.enter("a")
        gone, last = (asyncio.create_task(rounds.enter(payer)) for payer in ("b", "c"))
        await settled()
        rounds.leave()
        gone.cancel()
        await settled()
        assert gone.cancelled() and last.done()

    asyncio.run(scenario())
