"""Cuts a long MessagePack array into short ones, so that no call into a decoder takes long."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ...core.errors import InvalidInput, TooLarge
from ...core.loop.slices import Slices
from .. import packed
from .output import Output
from .values import packed_walk

PIECE_BYTES = 128 * 1024
PIECE_ELEMENTS = 512
LONG_BYTES = 1024 * 1024
"""The minimum length of an element that is a piece by itself, and of bytes that are copied in spans."""
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ARRAY, _MAP = 0xDC, 0xDE
_BYTES_32, _BYTES_32_HEAD = 0xC6, 5
_NO_BYTES = b"\xc4\x00"


def length_of(value: bytes, at: int = 0) -> int | None:
    """The number of elements of the array, or members of the map, at that position; None if it is something else."""
    return _opened(value, at)[0]


def array_at(content: bytes, at: int) -> tuple[int | None, int]:
    """The number of elements of the array there, None if it is something else; and where the first one begins."""
    return _opened(content, at) if _is_array(content, at) else (None, at)


def map_at(content: bytes, at: int) -> tuple[int | None, int]:
    """The number of members of the map there, None if it is something else; and where the first one begins."""
    return (None, at) if _is_array(content, at) else _opened(content, at)


def _is_array(content: bytes, at: int) -> bool:
    first = content[at] if at < len(content) else 0
    return 0x90 <= first <= 0x9F or first in (_ARRAY, _ARRAY + 1)


def _opened(content: bytes, at: int) -> tuple[int | None, int]:
    first = content[at] if at < len(content) else 0
    if 0x80 <= first <= 0x9F:
        return first & 0x0F, at + 1
    if first in (_ARRAY, _MAP):
        return int.from_bytes(content[at + 1 : at + 3], "big"), at + 3
    if first in (_ARRAY + 1, _MAP + 1):
        return int.from_bytes(content[at + 1 : at + 5], "big"), at + 5
    return None, at


class Span(NamedTuple):
    """The place of a value."""

    end: int
    values: int
    """The number of values in it, including itself and keys of maps."""


def span_at(content: bytes, at: int, limit: int, where: str) -> Span:
    """The span of the value that begins there; creates nothing. Raises InvalidInput, also for over `limit` values.

    With a limit of 16,384 this takes less than 2 ms.
    """
    end, values, left = packed_walk(content, at, limit)
    if left > len(content) - end or end > len(content):
        raise InvalidInput(f"malformed MessagePack: the value that starts at byte {at} is truncated", where)
    if left:
        raise InvalidInput(f"more than {limit} values", where)
    return Span(end, values)


def elements_of(array: bytes, limit: int, where: str) -> list[msgspec.Raw]:
    """The elements of an array, undecoded. Raises TooLarge before it reads any, and InvalidInput."""
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


class Cut:
    """The elements of a long array in pieces, found one by one: see `PIECE_BYTES`, `PIECE_ELEMENTS`."""

    def __init__(self, start: int) -> None:
        """`start` is where the first element begins."""
        self._start, self._end, self._first, self._count = start, start, 0, 0
        self.pieces: list[tuple[int, int, int, int]] = []
        """For each piece: the index of its first element, the number of elements, and where they begin and end."""

    def add(self, end: int) -> None:
        """The next element ends there. A long one is a piece by itself."""
        if end - self._end >= LONG_BYTES:
            self.finish(self._end)
        self._end = end
        self._count += 1
        if end - self._start >= PIECE_BYTES or self._count == PIECE_ELEMENTS:
            self.finish(end)

    def finish(self, end: int) -> None:
        """No more elements follow in this piece."""
        if self._count:
            self.pieces.append((self._first, self._count, self._start, end))
            self._start, self._first, self._count = end, self._first + self._count, 0


async def without_long_bytes(content: bytes, start: int, end: int, slices: Slices) -> tuple[bytes, dict[int, bytes]]:
    """The array at `start`, with empty bytes for each element that is bytes of LONG_BYTES or more; and those, by index.

    What begins there is well-formed and has few values. Raises InvalidInput if it is no array.
    """
    count, at = array_at(content, start)
    if count is None:
        raise InvalidInput("expected an array, got something else", "[0]")
    short, long = bytearray(content[start:at]), dict[int, bytes]()
    for index in range(count):
        begins, at = at, span_at(content, at, end - start, "").end
        if content[begins] == _BYTES_32 and at - begins >= LONG_BYTES:
            out = Output(at - begins - _BYTES_32_HEAD)
            await out.copy(content, begins + _BYTES_32_HEAD, at, slices)
            long[index] = out.value()
            short += _NO_BYTES
        else:
            short += memoryview(content)[begins:at]
    short += memoryview(content)[at:end]
    return bytes(short), long


def array_head(count: int) -> bytes:
    """The bytes before the elements of an array of `count`."""
    return struct.pack(">BI", _ARRAY + 1, count)


def array_of(elements: list[msgspec.Raw]) -> bytes:
    """The array of those elements."""
    return array_head(len(elements)) + b"".join(map(bytes, elements))
