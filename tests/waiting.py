"""Waiting for what must come to pass, where nothing says when it has: looked at again and again, for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S_MAX = 60.0
"""For ever, but that a test must end."""
PAUSE_S = 0.005


def eventually(is_so: Callable[[], object], otherwise: Callable[[], object] = lambda: "it never came") -> None:
    """Wait until it is so; `otherwise` says what is there instead."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(PAUSE_S)
