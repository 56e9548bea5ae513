"""Runs the work of one request in many short steps. Each is one of the user's turns, and together they have a budget.

So a request on a large log delays others by no more than its share of the loop's time, and its answer states how much
was processed.
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
    """The budget of one request.

    Use it as a context manager, which also stops watching for the client's disconnection.
    """

    def __init__(self, host: Host, exchange: Exchange, seconds: float = WORK_S_MAX) -> None:
        """Create it only after reading the request's body."""
        self._turns, self._flow = host.turns, host.flow(exchange)
        self._exchange, self._left = exchange, seconds
        self._gone: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent."""
        return self._left <= 0

    async def __aenter__(self) -> Work:
        self._gone = asyncio.ensure_future(self._exchange.disconnected())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._gone is not None
        self._gone.cancel()

    async def steps(self, steps: Iterator[T], *, is_bounded: bool = True) -> AsyncGenerator[T, None]:
        """The result of each step, until no step is left or the budget is spent; at least one step runs.

        Without `is_bounded`, all steps run: the caller ensures that they are few. Raises Disconnected if the client has
        disconnected, and the errors of a step.
        """
        assert self._gone is not None, "use it as a context"
        slices = Slices()  # very cheap steps run without waiting, so the loop would never get a turn
        step = partial(self._timed, partial(next, steps, None))
        while (found := await self._turns.do(self._flow, step)) is not None:
            yield found
            await slices.pause()
            if self._gone.done():
                raise Disconnected
            if is_bounded and self.is_over:
                return

    async def do(self, work: Callable[[], T]) -> T:
        """The result of one short piece of work, even if the budget is spent.

        Raises Disconnected, and the errors of `work`.
        """
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
