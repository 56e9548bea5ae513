"""Pushes that wait for an answer, of which a success counts however late it comes."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

LATE_MAX = 4
"""Pushes of one `seq` whose answers are waited for; the oldest is given up for one more."""


class Reach(NamedTuple):
    """Which part of the log a push was about."""

    start: int
    """What the consumer had acknowledged."""
    upto: int
    """What it has acknowledged with a success."""


class Unanswered:
    """The pushes of one `seq` to one consumer. The future of each is the name of an error, or None for success."""

    def __init__(self) -> None:
        self._reaches: dict[asyncio.Future[str | None], Reach] = {}

    def __bool__(self) -> bool:
        return bool(self._reaches)

    def add(self, answer: asyncio.Future[str | None], reach: Reach) -> None:
        """Wait for one more."""
        if len(self._reaches) >= LATE_MAX:
            oldest = next(iter(self._reaches))
            del self._reaches[oldest]
            oldest.cancel()
        self._reaches[answer] = reach

    def taken(self) -> Reach | None:
        """Of those that were answered with success, what reaches furthest; all that were answered are forgotten."""
        answered = [answer for answer in self._reaches if answer.done()]
        reaches = {answer: self._reaches.pop(answer) for answer in answered}
        successes = [reach for answer, reach in reaches.items() if not answer.cancelled() and answer.result() is None]
        return max(successes, key=lambda reach: reach.upto, default=None)

    async def success(self, timeout_s: float, answer: asyncio.Future[str | None] | None = None) -> Reach | None:
        """Wait for the first success of any; None after that time, or when `answer` turns out to be an error."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._reaches and (left_s := deadline - loop.time()) > 0:
            await asyncio.wait(self._reaches, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if (reach := self.taken()) is not None:
                return reach
            if answer is not None and answer.done():
                return None
        await asyncio.sleep(max(0.0, deadline - loop.time()))
        return None

    def forget(self) -> None:
        """Wait for none of them any more."""
        for answer in self._reaches:
            answer.cancel()
        self._reaches.clear()
