"""What segments are, and what a range of numbers in them takes, told by where their frames begin: no event is read."""

from __future__ import annotations

from collections.abc import Sequence

from .segment import Segment


def bytes_between(segments: Sequence[Segment], low: int, high: int) -> int:
    """What the events from `low` to `high` take, about: a frame that has others too counts by the number of them."""
    return sum(_bytes_upto(each, high) - _bytes_upto(each, low - 1) for each in segments) if low <= high else 0


def _bytes_upto(segment: Segment, number: int) -> int:
    """The bytes of its frames, and of a part of one, with the numbers up to that one."""
    firsts, offsets = segment.firsts, segment.offsets
    if not len(offsets) or number < segment.first:
        return 0
    begin = offsets[0]
    if number >= segment.last:
        return segment.end - begin
    index = max(segment.index_of(number), 0)
    first, offset = firsts[index], offsets[index]
    following = (firsts[index + 1], offsets[index + 1]) if index + 1 < len(offsets) else (segment.last + 1, segment.end)
    count = max(following[0] - first, 1)
    return offset - begin + (following[1] - offset) * min(number - first + 1, count) // count
