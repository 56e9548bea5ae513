"""How the processes of a server ask for memory: so that what a burst took goes back to the system when it is over.

As they are by themselves, Arrow's allocator and glibc's keep what was freed, for each thread apart: a process that
copied some large batches holds 200 MB for ever.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow reads it when it is first used: "system" is malloc, so that one allocator has all."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""What `mallopt` of glibc calls them."""
RETURNED_BYTES = 128 * 1024
"""Free memory of so much at the end of a heap goes back, and so does what was asked for in one piece of so much."""
MALLOC = {"MALLOC_ARENA_MAX": (-8, 2), "MALLOC_TRIM_THRESHOLD_": (_TRIM_THRESHOLD, RETURNED_BYTES)}
"""Of glibc: variables that it reads when a process starts, what `mallopt` calls them, and what they are set to."""
KEPT_BYTES = 4 * 1024 * 1024
"""The same while memory is kept."""


def give_memory_back() -> Callable[[], None]:
    """Have this process, and those that it starts, give free memory back. What the environment says already, holds.

    Answers what takes out of the environment what this puts there.
    """
    given = [name for name in (ARROW_POOL, *MALLOC) if name not in os.environ]
    os.environ.setdefault(ARROW_POOL, "system")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc, not of musl nor of macOS
    for name, (parameter, value) in MALLOC.items():
        if name not in os.environ:
            os.environ[name] = str(value)
            if mallopt is not None:
                mallopt(parameter, value)

    def restore() -> None:
        for name in given:
            os.environ.pop(name, None)

    return restore


class Keeping:
    """While somebody is inside, this process takes memory of up to 4 MiB that it freed again, in place of new pages.

    A commit of a million staged events makes arrays of a MiB again and again: it takes a fifth less time so. What was
    kept goes back at the end. Any thread may be inside, several at once. On other systems, and where the environment
    says how malloc is to be, nothing is done.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._mallopt, self._trim = getattr(libc, "mallopt", None), getattr(libc, "malloc_trim", None)
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._set(KEPT_BYTES)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._set(RETURNED_BYTES):
                self._trim(0)  # type: ignore[misc]

    def _set(self, size: int) -> bool:
        ours = os.environ.get("MALLOC_TRIM_THRESHOLD_") == str(RETURNED_BYTES)
        if self._mallopt is None or self._trim is None or not ours or "MALLOC_MMAP_THRESHOLD_" in os.environ:
            return False
        self._mallopt(_TRIM_THRESHOLD, size)
        self._mallopt(_MMAP_THRESHOLD, size)
        return True
