"""Runs scenarios on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.storage.memory import MemoryStore

from .world import World


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def run() -> Iterator[Any]:
    """Runs a coroutine to its end."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def play(run: Any, store: MemoryStore) -> Any:
    """Runs a scenario, which is given a world with these settings."""

    def play(scenario: Any, **settings: Any) -> Any:
        async def within() -> Any:
            async with World(store, **settings) as world:
                return await scenario(world)

        return run(within())

    return play
