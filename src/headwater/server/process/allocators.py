"""Memory allocator settings of the server's processes, so that memory goes back to the system after a burst.

By default, Arrow's allocator and glibc's keep freed memory for each thread: a process that copied some large batches
holds 200 MB forever.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow reads it at first use: "system" is malloc, so that one allocator has all memory."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Their numbers in glibc's `mallopt`."""
RETURNED_BYTES = 128 * 1024
"""Free memory of this size at the end of a heap is returned, and so are single allocations of this size."""
MALLOC = {"MALLOC_ARENA_MAX": (-8, 2), "MALLOC_TRIM_THRESHOLD_": (_TRIM_THRESHOLD, RETURNED_BYTES)}
"""For glibc: variables that it reads when a process starts, their numbers in `mallopt`, and their values."""
KEPT_BYTES = 4 * 1024 * 1024
"""The same while memory is kept."""


def give_memory_back() -> Callable[[], None]:
    """Make this process and its children return free memory. Variables that are already set take precedence.

    Returns a callable that removes the added variables from the environment.
    """
    given = [name for name in (ARROW_POOL, *MALLOC) if name not in os.environ]
    os.environ.setdefault(ARROW_POOL, "system")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # these belong to glibc, not to musl or macOS
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
    """A context in which this process reuses freed memory of up to 4 MiB, in place of new pages.

    A commit of a million staged events allocates arrays of a MiB again and again: this saves a fifth of the time. Kept
    memory is returned at the end. Any number of threads may be inside. On other systems, and where the environment
    configures malloc, this does nothing.
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
