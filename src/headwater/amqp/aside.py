"""Work for peers that takes long, on a thread: one at a time, and everybody who waits in turn.

Each thread takes as much of the interpreter's time as the loop has, so there is one. Who has given a hundred pieces of
work delays somebody else's by one of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Aside:
    """The one thread, and who waits for it. To be used on one event loop."""

    def __init__(self) -> None:
        self._is_busy = False
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """Of each payer, in the order of their turns."""

    async def do(self, payer: Hashable, work: Callable[[], T], is_wanted: Callable[[], bool]) -> T | None:
        """The answer of that work; raises what it raises. None, and not done, if it is wanted no more when its turn
        comes. Where nobody waits for it any more (this is cancelled) others wait until what was begun has ended.
        """
        await self._turn(payer)
        if not is_wanted():
            self._pass_on()
            return None
        running = asyncio.get_running_loop().run_in_executor(None, work)
        running.add_done_callback(self._pass_on)
        return await asyncio.shield(running)

    async def _turn(self, payer: Hashable) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(payer, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given in the same moment
                self._pass_on()
            raise

    def _pass_on(self, _: Any = None) -> None:
        """It is the turn of who had none for longest; who is gone is passed over."""
        while self._waiting:
            payer = next(iter(self._waiting))
            waiting = self._waiting.pop(payer)
            turn = waiting.popleft()
            if waiting:
                self._waiting[payer] = waiting
            if not turn.done():
                turn.set_result(None)
                return
        self._is_busy = False
