"""Makes requests to stop of signals: the first is for the end of the batch, the second for the end at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class StopRequest:
    """How often the process was asked to stop, by SIGINT or SIGTERM, while this is entered.

    Outside the main thread, where Python hands out no signals, it is never asked; `ask` works everywhere.
    """

    def __init__(self) -> None:
        self.times = 0
        self._before: dict[int, Any] = {}

    @property
    def is_asked(self) -> bool:
        """Somebody wants the end, after the batch that is running."""
        return self.times > 0

    @property
    def is_urgent(self) -> bool:
        """Somebody asked again: at once."""
        return self.times > 1

    def ask(self, *_: int | FrameType | None) -> None:
        """Ask for the end. May be called from anywhere, a signal handler included."""
        self.times += 1

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # PySpark installs a handler too, which cancels what is running and loses the batch.
            self._before = {number: signal.signal(number, self.ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before = {}


class StoppedBetweenBatches(Exception):
    """Not an error: ends a query in the place of a batch that was not begun."""


class StoppedAtOnce(Exception):
    """Not an error: ends a step that was given up, because somebody asked twice."""


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
        """Run the function for a batch. Raises StoppedBetweenBatches where the gate is closed."""
        with self._lock:
            if not self._is_open:
                raise StoppedBetweenBatches
            self._is_busy = True
        try:
            self._function(frame, batch)
        finally:
            self._is_busy = False

    def close(self) -> bool:
        """Let no further batch begin; answers whether none is running."""
        with self._lock:
            self._is_open = False
            return not self._is_busy
