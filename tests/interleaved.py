"""Two threads in step: which of them goes on after an instruction is decided from outside, so that races are found."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

PATIENCE_S = 20.0


class _Actor:
    """A thread that stops before each instruction of the code that is looked at."""

    def __init__(self, work: Callable[[], None], codes: frozenset[object]) -> None:
        self._work, self._codes = work, codes
        self._may_go, self._has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done = False
        self.error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def step(self) -> None:
        """Do one instruction, and what comes with it."""
        self._may_go.release()
        assert self._has_stopped.acquire(timeout=PATIENCE_S), "an actor hangs"

    def _run(self) -> None:
        self._may_go.acquire()
        sys.settrace(self._trace)
        try:
            self._work()
        except BaseException as error:
            self.error = error
        finally:
            sys.settrace(None)
            self.is_done = True
            self._has_stopped.release()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code not in self._codes:
            return None
        if event == "call":
            frame.f_trace_opcodes = True
        elif event == "opcode":
            self._has_stopped.release()
            self._may_go.acquire()
        return self._trace


def interleave(
    runs: Iterable[int], one: Callable[[], None], other: Callable[[], None], functions: Sequence[Callable[..., Any]]
) -> None:
    """Run both, instruction by instruction of these functions: so many of `one`, then so many of `other`, and so on.

    When that ends, or one of them is done, the rest runs as it comes. Raises what they raise.
    """
    codes: frozenset[object] = frozenset(function.__code__ for function in functions)  # type: ignore[attr-defined]
    actors = (_Actor(one, codes), _Actor(other, codes))
    for turn, length in enumerate(runs):
        actor = actors[turn % 2]
        for _ in range(length):
            if not actor.is_done:
                actor.step()
    for actor in actors:
        while not actor.is_done:
            actor.step()
        if actor.error is not None:
            raise actor.error
