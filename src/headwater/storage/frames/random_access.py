"""Decodes a few scattered events of a frame in place in its file.

`speedups/frames.c` does the same for frames without rare columns.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from mmap import mmap

from ...core.event import NO_ATTRIBUTES, Encoding, SequencedEvent, sequenced
from ...speedups import IS_NATIVE
from .layout import DIRECTORY, HEADER, LEAD, Column

_DATA = Encoding.DATA

if IS_NATIVE:
    from ...speedups._native import know_event
    from ...speedups._native import pick as pick_plain

    know_event(sequenced((0, 0, 0, "", b"", (), "", "", NO_ATTRIBUTES, "", b"", _DATA)))

_points = struct.Struct("<24xI4xQ32xq12s2I8s5I36s2I").unpack_from
"""The parts of a header and directory that `pick` needs: count, first, recorded_at; times, partitions and encodings;
ids, their bytes; sources; types, their bytes; lists of tags, tags, their bytes; group keys, attributes and envelopes;
data, its bytes. Slots read as byte strings are usually left out, and then all zeros."""
_NO_TIMES, _NO_SOURCES, _NO_EXTRAS = bytes(12), bytes(8), bytes(36)
_INT64, _UINT16, _UINT8 = struct.Struct("<q"), struct.Struct("<H"), struct.Struct("<B")
_two = struct.Struct("<2i").unpack_from
_three = struct.Struct("<3i").unpack_from


def pick(content: mmap | bytes, offset: int, numbers: Sequence[int], events: list[SequencedEvent], budget: int) -> int:
    """Decode and append the events with these numbers of the frame at that offset: fast for a few scattered ones.

    The caller has verified the frame, and no number is below its first; numbers above its last are ignored. It stops,
    after at least one event, when payloads have used up the byte budget; returns the rest of the budget.
    """
    if IS_NATIVE and (left := pick_plain(content, offset, numbers, events, budget)) is not None:
        return left
    return pick_any(content, offset, numbers, events, budget)


def pick_any(
    content: mmap | bytes,
    offset: int,
    numbers: Sequence[int],
    events: list[SequencedEvent],
    budget: int,
    *,
    with_data: bool = True,
) -> int:
    """`pick` for any frame, optionally without the events' data."""
    (
        count, first, recorded_at, times, id, ids, sources, type, types, lists, tag, tags, extras, datum, data,
    ) = _points(content, offset)  # fmt: skip
    types, ids, tags, data = types + offset, ids + offset, tags + offset, data + offset
    its_tags: tuple[str, ...] = ()
    is_plain = times == _NO_TIMES and sources == _NO_SOURCES and extras == _NO_EXTRAS
    for number in numbers:
        index = number - first
        if index >= count:  # it is lost, and the loss was accepted
            continue
        at = offset + 4 * index
        low, high = _two(content, type + at)
        its_type = content[types + low : types + high].decode()
        low, high = _two(content, id + at)
        its_id = content[ids + low : ids + high].decode()
        if lists:
            low, high = _two(content, lists + at)
            at_tag = offset + tag + 4 * low
            if high - low == 2:  # the usual case
                low, middle, high = _three(content, at_tag)
                middle += tags
                its_tags = (content[tags + low : middle].decode(), content[middle : tags + high].decode())
            else:
                bounds = struct.unpack_from(f"<{high - low + 1}i", content, at_tag)
                its_tags = tuple([content[tags + a : tags + b].decode() for a, b in pairwise(bounds)])
        low, high = _two(content, datum + at)
        its_data = content[data + low : data + high] if with_data else b""
        budget -= high - low
        if is_plain:
            events.append(
                sequenced((number, recorded_at, 0, its_type, its_data, its_tags, its_id, "", NO_ATTRIBUTES, "", b"",
                            _DATA))
            )  # fmt: skip
        else:
            event = _Extras(content, offset).added(number, index, recorded_at, its_type, its_data, its_tags, its_id)
            budget -= len(event.envelope)
            events.append(event)
        if budget <= 0:
            break
    return budget


class _Extras:
    """The columns that most frames lack."""

    def __init__(self, content: mmap | bytes, offset: int) -> None:
        self._content, self._offset = content, offset
        self._directory = DIRECTORY.unpack_from(content, offset + LEAD.size + HEADER.size)

    def added(
        self, number: int, index: int, recorded_at: int, type: str, data: bytes, tags: tuple[str, ...], id: str
    ) -> SequencedEvent:
        """The event at that index, with these columns."""
        slots = self._directory
        return SequencedEvent(
            number,
            self._number(_INT64, Column.RECORDED_AT, index) if slots[Column.RECORDED_AT] else recorded_at,
            self._number(_UINT16, Column.PARTITION, index) if slots[Column.PARTITION] else 0,
            type,
            data,
            tags,
            id,
            self._value(Column.SOURCE, index).decode() if slots[Column.SOURCE] else "",
            self._attributes(index) if slots[Column.ATTRIBUTE_LISTS] else NO_ATTRIBUTES,
            self._value(Column.GROUP_KEY, index).decode() if slots[Column.GROUP_KEY] else "",
            self._value(Column.ENVELOPE, index) if slots[Column.ENVELOPE] else b"",
            Encoding(self._number(_UINT8, Column.ENCODING, index)) if slots[Column.ENCODING] else _DATA,
        )

    def _number(self, kind: struct.Struct, slot: int, index: int) -> int:
        (value,) = kind.unpack_from(self._content, self._offset + self._directory[slot] + kind.size * index)
        return int(value)

    def _value(self, slot: int, index: int) -> bytes:
        low, high = _two(self._content, self._offset + self._directory[slot] + 4 * index)
        origin = self._offset + self._directory[slot + 1]
        return self._content[origin + low : origin + high]

    def _attributes(self, index: int) -> Mapping[str, str]:
        low, high = _two(self._content, self._offset + self._directory[Column.ATTRIBUTE_LISTS] + 4 * index)
        return {
            self._value(Column.ATTRIBUTE_NAME, each).decode(): self._value(Column.ATTRIBUTE_VALUE, each).decode()
            for each in range(low, high)
        }
