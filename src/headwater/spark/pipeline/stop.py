"""Turns signals into stop requests: the first asks to stop after the batch, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class StopRequest:
    """A context that counts stop requests to the process, by SIGINT or SIGTERM.

    Outside the main thread, where Python delivers no signals, only `ask` works.
    """

    def __init__(self) -> None:
        self.times = 0
        self._before: dict[int, Any] = {}

    @property
    def is_asked(self) -> bool:
        """Whether to stop after the running batch."""
        return self.times > 0

    @property
    def is_urgent(self) -> bool:
        """Whether to stop at once, after a second request."""
        return self.times > 1

    def ask(self, *_: int | FrameType | None) -> None:
        """Request a stop. May be called from anywhere, including a signal handler."""
        self.times += 1

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # PySpark also installs a handler, which cancels the running work and loses the batch.
            self._before = {number: signal.signal(number, self.ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before = {}


class StoppedBetweenBatches(Exception):
    """Not an error: ends a query instead of starting a batch."""


class StoppedAtOnce(Exception):
    """Not an error: ends a step that was abandoned after two stop requests."""


class StopGate:
    """A function for `foreachBatch` that can be closed between two batches.

    Stopping a query inside such a function interrupts it in the middle, and Spark may answer with a stack overflow.
    """

    def __init__(self, function: Callable[[Any, int], None]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._is_open = True
        self._is_busy = False

    def __call__(self, frame: Any, batch: int) -> None:
        """Run the function for a batch. Raises StoppedBetweenBatches if the gate is closed."""
        with self._lock:
            if not self._is_open:
                raise StoppedBetweenBatches
            self._is_busy = True
        try:
            self._function(frame, batch)
        finally:
            self._is_busy = False

    def close(self) -> bool:
        """Allow no further batch. Returns whether none is running."""
        with self._lock:
            self._is_open = False
            return not self._is_busy
