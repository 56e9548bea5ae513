"""Threads and tasks that run as long as the server. If one ends early, this is reported.

An exception is logged, counted and notified; then the thread or task is restarted, after a pause that grows while it
keeps failing. Threads that must not continue after a failure (a log's committer and writer) do not belong here: if one
of those fails, the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from .bus import Bus
from .notification_types import NotificationType

_logger = logging.getLogger("headwater.threads")

PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 10.0
TROUBLE_S = 60.0
"""A thread or task that has run this long after a failure counts as healthy again."""


class Threads:
    """The long-running threads and tasks of one server. Any thread may ask for their state."""

    def __init__(
        self,
        bus: Bus | None = None,
        *,
        pause_s: tuple[float, float] = (PAUSE_S_MIN, PAUSE_S_MAX),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`bus` is notified of each failure; `pause_s` are the shortest and the longest pause before a restart."""
        self._bus, self._pauses, self._clock = bus or Bus(), pause_s, clock
        self._counting = threading.Lock()
        self._restarts: dict[str, int] = {}
        self._failed_at: dict[str, float] = {}

    @property
    def restarts(self) -> dict[str, int]:
        """The number of restarts of each, by name; a copy."""
        with self._counting:
            return dict(self._restarts)

    def troubles(self) -> list[str]:
        """Problems for an operator: the threads and tasks that have failed recently."""
        now = self._clock()
        with self._counting:
            failed = sorted(name for name, at in self._failed_at.items() if now - at < TROUBLE_S)
            return [f"{name} failed, and was restarted ({self._restarts[name]} times so far)" for name in failed]

    def start(self, name: str, run: Callable[[], None], is_stopping: threading.Event) -> threading.Thread:
        """Start a thread that runs until `run` returns, or fails while `is_stopping` is set. Raises RuntimeError."""

        def go_on() -> None:
            pause_s = self._pauses[0]
            while True:
                began = self._clock()
                try:
                    run()
                    return
                except Exception as error:  # any exception, because nothing else would report it
                    if is_stopping.is_set():
                        return
                    pause_s = self._next_pause(pause_s, began)
                    self._failed(name, error, pause_s)
                if is_stopping.wait(pause_s):
                    return

        thread = threading.Thread(target=go_on, name=f"headwater-{name}", daemon=True)
        thread.start()
        return thread

    def task(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Start a task on the running event loop in the same way; it runs until `run` returns or is cancelled."""

        async def go_on() -> None:
            pause_s = self._pauses[0]
            while True:
                began = self._clock()
                try:
                    await run()
                    return
                except Exception as error:
                    pause_s = self._next_pause(pause_s, began)
                    self._failed(name, error, pause_s)
                await asyncio.sleep(pause_s)

        return asyncio.get_running_loop().create_task(go_on(), name=name)

    def _next_pause(self, pause_s: float, began: float) -> float:
        shortest, longest = self._pauses
        return shortest if self._clock() - began > longest else min(pause_s * 2, longest)

    def _failed(self, name: str, error: Exception, pause_s: float) -> None:
        with self._counting:
            self._restarts[name] = restarts = self._restarts.get(name, 0) + 1
            self._failed_at[name] = self._clock()
        _logger.error("%s failed; it is restarted in %.1f s", name, pause_s, exc_info=error)
        self._bus.emit(NotificationType.THREAD_FAILED, name=name, reason=repr(error), restarts=restarts)
