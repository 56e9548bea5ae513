"""Event data in slices, for answers that never have all of it in memory: raw, as base64, or as JSON text.

Data comes as a view of the storage. Each slice is created once the previous one was taken.
"""

from __future__ import annotations

import binascii
import codecs
from collections.abc import Callable, Iterator

import msgspec

TEXT_BYTES_MAX = 4 * 1024 * 1024
"""Larger data is base64 in every JSON format, whatever its bytes: it is not checked for UTF-8 first."""
_LOOK_BYTES = 64 * 1024
_NO_DATA = b'"data":""'

PieceBytes = Callable[[], int]
"""Approximate limit for the bytes of the next slice."""

_encode = msgspec.json.Encoder().encode


def raw_slices(data: memoryview, piece_bytes: PieceBytes) -> Iterator[bytes]:
    """The raw data."""
    at = 0
    while at < len(data):
        start, at = at, at + piece_bytes()
        yield bytes(data[start:at])


def base64_slices(data: memoryview, piece_bytes: PieceBytes) -> Iterator[bytes]:
    """The data as base64."""
    at = 0
    while at < len(data):
        start, at = at, at + max(piece_bytes() // 4, 1) * 3
        yield binascii.b2a_base64(data[start:at], newline=False)


def text_slices(data: memoryview, piece_bytes: PieceBytes) -> Iterator[bytes]:
    """Data that is UTF-8, as the content of a JSON string. A character may become six bytes."""
    at, size = 0, len(data)
    while at < size:
        wanted, found = piece_bytes() // 2, bytearray()
        step = max(wanted // 2, 16)
        while at < size and len(found) < wanted:
            start, at = at, end_of_character(data, at + step)
            found += _encode(str(data[start:at], "utf-8"))[1:-1]
        yield bytes(found)


def is_text(data: memoryview) -> bool:
    """Whether all of it is UTF-8. A few MB take a few ms."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(data), _LOOK_BYTES):
            decoder.decode(data[at : at + _LOOK_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def json_slices(encoded: bytes, data: memoryview, piece_bytes: PieceBytes) -> Iterator[bytes]:
    """JSON whose first member `data` is an empty string, filled with the data: as text, or as `data_base64`.

    Inside a string, a quotation mark has a backslash before it, so only that member matches.
    """
    before, after = encoded.split(_NO_DATA, 1)
    del encoded
    if len(data) <= TEXT_BYTES_MAX and is_text(data):
        yield before + b'"data":"'
        yield from text_slices(data, piece_bytes)
    else:
        yield before + b'"data_base64":"'
        yield from base64_slices(data, piece_bytes)
    yield b'"' + after


def end_of_character(data: memoryview, at: int) -> int:
    """That place, or the last one before it that does not split a UTF-8 character."""
    at = min(at, len(data))
    for back in range(min(4, at)):
        if at - back == len(data) or data[at - back] & 0xC0 != 0x80:
            return at - back
    return at
