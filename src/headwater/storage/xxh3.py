"""XXH3 of many keys of one length at once: as `xxhash.xxh3_64_intdigest`, which takes one key a call.

Keys in a column must become objects for that, which takes 0.1 us of each, and nobody else runs in Python meanwhile.
Arithmetic over columns takes half of it. The algorithm is that of xxHash 0.8.2 (xxhash_spec.md, "XXH3 Algorithm for
Medium Inputs").
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LENGTH_MIN, LENGTH_MAX = 17, 128
_ROWS_AT_ONCE = 8192
"""What is between the steps then stays in the processor's cache."""

Words = npt.NDArray[np.uint64]

_SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
        "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    ),
    "<u8",
)
"""Of the algorithm: its first 128 bytes."""
_PRIME_1, _PRIME_MX = 0x9E3779B185EBCA87, 0x165667919E3779F9
_LOW = np.uint64(0xFFFFFFFF)
_32, _37 = np.uint64(32), np.uint64(37)


def hash_rows(content: bytes | memoryview, count: int, seed: int) -> Words:
    """The hashes of so many keys that lie one behind the other, each of LENGTH_MIN to LENGTH_MAX bytes."""
    length = len(content) // count
    hashes = np.empty(count, np.uint64)
    for first in range(0, count, _ROWS_AT_ONCE):
        rows = min(_ROWS_AT_ONCE, count - first)
        hashes[first : first + rows] = _hashes(content, first * length, rows, length, seed)
    return hashes


def _hashes(content: bytes | memoryview, start: int, rows: int, length: int, seed: int) -> Words:
    def mixed(at: int, secret: int) -> Words:
        """Of 16 bytes of each key, under as many of the secret."""
        halves = []
        for half, sign in ((0, 1), (8, -1)):
            key = np.uint64((int(_SECRET[(secret + half) // 8]) + sign * seed) % 2**64)
            halves.append(np.ndarray((rows,), "<u8", content, start + at + half, (length,)) ^ key)
        return _folded(*halves)

    hashes = np.full(rows, length * _PRIME_1 % 2**64, np.uint64)
    for pair in range((length - 1) // 32 + 1):
        hashes += mixed(16 * pair, 32 * pair)
        hashes += mixed(length - 16 * (pair + 1), 32 * pair + 16)
    hashes ^= hashes >> _37
    hashes *= np.uint64(_PRIME_MX)
    hashes ^= hashes >> _32
    return hashes


def _folded(a: Words, b: Words) -> Words:
    """The halves of the products of 128 bits, one upon the other."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _32, b & _LOW, b >> _32
    across, beside = a_high * b_low, a_low * b_high
    carried = ((a_low * b_low) >> _32) + (across & _LOW) + (beside & _LOW)
    high: Words = a_high * b_high + (across >> _32) + (beside >> _32) + (carried >> _32)
    return high ^ (a * b)
