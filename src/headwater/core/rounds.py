"""A few places, and everybody who waits for one in turn: who asks for a hundred delays somebody else by one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Rounds:
    """So many places, dealt round robin to those who wait. To be used on one event loop."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """Of each payer, in the order of their turns."""

    @asynccontextmanager
    async def place(self, payer: Hashable) -> AsyncIterator[None]:
        """A place, as long as the context lasts; `payer` is whose turn it takes."""
        await self.enter(payer)
        try:
            yield
        finally:
            self.leave()

    async def enter(self, payer: Hashable) -> None:
        """Wait for a place, and take it; `leave` must be called when it is needed no more."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(payer, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given in the same moment
                self.leave()
            raise

    def leave(self, _: object = None) -> None:
        """Give a place to who had none for longest, passing over who is gone."""
        while self._waiting:
            payer = next(iter(self._waiting))
            waiting = self._waiting.pop(payer)
            turn = waiting.popleft()
            if waiting:
                self._waiting[payer] = waiting
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
