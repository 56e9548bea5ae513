"""Whose password is checked next: each place in turn, so that nobody waits for what another place has asked for.

A check takes a core for 50 ms and 16 MiB, so few run at once and the others wait here, bounded per place and in all.
Where all is full, the place that has most waiting gives way.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

CHECKS_AT_ONCE = 2
"""Threads that run scrypt: bounds what logins take of the machine, 16 MiB and one core each."""
CHECKS_WAITING_MAX = 256
"""Passwords that may wait for those threads."""
CHECKS_WAITING_OF_PLACE_MAX = 64
"""Of these, the ones of one place: what the threads check in about two seconds."""

P = ParamSpec("P")
T = TypeVar("T")


class NoRoom(Exception):
    """So much waits that this is not looked at; nothing is known of it."""


class PasswordChecks:
    """The threads that check passwords, and who waits for them. To be used on one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="password")
        self._free = CHECKS_AT_ONCE
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Of each place that waits, in the order of their turns."""
        self.waiting = 0
        """How many wait, of all places."""

    def has_room(self, place: str) -> bool:
        """Whether one more of that place may wait, or need not."""
        if self._free:
            return True
        own = len(self._queues.get(place, ()))
        return own < CHECKS_WAITING_OF_PLACE_MAX and (self.waiting < CHECKS_WAITING_MAX or own + 1 < self._longest()[1])

    @asynccontextmanager
    async def turn(self, place: str) -> AsyncIterator[None]:
        """While held, one check may `run`. Raises NoRoom, at once or when others that have less waiting came."""
        if not self.has_room(place):
            raise NoRoom
        if self._free:
            self._free -= 1
        else:
            await self._wait(place)
        try:
            yield
        finally:
            self._pass_on()

    async def run(self, check: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the check answers, from a thread; for who holds a turn."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: check(*arguments, **named))

    async def _wait(self, place: str) -> None:
        if self.waiting >= CHECKS_WAITING_MAX:
            self._drop_one()
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(place, deque()).append(turn)
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(place, turn)
            elif turn.exception() is None:  # it was given in the same moment
                self._pass_on()
            raise

    def _drop_one(self) -> None:
        """The place that has most waiting gives way; one that has been cancelled, and not left yet, is room too."""
        last = self._take(self._longest()[0], last=True)
        if not last.done():
            last.set_exception(NoRoom())

    def _leave(self, place: str, turn: asyncio.Future[None]) -> None:
        if turn in (queue := self._queues.get(place, deque())):
            queue.remove(turn)
            self.waiting -= 1
            self._forget_if_empty(place)

    def _pass_on(self) -> None:
        """A check has ended: it is the turn of the place that had none for longest."""
        while self._queues:
            turn = self._take(next(iter(self._queues)))
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _take(self, place: str, *, last: bool = False) -> asyncio.Future[None]:
        queue = self._queues[place]
        turn = queue.pop() if last else queue.popleft()
        self.waiting -= 1
        if not last:
            self._queues.move_to_end(place)
        self._forget_if_empty(place)
        return turn

    def _forget_if_empty(self, place: str) -> None:
        if not self._queues[place]:
            del self._queues[place]

    def _longest(self) -> tuple[str, int]:
        """The place that has most waiting, and how many."""
        return max(((place, len(queue)) for place, queue in self._queues.items()), key=lambda each: each[1])
