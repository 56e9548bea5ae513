"""A long MessagePack array cut into short ones, so that no call into a decoder takes long."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from ..core.errors import TooLarge
from . import packed

PIECE_BYTES = 128 * 1024
PIECE_ELEMENTS = 512
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ARRAY, _MAP = 0xDC, 0xDE


def length_of(value: bytes) -> int | None:
    """How many elements an array has, or members a map; None if it is something else."""
    first = value[0] if value else 0
    if 0x80 <= first <= 0x9F:
        return first & 0x0F
    if first in (_ARRAY, _MAP):
        return int.from_bytes(value[1:3], "big")
    if first in (_ARRAY + 1, _MAP + 1):
        return int.from_bytes(value[1:5], "big")
    return None


def elements_of(array: bytes, limit: int, where: str) -> list[msgspec.Raw]:
    """The elements of an array, none of them decoded. Raises TooLarge before it looks at any, and InvalidInput."""
    length = length_of(array)
    if length is not None and length > limit:
        raise TooLarge(length, limit, "elements", where)
    return packed.decode(_raws, array)


def pieces_of(elements: list[msgspec.Raw]) -> Iterator[tuple[int, bytes]]:
    """Arrays of some elements each, with the index of the first."""
    start = size = 0
    for index, element in enumerate(elements):
        size += len(bytes(element))
        if size >= PIECE_BYTES or index - start == PIECE_ELEMENTS - 1:
            yield start, array_of(elements[start : index + 1])
            start, size = index + 1, 0
    if start < len(elements):
        yield start, array_of(elements[start:])


def array_of(elements: list[msgspec.Raw]) -> bytes:
    """The array of those elements."""
    return struct.pack(">BI", _ARRAY + 1, len(elements)) + b"".join(map(bytes, elements))
