"""What an append takes in memory while it waits to be durable, and the budget of all appends that wait.

An append counts `COPIES` times: as it came, and as the frame that is made of it. Measured: 20 logs that wait with
58 MiB each, in events of 1 MiB, take 2,322 MiB.
"""

from __future__ import annotations

from ...core.limits import APPEND_BYTES_MAX, EventColumns
from ...core.shared_bytes import SharedBytes
from .prepared import PreparedColumns

COPIES = 2
COMMIT_PART = 16
"""An append of a staged batch takes at most one part in so many of the budget. Each of four commits at a time may hold
two of them, one that waits and one that is made ready, so half is always left for the log."""


def held_bytes(columns: EventColumns) -> int:
    """What these events count while they wait. Events in a file are mapped, so only their hashes and postings count."""
    if isinstance(columns, PreparedColumns):
        return columns.held_bytes
    return COPIES * columns.bytes


def append_bytes_max(waiting: SharedBytes) -> int:
    """The largest append that can ever fit the budget."""
    return min(APPEND_BYTES_MAX, waiting.largest // COPIES)


def staged_append_bytes_max(waiting: SharedBytes) -> int:
    """The largest append that is made of staged rows, but for one event that is larger."""
    return min(APPEND_BYTES_MAX, waiting.bytes_max // COMMIT_PART)


def never_fits(waiting: SharedBytes) -> str | None:
    """What clients may send and the budget has never room for, as a warning at the start; None: nothing."""
    if (most := append_bytes_max(waiting)) >= APPEND_BYTES_MAX:
        return None
    return (
        f"appends above {most} bytes never fit into {waiting.bytes_max} bytes for waiting appends, "
        f"and are refused (413); {APPEND_BYTES_MAX} bytes fit from {needed_bytes()} on"
    )


def needed_bytes() -> int:
    """The least budget that takes an append of any size that is allowed."""
    return 2 * COPIES * APPEND_BYTES_MAX
