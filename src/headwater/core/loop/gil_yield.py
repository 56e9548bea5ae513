"""Lets a busy event loop yield the interpreter lock to waiting threads.

Between two turns a busy loop releases the interpreter lock while it polls for I/O, and takes it again a microsecond
later: sooner than a waiting thread can wake up. Each turn wakes that thread, which finds the lock taken and starts
waiting again. `sys.setswitchinterval` counts from that point, so it never helps if turns are shorter. A loop with turns
of 0.4 ms kept a thread waiting for seconds, for example the thread that commits an event. So a loop that has been busy
sleeps, every few milliseconds, for as long as a thread takes to wake up: if another thread has used the processor since
the last time. One that waits for the interpreter has, because every turn wakes it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PAUSE_S = 0.00002
"""How long the loop sleeps. The operating system adds about 0.05 ms, and a thread wakes up in that time."""
BUSY_S = 0.002
"""How often a busy loop sleeps while other threads run. This costs about 3 % of its time, and bounds their waits."""
OTHERS_S = 0.000003
"""Processor time of other threads that is less than it takes to wake up, and more than the error of the clocks."""
IDLE_S = 0.02
"""How often an idle loop checks whether it has become busy."""
BUSY_SHARE = 0.25
"""A loop that works for this share of the time counts as busy: other processes may have had the processor for the rest.
A loop that works less waits for I/O, during which threads run."""

Clock = Callable[[], float]


class GilYield:
    """Pauses of one event loop, from `start` to `stop`, both called on it."""

    def __init__(
        self,
        *,
        cpu: Clock = time.thread_time,
        process: Clock = time.process_time,
        wall: Clock = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`cpu` is the CPU time of this thread, `process` that of all threads; all clocks are in s."""
        self._cpu, self._process, self._wall, self._sleep = cpu, process, wall, sleep
        self._worked = self._others = self._at = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self.pauses = 0
        """How often the loop has slept so far."""

    def start(self) -> None:
        """Start on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._worked, self._at = self._cpu(), self._wall()
        self._others = self._process() - self._worked
        self._timer = self._loop.call_later(IDLE_S, self._go_on)

    def stop(self) -> None:
        """Stop pausing."""
        if self._timer is not None:
            self._timer.cancel()

    def tick(self) -> float:
        """Pause if the loop has been busy since the last call, and other threads have not been idle.

        Returns the number of seconds until the next call.
        """
        worked, at = self._cpu(), self._wall()
        is_busy = worked - self._worked > BUSY_SHARE * (at - self._at)
        if is_busy:
            others = self._process() - worked
            if others - self._others > OTHERS_S:
                self.pauses += 1
                self._sleep(PAUSE_S)
                at = self._wall()  # the pause does not count as the loop's work
            self._others = others
        self._worked, self._at = worked, at
        return BUSY_S if is_busy else IDLE_S

    def _go_on(self) -> None:
        self._timer = self._loop.call_later(self.tick(), self._go_on)
