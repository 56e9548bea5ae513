"""Returns free memory that malloc keeps to the system, after a burst of peers.

Memory freed by many connections lies between memory in use, so malloc returns little by itself. `malloc_trim` (of
glibc) returns every whole page. Measured: 1.5 ms for each MiB that is free in small pieces, in its own thread; other
threads wait for it when they allocate. So it is called often, for little.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

LOOK_S = 0.5
TRIMMED_BYTES = 8 * 2**20
"""How far the charged memory must fall below its peak since the last call before free memory is returned."""
PAUSE_S = 2.0
"""The minimum time between two calls."""


class MemoryReturn:
    """Watches the memory held for peers, and calls malloc_trim after it has fallen. Does nothing without glibc."""

    def __init__(self, charged: Callable[[], int], trim: Callable[[], object] | None = None) -> None:
        """`charged` returns the bytes that the process now holds for peers."""
        self._charged = charged
        self._trim = trim or malloc_trim()
        self._most = 0
        self.trimmed = 0
        """How many times memory has been returned."""

    async def run(self) -> None:
        """Run until cancelled."""
        while self._trim is not None:
            await asyncio.sleep(LOOK_S)
            if self.is_due():
                await self._give_back(self._trim)
                await asyncio.sleep(PAUSE_S)
                if (charged := self._charged()) < self._most:  # more peers disconnected during the call
                    self._most = charged
                    await self._give_back(self._trim)
                    await asyncio.sleep(PAUSE_S)

    async def _give_back(self, trim: Callable[[], object]) -> None:
        await asyncio.to_thread(trim)
        self.trimmed += 1

    def is_due(self) -> bool:
        """Whether the held memory fell far enough for a call; if so, a new peak begins now."""
        charged = self._charged()
        if self._most - charged < TRIMMED_BYTES:
            self._most = max(self._most, charged)
            return False
        self._most = charged
        return True


def malloc_trim() -> Callable[[], object] | None:
    """The function that returns free memory: that of glibc; musl and macOS have none."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None else lambda: trim(0)
