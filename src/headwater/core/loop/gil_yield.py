"""An event loop that is never idle gives the interpreter to the threads that wait for it.

Between two turns a busy loop lets go of the interpreter's lock while it asks for I/O, and has it again a microsecond
later: sooner than a thread that waits for the lock can wake up. That thread is woken by each turn, finds the lock
taken, and begins to wait anew; so `sys.setswitchinterval`, which counts from there, never helps it where turns are
shorter. A loop with turns of 0.4 ms kept a thread waiting for seconds: the commit of somebody's event, say. So a loop
that has been busy sleeps, every few milliseconds, for as long as a thread takes to wake up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PAUSE_S = 0.00002
"""How long the loop sleeps. The operating system makes it some 0.05 ms longer, and a thread wakes up in that time."""
BUSY_S = 0.002
"""How often a busy loop does so: it costs some 3 % of its time, and bounds how long a thread waits."""
IDLE_S = 0.02
"""How often an idle loop is asked whether it has become busy."""
BUSY_SHARE = 0.25
"""A loop that works for this share of the time counts as busy: the rest may be a processor that others had. A loop that
works less waits for I/O, and threads run meanwhile."""

Clock = Callable[[], float]


class GilYield:
    """Pauses of one event loop, from `start` to `stop`, both of which are called on it."""

    def __init__(
        self,
        *,
        cpu: Clock = time.thread_time,
        wall: Clock = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`cpu` is the time that this thread has worked; both clocks are in s."""
        self._cpu, self._wall, self._sleep = cpu, wall, sleep
        self._worked = self._at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.pauses = 0
        """How often the loop has slept so far."""

    def start(self) -> None:
        """Begin with the loop that runs."""
        self._worked, self._at = self._cpu(), self._wall()
        self._again(IDLE_S)

    def stop(self) -> None:
        """Pause no more."""
        if self._timer is not None:
            self._timer.cancel()

    def tick(self) -> float:
        """Pause if the loop has been busy since the last time; answers in how many s to come again."""
        worked, at = self._cpu(), self._wall()
        is_busy = worked - self._worked > BUSY_SHARE * (at - self._at)
        if is_busy:
            self.pauses += 1
            self._sleep(PAUSE_S)
            at = self._wall()  # what was slept is not held against the loop
        self._worked, self._at = worked, at
        return BUSY_S if is_busy else IDLE_S

    def _go_on(self) -> None:
        self._again(self.tick())

    def _again(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._go_on)
