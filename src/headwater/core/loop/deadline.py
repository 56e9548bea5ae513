"""A deadline that can be moved often with very few timers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

_EARLY_S = 0.001
"""A timer may fire up to this much too early."""


def _nobody() -> None:
    """The deadline was ended."""


class Deadline:
    """One deadline. A timer for each change would cost more than a call; instead, one timer checks when it fires."""

    __slots__ = ("_at", "_loop", "_passed", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[], None]) -> None:
        """`passed` is called when the deadline has passed."""
        self._loop, self._passed = loop, passed
        self._at = self._timer_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Set the deadline to this long from now, replacing the previous one."""
        self._at = at = self._loop.time() + seconds
        if at < self._timer_at:
            self.stop()
            self._at = at
            self._start(seconds)

    @property
    def is_set(self) -> bool:
        """Whether a deadline is set."""
        return self._at != math.inf

    def clear(self) -> None:
        """Clear the deadline; the timer stays for the next one."""
        self._at = math.inf

    def stop(self) -> None:
        """Clear the deadline and cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at, self._at = None, math.inf, math.inf

    def end(self) -> None:
        """Like `stop`, and also drop the callback, which would form a reference cycle."""
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
