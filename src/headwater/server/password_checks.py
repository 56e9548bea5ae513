"""The threads that check passwords, and the queue before them: each place in turn, bounded per place and in all.

A check takes a core for 50 ms and 16 MiB, so few run at once and the others wait (`core.loop.fair_semaphore`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from ..core.loop.fair_semaphore import FairSemaphore

CHECKS_AT_ONCE = 2
"""Threads that run scrypt: bounds what logins take of the machine, 16 MiB and one core each."""
CHECKS_WAITING_MAX = 256
"""Passwords that may wait for those threads."""
CHECKS_WAITING_OF_PLACE_MAX = 64
"""Of these, the ones of one place: what the threads check in about two seconds."""

P = ParamSpec("P")
T = TypeVar("T")


class PasswordChecks:
    """Threads, and places dealt fairly to the client addresses of logins. For one event loop."""

    def __init__(self) -> None:
        self.places = FairSemaphore(
            CHECKS_AT_ONCE, waiting_max=CHECKS_WAITING_MAX, waiting_of_payer_max=CHECKS_WAITING_OF_PLACE_MAX
        )
        """Hold one while a check runs."""
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="password")

    async def run(self, check: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the check answers, from a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: check(*arguments, **named))
