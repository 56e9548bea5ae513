"""Checksums (CRC32C) of data in parts: extended part by part, or joined from the parts' checksums without the data.

A CRC is the remainder of a polynomial: appending `size` bytes multiplies it by x to the power of 8 * size.
"""

from __future__ import annotations

import google_crc32c
import numpy as np

from ...formats.arrow.lazy import pa

CRC_BYTES = 2 * 1024 * 1024
"""The number of bytes to checksum in one call, which takes about 2 ms."""
_COPIED_BYTES_MAX = 4096
"""The library does not accept a memoryview: up to this size, copying it is cheaper than making an array of it."""
_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, reflected: the highest bit is the coefficient of x to the power of 0."""
_ONE = 1 << 31
_ORDER = (1 << 31) - 1
"""x to this power is 1."""


def extended_crc(crc: int, content: bytes | memoryview | pa.Buffer) -> int:
    """The checksum of data with checksum `crc` followed by `content`; in parts, so that other threads can run."""
    size = len(content)
    if size < _COPIED_BYTES_MAX or (size <= CRC_BYTES and not isinstance(content, memoryview)):
        return int(google_crc32c.extend(crc, bytes(content) if isinstance(content, memoryview) else content))
    whole = np.frombuffer(content, np.uint8)  # in place
    for start in range(0, size, CRC_BYTES):
        crc = int(google_crc32c.extend(crc, whole[start : start + CRC_BYTES]))
    return crc


def joined_crc(first: int, second: int, size: int) -> int:
    """The CRC32C of two pieces of data together, from the checksum of each; the second has `size` bytes.

    Takes about 0.2 ms, whatever the size.
    """
    return _times(_power(8 * size), first) ^ second


def shortened_crc(whole: int, last: int, size: int) -> int:
    """The CRC32C of data without its last `size` bytes, from the CRC32Cs of the whole and of the last bytes."""
    return _times(_power(-8 * size % _ORDER), whole ^ last)


def _power(exponent: int) -> int:
    """x to the power of `exponent`, modulo the polynomial."""
    result, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            result = _times(result, square)
        square = _times(square, square)
        exponent >>= 1
    return result


def _times(a: int, b: int) -> int:
    """The product of two polynomials, modulo ours."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
    return product
