"""The sizes of a frame's events, from the offsets of its columns, without reading the events."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ...core.log import EVENT_BYTES
from .layout import Column

_VALUES = (Column.ID, Column.SOURCE, Column.TYPE, Column.GROUP_KEY, Column.ENVELOPE, Column.DATA)
_LISTED = (
    (Column.TAG_LISTS, Column.TAG),
    (Column.ATTRIBUTE_LISTS, Column.ATTRIBUTE_NAME),
    (Column.ATTRIBUTE_LISTS, Column.ATTRIBUTE_VALUE),
)
_LOOKS = 6
_number = struct.Struct("<i").unpack_from


class EventSizes:
    """The bytes of events in all columns, plus `EVENT_BYTES` for each."""

    __slots__ = ("_buffer", "_count", "_listed", "_values")

    def __init__(self, buffer: memoryview, directory: Sequence[int], count: int) -> None:
        """For the verified frame in that buffer."""
        self._buffer, self._count = buffer, count
        self._values = [directory[each] for each in _VALUES if directory[each]]
        self._listed = [(directory[lists], directory[texts]) for lists, texts in _LISTED if directory[lists]]

    def between(self, start: int, end: int) -> int:
        """The size of the events from `start` up to `end` (exclusive)."""
        return self._upto(end) - self._upto(start)

    def end(self, start: int, end: int, size: int) -> tuple[int, int]:
        """The end, at most `end`, of the events from `start` on that together fit in `size` bytes, and their size.

        Most events of a frame are of similar size: the search starts at the estimate.
        """
        upto = self._upto
        begin, low, high = upto(start), start, end
        below, above = 0, upto(end) - begin
        """The size of the events up to `low`, which fit, and up to `high`, which do not, if there are any."""
        if above <= size:
            return end, above
        for look in range(_LOOKS):
            if high - low <= 1:
                return low, below
            at = low + (size - below) * (high - low) // (above - below) + (look & 1)
            at = min(max(at, low + 1), high - 1)
            if (found := upto(at) - begin) <= size:
                low, below = at, found
            else:
                high, above = at, found
        low = bisect_right(range(high), begin + size, low, high, key=upto) - 1
        return low, upto(low) - begin

    def begin(self, end: int, size: int) -> int:
        """The start of the events before `end` that together fit in `size` bytes."""
        return bisect_left(range(end + 1), self._upto(end) - size, 0, end, key=self._upto)

    def _upto(self, index: int) -> int:
        buffer, at = self._buffer, 4 * index
        size = EVENT_BYTES * index
        for values in self._values:
            size += _number(buffer, values + at)[0]
        for lists, texts in self._listed:
            size += _number(buffer, texts + 4 * _number(buffer, lists + at)[0])[0]
        return size
