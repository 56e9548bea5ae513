"""Waiting for what must come to pass, where nothing says when it has: looked at again and again, for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S_MAX = 60.0
"""For ever, but that a test must end."""
PAUSE_S = 0.005


def eventually(
    is_so: Callable[[], object],
    otherwise: Callable[[], object] = lambda: "it never came",
    *,
    within_s: float = WAIT_S_MAX,
) -> None:
    """Wait until it is so; `otherwise` says what is there instead. After `within_s` it would come by another way."""
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(PAUSE_S)
