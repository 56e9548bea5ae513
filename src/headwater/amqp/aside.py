"""Work for peers that takes long, on a thread: one at a time, and everybody who waits in turn.

Each thread takes as much of the interpreter's time as the loop has, so there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import TypeVar

from ..core.rounds import Rounds

T = TypeVar("T")


class Aside:
    """The one thread, and who waits for it. To be used on one event loop."""

    def __init__(self) -> None:
        self._rounds = Rounds(1)

    async def do(self, payer: Hashable, work: Callable[[], T], is_wanted: Callable[[], bool]) -> T | None:
        """The answer of that work; raises what it raises. None, and not done, if it is wanted no more when its turn
        comes. Where nobody waits for it any more (this is cancelled) others wait until what was begun has ended.
        """
        await self._rounds.enter(payer)
        if not is_wanted():
            self._rounds.leave()
            return None
        running = asyncio.get_running_loop().run_in_executor(None, work)
        running.add_done_callback(self._rounds.leave)
        return await asyncio.shield(running)
