"""Whose password is checked next: in turn, bounded, and nobody's turn is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headwater.server import password_checks
from headwater.server.password_checks import NoRoom, PasswordChecks


class World:
    """Checks that take as long as the test says, and what became of them."""

    def __init__(self) -> None:
        self.checks = PasswordChecks()
        self.begun: list[str] = []
        self.refused: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.running: list[asyncio.Event] = []

    async def ask(self, place: str, name: str) -> None:
        self.tasks[name] = asyncio.create_task(self._check(place, name))
        await asyncio.sleep(0)

    async def _check(self, place: str, name: str) -> None:
        try:
            async with self.checks.turn(place):
                self.begun.append(name)
                self.running.append(ended := asyncio.Event())
                await ended.wait()
        except NoRoom:
            self.refused.append(name)

    async def end_one(self) -> None:
        self.running.pop(0).set()
        for _ in range(4):
            await asyncio.sleep(0)

    async def end_all(self) -> None:
        while self.running:
            await self.end_one()


def in_a_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World()
        await scenario(world)
        await world.end_all()
        assert world.checks.waiting == 0 and not world.checks._queues
        assert world.checks._free == password_checks.CHECKS_AT_ONCE

    asyncio.run(run())


def test_places_take_turns_whatever_one_of_them_asks_for() -> None:
    async def scenario(world: World) -> None:
        for number in range(6):
            await world.ask("crowd", f"crowd {number}")
        await world.ask("one", "one")
        await world.ask("two", "two")
        await world.end_all()
        expected = ["crowd 0", "crowd 1", "crowd 2", "one", "two", "crowd 3", "crowd 4", "crowd 5"]
        assert world.begun == expected

    in_a_world(scenario)


def test_one_place_has_its_share_of_the_queue_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_checks, "CHECKS_WAITING_OF_PLACE_MAX", 3)

    async def scenario(world: World) -> None:
        for number in range(8):
            await world.ask("crowd", f"crowd {number}")
        await world.ask("one", "one")
        assert world.refused == ["crowd 5", "crowd 6", "crowd 7"]

    in_a_world(scenario)


def test_where_all_is_full_the_place_with_most_waiting_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_checks, "CHECKS_WAITING_MAX", 4)

    async def scenario(world: World) -> None:
        for number in range(6):
            await world.ask("crowd", f"crowd {number}")
        assert world.checks.waiting == 4
        for name in ("one", "two", "three"):
            await world.ask(name, name)
        await asyncio.sleep(0)
        assert world.refused == ["crowd 5", "crowd 4", "crowd 3"] and world.checks.waiting == 4
        await world.ask("four", "four")
        assert world.refused[3:] == ["four"], "all places have one, and none gives way"

    in_a_world(scenario)


def test_who_leaves_takes_nobodys_turn_along() -> None:
    async def scenario(world: World) -> None:
        for number in range(4):
            await world.ask("crowd", f"crowd {number}")
        await world.ask("one", "one")
        world.tasks["crowd 2"].cancel()
        await asyncio.sleep(0)
        assert world.checks.waiting == 2
        world.running.pop(0).set()
        await asyncio.sleep(0)
        world.tasks["crowd 3"].cancel()  # in the moment in which it may have its turn
        world.tasks["one"].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await world.ask("two", "two")
        assert "two" in world.begun

    in_a_world(scenario)


def test_who_has_just_gone_gives_way_without_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_checks, "CHECKS_WAITING_MAX", 2)

    async def scenario(world: World) -> None:
        for number in range(4):
            await world.ask("crowd", f"crowd {number}")
        world.tasks["one"] = asyncio.create_task(world._check("one", "one"))
        world.tasks["crowd 3"].cancel()  # which does not know yet when the other one comes
        await asyncio.sleep(0)
        assert not world.tasks["one"].done() and world.checks.waiting == 2
        await world.end_all()
        assert world.begun == ["crowd 0", "crowd 1", "crowd 2", "one"] and world.refused == []

    in_a_world(scenario)
