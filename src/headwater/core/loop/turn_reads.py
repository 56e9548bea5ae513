"""Limits how much connections read in one turn of the event loop.

The loop reads from a socket up to 32 times in a row, all in one turn, whether the data is processed or discarded.
"""

from __future__ import annotations

import asyncio

READ_BYTES = 64 * 1024
"""The maximum number of bytes of one read. Only a full read may be followed by another in the same turn."""
TURN_BYTES = 4 * 1024 * 1024
"""Limit for all full reads in one turn. Above it each connection reads once and waits for the next turn. Reading and
processing this much takes about 4 ms.
"""


class TurnReads:
    """The full reads of some connections of one event loop."""

    __slots__ = ("_bytes", "turn_bytes")

    def __init__(self, turn_bytes: int = TURN_BYTES) -> None:
        self._bytes = 0
        self.turn_bytes = turn_bytes

    def are_over(self, size: int) -> bool:
        """Record that a connection has read that many bytes; returns whether it must stop until the next turn."""
        if size < READ_BYTES:
            return False
        if not self._bytes:
            asyncio.get_running_loop().call_soon(self._begin)
        self._bytes += size
        return self._bytes > self.turn_bytes

    def _begin(self) -> None:
        self._bytes = 0
