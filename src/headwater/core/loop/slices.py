"""Long work on an event loop in slices of a few ms, so that other requests are served in between.

All slices of one loop wait in one queue: between any two slices, the loop completes one round. So a hundred jobs delay
an unrelated request no longer than one does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from weakref import WeakKeyDictionary

SLICE_S = 0.003
"""How long one slice lasts. Keep indivisible work (one call into a decoder) well below 20 ms."""


class Slices:
    """One job; its first slice begins at construction. Call `pause` between steps that are short by themselves."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends = perf_counter() + SLICE_S

    @property
    def is_over(self) -> bool:
        """Whether the slice has lasted long enough; a loop without `await` checks this before it calls `pause`."""
        return perf_counter() >= self._ends

    async def pause(self) -> None:
        """Let other tasks run if the slice is over; otherwise continue at once."""
        if perf_counter() >= self._ends:
            await self.turn()

    async def turn(self) -> None:
        """Always let other tasks run: the next step is a slice by itself."""
        await turn()
        self._ends = perf_counter() + SLICE_S


_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[asyncio.Future[None]]] = WeakKeyDictionary()


async def turn() -> None:
    """Wait until the loop has completed one round for every slice already waiting.

    If thousands of tasks become ready at once, each with a little work, each waits for its turn.
    """
    loop = asyncio.get_running_loop()
    queue = _waiting.setdefault(loop, deque())
    mine = loop.create_future()
    queue.append(mine)
    if len(queue) == 1:
        loop.call_soon(_next, loop, queue)
    await mine


def _next(loop: asyncio.AbstractEventLoop, queue: deque[asyncio.Future[None]]) -> None:
    """Begin the next slice and schedule the one after it for the next round, so that each round has one slice."""
    if not queue[0].done():  # it is done only if its job was cancelled
        queue[0].set_result(None)
    queue.popleft()
    if queue:
        loop.call_soon(_next, loop, queue)
