"""Free memory that malloc keeps goes back to the system after a burst of peers.

What many connections held lies between what stays, so malloc gives back little of it by itself. `malloc_trim` (of
glibc) gives back every whole page. Measured: 1.5 ms for each MiB that is free in small pieces, in a thread of its own;
other threads wait for it where they ask malloc for memory. So it is called often, for little.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

LOOK_S = 0.5
TRIMMED_BYTES = 8 * 2**20
"""So much less than the most since the last call was charged: then free memory is given back."""
PAUSE_S = 2.0
"""Between two calls, at least."""


class MemoryReturn:
    """Looks at what peers hold, and calls malloc_trim when that fell; on other systems than glibc's it does nothing."""

    def __init__(self, charged: Callable[[], int], trim: Callable[[], object] | None = None) -> None:
        """`charged` answers the bytes that peers make the process hold now."""
        self._charged = charged
        self._trim = trim or malloc_trim()
        self._most = 0
        self.trimmed = 0
        """How often memory was given back so far."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while self._trim is not None:
            await asyncio.sleep(LOOK_S)
            if self.is_due():
                await self._give_back(self._trim)
                await asyncio.sleep(PAUSE_S)
                if (charged := self._charged()) < self._most:  # peers went on leaving while it was given back
                    self._most = charged
                    await self._give_back(self._trim)
                    await asyncio.sleep(PAUSE_S)

    async def _give_back(self, trim: Callable[[], object]) -> None:
        await asyncio.to_thread(trim)
        self.trimmed += 1

    def is_due(self) -> bool:
        """Whether peers hold so much less than before that it is worth it; then the next time counts from now on."""
        charged = self._charged()
        if self._most - charged < TRIMMED_BYTES:
            self._most = max(self._most, charged)
            return False
        self._most = charged
        return True


def malloc_trim() -> Callable[[], object] | None:
    """What gives back free memory: of glibc, not of musl nor of macOS."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None else lambda: trim(0)
