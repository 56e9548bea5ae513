"""The memory that an append uses until it is durable, and the budget of all waiting appends.

An append counts `COPIES` times: as received, and as the frame encoded from it. In a measurement, 20 logs, each with 58
MiB of 1 MiB events waiting, used 2,322 MiB.
"""

from __future__ import annotations

from ...core.limits import APPEND_BYTES_MAX, EventColumns
from ...core.shared_bytes import SharedBytes
from .prepared import PreparedColumns

COPIES = 2
COMMIT_PART = 16
"""An append of a staged batch uses at most this fraction (1/N) of the budget. Each of four concurrent commits may
hold two, one waiting and one being prepared, so half is always left for the log."""


def held_bytes(columns: EventColumns) -> int:
    """The bytes counted for these events while they wait.

    For events mapped from a file, only hashes and postings count.
    """
    if isinstance(columns, PreparedColumns):
        return columns.held_bytes
    return COPIES * columns.bytes


def append_bytes_max(waiting: SharedBytes) -> int:
    """The largest append that can ever fit the budget."""
    return min(APPEND_BYTES_MAX, waiting.largest // COPIES)


def staged_append_bytes_max(waiting: SharedBytes) -> int:
    """The largest append made from staged rows, unless a single event is larger."""
    return min(APPEND_BYTES_MAX, waiting.bytes_max // COMMIT_PART)


def never_fits(waiting: SharedBytes) -> str | None:
    """A startup warning about appends that clients may send but the budget can never hold; None if there are none."""
    if (most := append_bytes_max(waiting)) >= APPEND_BYTES_MAX:
        return None
    return (
        f"appends larger than {most} bytes never fit into {waiting.bytes_max} bytes for waiting appends, "
        f"and are refused (413); {APPEND_BYTES_MAX} bytes fit from {needed_bytes()} on"
    )


def needed_bytes() -> int:
    """The smallest budget that accepts an append of any allowed size."""
    return 2 * COPIES * APPEND_BYTES_MAX
