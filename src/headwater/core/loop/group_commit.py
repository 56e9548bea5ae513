"""Group commit on an event loop: calls during a commit share the next commit, which begins when the current one ends.

So a lone caller waits only for its own commit, and many callers share one, however long it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class GroupCommit(Generic[T]):
    """Runs one commit at a time, each for all calls made before it began."""

    def __init__(self, commit: Callable[[], Awaitable[T]]) -> None:
        self._commit = commit
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[T] | None = None
        """A commit waiting for its turn, or None."""

    async def committed(self) -> T:
        """The result of a commit that begins after this call; raises the errors of the commit."""
        if self._next is None:
            self._next = asyncio.create_task(self._run())
            self._next.add_done_callback(_is_heard)
        return await asyncio.shield(self._next)

    async def _run(self) -> T:
        async with self._turn:
            self._next = None
            return await self._commit()


def _is_heard(task: asyncio.Task[T]) -> None:
    """Mark the outcome as retrieved, because every caller may be cancelled before a commit fails."""
    if not task.cancelled():
        task.exception()
