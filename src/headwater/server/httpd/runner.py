"""Tasks that run requests: the first step of each at once, and one request after the other.

An ordinary task begins in the next turn of the event loop. Most requests never wait, and that turn is a third of the
cost of a small request. To create a task costs almost as much again, so a task that is done with a request waits for
another one. A task is not a request: its name and its callbacks stay.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from typing import Any

from ...core.actor import act_as
from ...http import Application
from ...http.asgi import HELD, MEMORY
from .cycle import HttpCycle
from .server_state import ServerState

IDLE_MAX = 256
"""How many tasks of a server wait for a request. Each takes one or two kilobytes."""


class Runner:
    """One such task. It waits in `ServerState.idle`, and is in `ServerState.tasks` while it runs a request."""

    __slots__ = ("_application", "_context", "_cycle", "_loop", "_next", "_state", "_step", "_variables", "task")

    def __init__(self, state: ServerState, loop: asyncio.AbstractEventLoop) -> None:
        """A task of the running loop. It begins with its first request."""
        self._state, self._loop = state, loop
        self._context = Context()
        """No variable of one request is seen by another."""
        self._context.run(act_as, "")
        self._variables = len(self._context)
        self._cycle: HttpCycle | None = None
        self._application: Application = state.application
        self._next: asyncio.Future[None] | None = None
        """Where the task waits for its next request; None before its first."""
        self._step: tuple[Any, ...] = ()
        self.task: asyncio.Task[None]

    def begin(self, cycle: HttpCycle, application: Application) -> None:
        """Run a request until it first waits, or until it ends.

        Within another task, where no other task can run, it begins in the next turn of the loop.
        """
        loop, self._cycle, self._application = self._loop, cycle, application
        loop.call_soon = self._take  # type: ignore[method-assign, assignment]
        try:
            if self._next is None:
                self.task = loop.create_task(self._serve(), context=self._context)
            else:
                self._next.set_result(None)
        finally:
            del loop.call_soon
        if self._next is None:
            self._state.keep(self.task)
        else:
            self._state.tasks.add(self.task)
        try:
            self._context.run(*self._step)
        except RuntimeError:  # another task is running
            loop.call_soon(*self._step, context=self._context)

    def _take(self, *step: Any, context: Context | None = None) -> None:
        """Receive the only call that a task makes to its loop when it is created, or when it need not wait longer.

        A finaliser that runs meanwhile may make another one.
        """
        if context is self._context:
            self._step = step
        else:
            type(self._loop).call_soon(self._loop, *step, context=context)

    async def _serve(self) -> None:
        state, idle, task = self._state, self._state.idle, self.task
        try:
            while (cycle := self._cycle) is not None:
                try:
                    await self._application(cycle.scope, cycle.receive, cycle.send)
                    if not cycle.is_complete and not cycle.is_disconnected:
                        await cycle.fail(None)
                except BaseException as error:  # including a cancellation, because nothing else answers this client
                    await cycle.fail(error)
                    if not isinstance(error, Exception):
                        return
                finally:
                    if HELD in cycle.scope:
                        cycle.scope[MEMORY].give(cycle.scope.pop(HELD))
                state.tasks.discard(task)
                self._cycle = cycle = None
                act_as("")
                is_unlike_new = len(self._context) > self._variables or task.cancelling()
                if is_unlike_new or state.is_ending or len(idle) >= IDLE_MAX:
                    return
                self._next = self._loop.create_future()
                idle.append(self)
                await self._next
        finally:
            with suppress(ValueError):
                idle.remove(self)
