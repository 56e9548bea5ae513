"""Coroutines that run immediately until they first wait. An ordinary task begins in the next turn of the event loop.
Most requests never wait, and that turn is a third of the cost of a small request. Python 3.12 has eager tasks
(`eager_start`); this does the same for 3.11."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

Work = Coroutine[Any, Any, None]


def run_at_once(loop: asyncio.AbstractEventLoop, work: Work) -> asyncio.Task[None]:
    """A task of the running loop that has already run until it first waited, or until it ended.

    If it is called within a task, where no other task can run, it is an ordinary task.
    """
    if asyncio.current_task(loop) is not None:
        return loop.create_task(work)
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    first = _FirstStep()
    loop.call_soon = first.take  # type: ignore[method-assign, assignment]
    try:
        task = asyncio.Task(work, loop=loop)
    finally:
        del loop.call_soon
    first.context.run(first.step)
    return task


class _FirstStep:
    """Receives the only call that a new task makes to its loop, which schedules its first step."""

    __slots__ = ("context", "step")

    def take(self, step: Callable[[], object], *, context: Context) -> None:
        self.step, self.context = step, context
