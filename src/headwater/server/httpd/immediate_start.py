"""Coroutines that run at once, as far as they get without waiting.

An ordinary task begins in the next turn of the event loop. Most requests wait for nothing, and that turn is a third of
what a small one costs. Python 3.12 knows tasks that begin at once (`eager_start`); for 3.11 the same is done here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

Work = Coroutine[Any, Any, None]


def run_at_once(loop: asyncio.AbstractEventLoop, work: Work) -> asyncio.Task[None]:
    """A task of the running loop; its work is done as far as it gets without waiting, and so perhaps to its end.

    Called from within a task, where no other one can run, it is an ordinary task.
    """
    if asyncio.current_task(loop) is not None:
        return loop.create_task(work)
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return _run_first_step(loop, work)


def _run_first_step(loop: asyncio.AbstractEventLoop, work: Work) -> asyncio.Task[None]:
    """A task asks its loop for one thing when it is made: to call its first step soon. This takes that call."""
    first = _FirstStep()
    loop.call_soon = first.take  # type: ignore[method-assign, assignment]
    try:
        task = asyncio.Task(work, loop=loop)
    finally:
        del loop.call_soon
    first.context.run(first.step)
    return task


class _FirstStep:
    __slots__ = ("context", "step")

    def take(self, step: Callable[[], object], *, context: Context) -> None:
        self.step, self.context = step, context
