"""The memory budget shared by the streams of one server; it sets the size of their batches.

A read reserves two small batches from its start; its batches grow with the free bytes. A write holds its batch until
that is stored, and waits a while for memory before it accepts the next one, so that the client cannot send in the
meantime."""

from __future__ import annotations

import threading
import time

from ...core.errors import Closed, EventLogError, TooLarge
from ...core.shared_bytes import KIB, MIB, BytesPart, SharedBytes

MEMORY_BYTES_MAX = 256 * MIB
"""The default budget."""
PIECE_BYTES_MIN, PIECE_BYTES_MAX = 256 * KIB, 4 * MIB
"""The bounds of one batch of a read."""
CLIENT_BATCH_BYTES = 32 * MIB
"""The largest batches that Headwater's clients and Spark's sink send."""
BATCHES = 2
"""The number of batches per read: one being sent, and one being created."""
WAIT_S, LOOK_S = 10.0, 0.02
"""How long a write waits for memory, and how often it checks."""


def never_fits(bytes_max: int) -> str | None:
    """A startup warning if the budget is too small for the batches of Headwater's own clients; otherwise None."""
    if (most := SharedBytes(bytes_max).largest) >= CLIENT_BATCH_BYTES:
        return None
    return (
        f"batches above {most} bytes do not fit into {bytes_max} bytes for Arrow Flight and are refused; "
        f"clients and Spark send up to {CLIENT_BATCH_BYTES}, which requires {2 * CLIENT_BATCH_BYTES} bytes"
    )


class ReadMemory:
    """The memory held by reads."""

    def __init__(self, shared: SharedBytes) -> None:
        self._shared = shared
        self._readers = 0
        self._changing = threading.Lock()

    def begin(self) -> BytesPart:
        """Begin a read. Call `end` when it has ended. Raises Overloaded."""
        part = self._shared.part()
        part.claim(BATCHES * PIECE_BYTES_MIN, "ticket")
        with self._changing:
            self._readers += 1
        return part

    def end(self, part: BytesPart) -> None:
        """End a read. Called once, possibly from whatever code the interpreter interrupts."""
        with self._changing:  # nothing inside allocates an object
            self._readers -= 1
        part.give(part.bytes)

    def piece_bytes(self) -> int:
        """How large the next batch of a read may be."""
        free = self._shared.bytes_max - self._shared.bytes
        share = free // (BATCHES * max(self._readers, 1))
        return min(max(PIECE_BYTES_MIN + share, PIECE_BYTES_MIN), PIECE_BYTES_MAX)


class WriteMemory:
    """The memory held by one write. Its methods raise Overloaded if no memory becomes free, and Closed if the server
    stops.
    """

    def __init__(self, shared: SharedBytes, log: str, stopping: threading.Event, batch_bytes_max: int) -> None:
        self._part, self._log, self._stopping = shared.part(), log, stopping
        self._bytes_max = min(batch_bytes_max, self._part.largest)
        self._last = 0

    def before(self) -> None:
        """Reserve memory for the next batch, assumed to be as large as the last one."""
        self._claim(self._last - self._part.bytes)

    def read(self, size: int, where: str) -> None:
        """Account for a received batch of that size. Also raises TooLarge."""
        if size > self._bytes_max:
            raise TooLarge(size, self._bytes_max, "bytes", where)
        self._claim(size - self._part.bytes)
        self._last = size

    def done(self) -> None:
        """Release everything."""
        self._part.give(self._part.bytes)

    def _claim(self, more: int) -> None:
        if more <= 0:
            self._part.give(-more)
            return
        ends_at = time.monotonic() + WAIT_S
        while not self._part.take(more):
            if self._stopping.is_set():
                raise Closed(self._log)
            if time.monotonic() >= ends_at:
                raise self._refusal(more)
            time.sleep(LOOK_S)

    def _refusal(self, more: int) -> EventLogError:
        return self._part.refusal(more, "batch")
