"""A few places, assigned to payers round robin: a hundred calls by one payer delay another payer by one call.

For work that holds a scarce resource while it runs: a thread, a core for 50 ms, the store of entities. The unit of
fairness is the payer (a user, or the address of an unknown peer), because each payer controls how many calls it makes.

    event                      a place is free      none is free
    -------------------------  -------------------  ---------------------------------------------------------------
    `enter`                    it is taken          the payer's queue grows by one; a payer without a queue is last
    `leave`                    one more is free     the first of the payer whose turn it is gets the place; that payer
                                                    is last now
    cancelled while waiting    -                    its queue shrinks by one
    cancelled just as it gets  as `leave`
      the place

Rules:

1. *No place is idle while a call waits*, and none is lost: each `enter` that returns has one `leave`.
2. *Within a payer, first come, first served.* A turn does not depend on how many calls of another payer wait.
3. *Bounds.* The waiting calls are limited per payer and in total. When full, the payer with the longest queue gives up
   its newest, for a payer whose queue is shorter by more than one. Others get `NoRoom`, unprocessed.

Everything happens on one event loop; only the work passed to `run` runs on a thread.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


class NoRoom(Exception):
    """The queue is full, so the call was not processed."""


class FairSemaphore:
    """A fixed number of places on one event loop."""

    def __init__(self, places: int, *, waiting_max: float = math.inf, waiting_of_payer_max: float = math.inf) -> None:
        """`waiting_max` limits the waiting calls, `waiting_of_payer_max` those of one payer."""
        self._free = places
        self._waiting_max, self._waiting_of_payer_max = waiting_max, waiting_of_payer_max
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """The waiting calls of each payer, in the order of their turns."""
        self.waiting = 0
        """The number of waiting calls, of all payers."""

    def has_room(self, payer: Hashable) -> bool:
        """Whether one more call of that payer may wait, or gets a place at once."""
        if self._free:
            return True
        own = len(self._queues.get(payer, ()))
        if own >= self._waiting_of_payer_max:
            return False
        return self.waiting < self._waiting_max or own + 1 < self._longest()[1]

    @asynccontextmanager
    async def place(self, payer: Hashable) -> AsyncIterator[None]:
        """A place for the duration of the context, as `payer`'s turn. Raises the same errors as `enter`."""
        await self.enter(payer)
        try:
            yield
        finally:
            self.leave()

    async def enter(self, payer: Hashable) -> None:
        """Wait for a place and take it; call `leave` when it is no longer needed.

        Raises NoRoom: at once, or later to make room for a payer with a shorter queue.
        """
        if self._free:
            self._free -= 1
            return
        if not self.has_room(payer):
            raise NoRoom
        if self.waiting >= self._waiting_max:
            self._drop_one()
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(payer, deque()).append(turn)
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._withdraw(payer, turn)
            elif turn.exception() is None:  # granted at the same moment
                self.leave()
            raise

    def leave(self, _: object = None) -> None:
        """Give a place to the payer whose turn it is, skipping cancelled calls."""
        while self._queues:
            turn = self._take(next(iter(self._queues)))
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def run(self, payer: Hashable, work: Callable[[], T], is_wanted: Callable[[], bool]) -> T | None:
        """The result of that work, run on a thread. Raises the errors of the work and of `enter`.

        Returns None without running it if it is no longer wanted when its turn comes. If this is cancelled, its place
        stays taken until the work has ended.
        """
        await self.enter(payer)
        if not is_wanted():
            self.leave()
            return None
        try:
            running = asyncio.get_running_loop().run_in_executor(None, work)
        except BaseException:  # no more threads can start
            self.leave()
            raise
        running.add_done_callback(self.leave)
        return await asyncio.shield(running)

    def _drop_one(self) -> None:
        """Drop a call of the payer with the most waiting; a cancelled call that has not left yet also makes room."""
        last = self._take(self._longest()[0], last=True)
        if not last.done():
            last.set_exception(NoRoom())

    def _withdraw(self, payer: Hashable, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(payer, deque())
        if turn in queue:
            queue.remove(turn)
            self.waiting -= 1
            if not queue:
                del self._queues[payer]

    def _take(self, payer: Hashable, *, last: bool = False) -> asyncio.Future[None]:
        """The first call of a payer, which then moves to the end; or its last call, which changes no turn."""
        queue = self._queues[payer]
        turn = queue.pop() if last else queue.popleft()
        self.waiting -= 1
        if not queue:
            del self._queues[payer]
        elif not last:
            self._queues[payer] = self._queues.pop(payer)
        return turn

    def _longest(self) -> tuple[Hashable, int]:
        """The payer with the most waiting calls, and their number."""
        return max(((payer, len(queue)) for payer, queue in self._queues.items()), key=lambda each: each[1])
