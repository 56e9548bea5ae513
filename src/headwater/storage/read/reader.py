"""Reads pages of events: without a query by walking frames, with a query by the index."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from ...core.event import SequencedEvent
from ...core.log import EVENT_BYTES, Page
from ...core.query import Query
from ...formats.packed import PackedEvents
from ..frames.frame import Frame
from ..index.index import Index
from ..index.matches import SkipMarker, listed, matching
from ..segments.segment import pick
from ..segments.segment_log import SegmentLog
from .frame_cache import DECODED_FRAME_BYTES_MAX, DecodedFrames

LOOKS_MAX = 2048
"""The maximum number of candidates without a match to check for one page: this takes about as long as reading a
page."""
_CONFIRMED_TOGETHER = 1024
"""The number of candidates of one frame that are checked at once."""


class Bounds(NamedTuple):
    """The bounds of a page: matching events from `low` to `high`, their count, and their approximate payload bytes."""

    low: int
    high: int
    head: int
    backwards: bool
    limit: int
    bytes_max: int
    packs: bool = False
    """Whether picked events are packed at once."""
    is_bounded: bool = False
    """Whether the byte bound covers all bytes of the events, and a larger event comes alone."""


class Reader:
    """Reads one log. Safe to call from any thread; it has no state."""

    def __init__(self, segments: SegmentLog, index: Index, decoded: DecodedFrames) -> None:
        """`decoded` contains the newest decoded frames of this log and others."""
        self._segments, self._index = segments, index
        self._kept = decoded

    def page(self, query: Query, partition: int | None, bounds: Bounds) -> Page:
        """The first page within these bounds. Raises StorageCorrupted."""
        if query.items is None and partition is None:
            return self._scan_backwards(bounds) if bounds.backwards else self._scan(bounds)
        pieces = self._index.pieces(bounds.low, bounds.high)
        asked = bounds.limit + 1  # one more shows whether there are more
        wanted = listed(pieces, query, partition, asked, backwards=bounds.backwards)
        if wanted is None:
            numbers = matching(pieces, query, partition, backwards=bounds.backwards, looks_max=LOOKS_MAX)
            wanted = list(islice(numbers, asked))
        return self._pick(wanted, bounds)

    def frame_at(self, number: int) -> Frame | None:
        """The frame with that number, or the next one; None above the last."""
        return self._segments.frame_at(number)

    def frame_at_exactly(self, number: int) -> Frame | None:
        """The frame with that number, or None if it is not stored (yet)."""
        frame = self.frame_at(number)
        return frame if frame is not None and frame.first <= number else None

    def confirmed(
        self, candidates: Sequence[tuple[int, int]], sources: Sequence[str], ids: Sequence[str]
    ) -> list[int | None]:
        """The event number of each (source, id), from candidates (index, number) in order of number.

        Raises StorageCorrupted.
        """
        found: list[int | None] = [None] * len(ids)
        position = 0
        while position < len(candidates):
            number = candidates[position][1]
            frame = self.frame_at_exactly(number)
            if frame is None or number > frame.last:  # just trimmed, or lost
                position += 1
                continue
            stop = bisect_right(candidates, frame.last, position, key=itemgetter(1))
            for start in range(position, stop, _CONFIRMED_TOGETHER):
                piece = candidates[start : min(start + _CONFIRMED_TOGETHER, stop)]
                low, high = piece[0][1], piece[-1][1]
                its_sources = frame.sources(low - frame.first, high - frame.first + 1)
                its_ids = frame.ids(low - frame.first, high - frame.first + 1)
                for index, number in piece:
                    if (its_sources[number - low], its_ids[number - low]) == (sources[index], ids[index]):
                        found[index] = number
            position = stop
        return found

    def _scan(self, bounds: Bounds) -> Page:
        events: list[SequencedEvent] = []
        number, budget, is_gated = bounds.low, bounds.bytes_max, True
        while number <= bounds.high and len(events) < bounds.limit and budget > 0:
            frame = self.frame_at(number)
            if frame is None or frame.first > bounds.high:
                number = bounds.high + 1
                break
            start = max(number - frame.first, 0)
            end = min(frame.count, bounds.high - frame.first + 1, start + bounds.limit - len(events))
            if bounds.is_bounded:
                end, budget = _within_bound(frame, start, end, budget)
                if end == start:
                    return _cut_off(events, number - 1, bounds, frame, start, is_gated=is_gated)
            else:
                end, budget = _within_budget(frame, start, end, budget)
            events += self._decoded(frame, start, end, bounds.head)
            is_gated &= frame.is_gated
            number = frame.first + end
        is_last = number > bounds.high
        return Page(events, bounds.high if is_last else number - 1, bounds.head, is_last, is_gated)

    def _scan_backwards(self, bounds: Bounds) -> Page:
        events: list[SequencedEvent] = []
        number, budget, is_gated = bounds.high, bounds.bytes_max, True
        while number >= bounds.low and len(events) < bounds.limit and budget > 0:
            frame = self._segments.frame_below(number + 1)
            if frame is None or frame.last < bounds.low:
                number = bounds.low - 1
                break
            end = min(number, frame.last) - frame.first + 1
            start = max(bounds.low - frame.first, end - (bounds.limit - len(events)), 0)
            if bounds.is_bounded:
                start = max(start, frame.sizes.begin(end, budget))
                if start == end:
                    return _cut_off(events, number + 1, bounds, frame, end - 1, is_gated=is_gated)
                budget -= frame.sizes.between(start, end)
            is_gated &= frame.is_gated
            for event in reversed(self._decoded(frame, start, end, bounds.head)):
                events.append(event)
                number = event.sequence_number - 1
                if not bounds.is_bounded:
                    budget -= len(event.data) + len(event.envelope)
                    if budget <= 0:
                        break
        is_last = number < bounds.low
        return Page(events, bounds.low if is_last else number + 1, bounds.head, is_last, is_gated)

    def _pick(self, wanted: list[int], bounds: Bounds) -> Page:
        """The page of the wanted events."""
        passed = wanted.pop() if wanted and wanted[-1].__class__ is SkipMarker else None
        count = len(wanted)
        if more := count > bounds.limit:
            wanted.pop()
            count -= 1
        events: list[SequencedEvent] | PackedEvents = PackedEvents() if bounds.packs else []
        event_bytes = EVENT_BYTES if bounds.is_bounded else 0
        position, budget, is_gated = pick(self._segments.segments, wanted, events, bounds.bytes_max, event_bytes)
        if position < count and budget <= 0 and bounds.is_bounded and not events:
            frame = self.frame_at_exactly(wanted[position])
            if frame is not None:
                return _cut_off((), 0, bounds, frame, wanted[position] - frame.first)
        if more or position < count:
            return Page(events, wanted[position - 1], bounds.head, False, is_gated)
        if passed is not None:  # another item of the query may have the same number
            return Page(events, passed + 1 if bounds.backwards else passed - 1, bounds.head, False, is_gated)
        return Page(events, bounds.low if bounds.backwards else bounds.high, bounds.head, True, is_gated)

    def _decoded(self, frame: Frame, start: int, end: int, head: int) -> Sequence[SequencedEvent]:
        if (kept := self._kept.get(self._segments, frame.first)) is not None:
            return kept[start:end]
        if start or end < frame.count or head - frame.last > 4096 or frame.length > DECODED_FRAME_BYTES_MAX:
            return frame.events(start, end)
        events = frame.events()
        self._kept.keep(self._segments, frame.first, frame.length, events)
        return events


def _within_bound(frame: Frame, start: int, end: int, budget: int) -> tuple[int, int]:
    """The end of the piece within the budget, and the rest of the budget; it may be empty."""
    size = frame.length + EVENT_BYTES * (end - start)  # an upper bound
    if size > budget or (start and end == frame.count):  # else this is the whole frame, or the page ends here
        end, size = frame.sizes.end(start, end, budget)
    return end, budget - size


def _cut_off(
    events: Sequence[SequencedEvent], cursor: int, bounds: Bounds, frame: Frame, index: int, *, is_gated: bool = True
) -> Page:
    """The page up to the event at that index, which no longer fits, or that event alone."""
    if events:
        return Page(events, cursor, bounds.head, False, is_gated)
    number = frame.first + index
    is_last = bounds.limit and number == (bounds.low if bounds.backwards else bounds.high)
    return Page((), number, bounds.head, bool(is_last), frame.is_gated, frame.large(index))


def _within_budget(frame: Frame, start: int, end: int, budget: int) -> tuple[int, int]:
    """The end of the piece that fits the budget (at least one event), and the rest of the budget."""
    if frame.length <= budget:
        return end, budget - frame.length * (end - start) // frame.count
    totals = frame.payload_bytes()
    fitting = bisect_left(totals, totals[start] + budget, start + 1, end)
    return fitting, budget - (totals[fitting] - totals[start])
