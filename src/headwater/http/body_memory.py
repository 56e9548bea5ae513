"""The memory that is counted for a body or a WebSocket message until it is answered, including its decoding.

Measured ([record](../docs/decisions/0207-one-budget-of-memory.md)): the text, its copy while it is decoded, the columns
and the frame together take 4 bytes for each byte. An append of the shortest events has up to 65,536 of them, and each
takes 250 bytes.
"""

from __future__ import annotations

_PER_BYTE, _PER_SHORT_BYTE, _PER_LOGIN_BYTE = 4, 8, 3
_SHORT_MAX = 16 * 2**20
"""The maximum memory that short events take in addition."""
SMALL_BYTES = 5 * 1024
"""A body up to this size fits in the memory that each connection has outside the budget."""


def memory_of(size: int, *, is_known: bool = True) -> int:
    """The memory counted for a body of that size.

    If the peer `is_known`, the body may contain events; other peers send logins.
    """
    if not is_known:
        return _PER_LOGIN_BYTE * size
    return _PER_BYTE * size + min(_PER_SHORT_BYTE * size, _SHORT_MAX)


def largest_within(memory: int, *, is_known: bool = True) -> int:
    """The largest body for which at most `memory` bytes are counted."""
    if not is_known:
        return memory // _PER_LOGIN_BYTE
    return max(memory // (_PER_BYTE + _PER_SHORT_BYTE), (memory - _SHORT_MAX) // _PER_BYTE)
