"""Asyncio clients of a log in this process, on uvloop as the server has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import uvloop

from .stores.store import AppendAsync, Store


def run_clients(store: Store, client: Callable[[AppendAsync, int], Awaitable[None]], count: int) -> None:
    """Run `client(append, number)` so many times concurrently; raises what any of them raises."""

    async def all_of_them(append: AppendAsync) -> None:
        await asyncio.gather(*(client(append, number) for number in range(count)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(store.serve(all_of_them))
