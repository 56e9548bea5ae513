"""Work of one request that takes many short steps: each is a turn of the user's, and all together have a budget.

So a question about a large log costs others nothing but their share of the loop's time, and its answer says how far it
got.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from typing import TypeVar

from ...core.loop.slices import Slices
from ...http import Exchange
from ...http.errors import Disconnected
from ..host import Host

WORK_S_MAX = 0.5
"""CPU time for the steps of one request."""

T = TypeVar("T")


class Work:
    """What one request may spend. Use it as a context; what it watches ends with it."""

    def __init__(self, host: Host, exchange: Exchange, seconds: float = WORK_S_MAX) -> None:
        """The body of the request has been read."""
        self._turns, self._flow = host.turns, host.flow(exchange)
        self._exchange, self._left = exchange, seconds
        self._gone: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether all is spent."""
        return self._left <= 0

    async def __aenter__(self) -> Work:
        self._gone = asyncio.ensure_future(self._exchange.disconnected())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._gone is not None
        self._gone.cancel()

    async def steps(self, steps: Iterator[T], *, is_bounded: bool = True) -> AsyncGenerator[T, None]:
        """What each step gives, until there is none, or the budget is spent; one is taken at least.

        Where they are not `is_bounded`, all are taken: whoever asks has made sure that they are few.
        Raises Disconnected where the client has gone, and what a step raises.
        """
        assert self._gone is not None, "use it as a context"
        slices = Slices()  # steps that cost next to nothing are done at once, so that the loop would never go round
        step = partial(self._timed, partial(next, steps, None))
        while (found := await self._turns.do(self._flow, step)) is not None:
            yield found
            await slices.pause()
            if self._gone.done():
                raise Disconnected
            if is_bounded and self.is_over:
                return

    async def do(self, work: Callable[[], T]) -> T:
        """The answer of one short piece of work, whatever is left. Raises Disconnected, and what it raises."""
        answer = await self._turns.do(self._flow, partial(self._timed, work))
        if self._gone is not None and self._gone.done():
            raise Disconnected
        return answer

    def _timed(self, work: Callable[[], T]) -> T:
        began = self._turns.cpu()
        try:
            return work()
        finally:
            self._left -= self._turns.cpu() - began
