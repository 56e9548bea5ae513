"""How much connections read in one turn of the event loop: it reads from a socket up to 32 times in a row, and all that
is one turn, whether it is looked at or thrown away.
"""

from __future__ import annotations

import asyncio

READ_BYTES = 64 * 1024
"""The most bytes of one read: only a full one may be followed by another in the same turn."""
TURN_BYTES = 4 * 1024 * 1024
"""Of all full reads in one turn. After that each connection reads once, and waits for the next turn. It takes some 4 ms
to read so much, and to look at it.
"""


class TurnReads:
    """The full reads of some connections of one event loop."""

    __slots__ = ("_bytes", "turn_bytes")

    def __init__(self, turn_bytes: int = 0) -> None:
        """`turn_bytes`: other than TURN_BYTES."""
        self._bytes = 0
        self.turn_bytes = turn_bytes or TURN_BYTES

    def are_over(self, size: int) -> bool:
        """A connection has read so many bytes: whether it is to stop until the next turn."""
        if size < READ_BYTES:
            return False
        if not self._bytes:
            asyncio.get_running_loop().call_soon(self._begin)
        self._bytes += size
        return self._bytes > self.turn_bytes

    def _begin(self) -> None:
        self._bytes = 0
