"""A time by which something is due, set anew for each thing that is: with hardly any timers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

_EARLY_S = 0.001
"""A timer may come so early."""


def _nobody() -> None:
    """It was ended."""


class Deadline:
    """One time by which something is due. A timer for each would cost more than a call: one looks when it is due."""

    __slots__ = ("_at", "_loop", "_passed", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[], None]) -> None:
        """`passed` is called when the time has come."""
        self._loop, self._passed = loop, passed
        self._at = self._timer_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """It is due so long from now, and not when it was due before."""
        self._at = at = self._loop.time() + seconds
        if at < self._timer_at:
            self.stop()
            self._at = at
            self._start(seconds)

    @property
    def is_set(self) -> bool:
        """Whether something is due."""
        return self._at != math.inf

    def clear(self) -> None:
        """Nothing is due for now; the timer is left for what will be."""
        self._at = math.inf

    def stop(self) -> None:
        """Nothing will be due any more, and no timer is left."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at, self._at = None, math.inf, math.inf

    def end(self) -> None:
        """As `stop`, for ever: it also forgets whom to call, which would be kept in memory by it, and it by that."""
        self.stop()
        self._passed = _nobody

    def _start(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)
        self._timer_at = self._loop.time() + seconds

    def _look(self) -> None:
        left = self._at - self._loop.time()
        self._timer, self._timer_at = None, math.inf
        if left == math.inf:
            return
        if left > _EARLY_S:
            self._start(left)
        else:
            self._passed()
