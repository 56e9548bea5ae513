"""How much memory a body, or a message over WebSocket, counts for until it is answered: what decoding takes is in it.

Measured ([record](../docs/decisions/0207-one-budget-of-memory.md)): the text, its copy while it is decoded, the columns
and the frame take 4 bytes for each byte. Of events as short as can be, an append has 65,536, and each takes 250 bytes.
"""

from __future__ import annotations

_PER_BYTE, _PER_SHORT_BYTE, _PER_LOGIN_BYTE = 4, 8, 3
_SHORT_MAX = 16 * 2**20
"""What short events take at most, beside that."""
SMALL_BYTES = 5 * 1024
"""A body up to this size needs no more than each connection has beside the budget."""


def memory_of(size: int, *, is_known: bool = True) -> int:
    """What a body of that size counts for; that of a peer that `is_known` may be events, others are logins."""
    if not is_known:
        return _PER_LOGIN_BYTE * size
    return _PER_BYTE * size + min(_PER_SHORT_BYTE * size, _SHORT_MAX)


def largest_within(memory: int, *, is_known: bool = True) -> int:
    """The largest body that counts for so much at most."""
    if not is_known:
        return memory // _PER_LOGIN_BYTE
    return max(memory // (_PER_BYTE + _PER_SHORT_BYTE), (memory - _SHORT_MAX) // _PER_BYTE)
