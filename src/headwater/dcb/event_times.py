"""The events' own times, which are not indexed: read from the log once per query, and cached.

A scan proceeds in steps from the newest events to the oldest, and later adds new events. Cached times stay valid,
because events never change; the times of trimmed events are dropped.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from time import thread_time
from typing import NamedTuple

from ..core.event import SequencedEvent
from ..core.local import LocalLog
from ..core.loop.scheduler import BatchSizer
from ..core.query import Query

EVENTS_MAX = 2_000_000
"""The maximum number of events of one query whose times are cached (the newest)."""
KEPT_BYTES_MAX = 32 * 1024 * 1024
"""The memory for the times of all queries; the least recently used are dropped."""
SCANS_MAX = 1000
"""The maximum number of queries whose times are cached."""
TYPES_MAX = 160
"""The maximum number of types counted separately per query; events of other types are counted together."""
BLOCK_EVENTS = 4096
"""The number of events counted in one step."""
TIME_MIN, TIME_MAX = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 of RFC 3339, in ms since 1970 UTC."""
_PAGE_EVENTS, _PAGE_EVENTS_FIRST, _STEP_S = 300, 64, 0.001
"""Short pages cost more per event, but pages of this size do not delay other requests."""
_SCAN_BYTES, _ARRAY_BYTES, _TIME_BYTES = 1024, 256, 8
"""The approximate memory of a scan, of the times of one type in one block, and of one time."""
_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)

OTHERS = ""
"""Stands for the types that are not counted separately."""


def happened_at(event: SequencedEvent) -> int:
    """The event's own time (its CloudEvents attribute `time`) in ms since 1970 UTC, otherwise its recording time."""
    text = event.attributes.get("time")
    if text is None:
        return event.recorded_at
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:  # a leap second, or not RFC 3339: other protocols do not require that of producers
        return event.recorded_at
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(TIME_MIN, min((moment - _EPOCH) // _MS, TIME_MAX))


class Block:
    """The times of consecutive events in the log, by type."""

    __slots__ = ("count", "earliest", "first", "last", "latest", "times", "unsorted")

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.count = self.earliest = self.latest = 0
        self.times: dict[str, array[int]] = {}
        self.unsorted: set[str] = set()

    @property
    def bytes(self) -> int:
        """The approximate memory use."""
        return self.count * _TIME_BYTES + len(self.times) * _ARRAY_BYTES

    def add(self, name: str, at: int) -> None:
        """Add an event of that type."""
        self.earliest = min(self.earliest, at) if self.count else at
        self.latest = max(self.latest, at) if self.count else at
        self.count += 1
        self.times.setdefault(name, array("q")).append(at)
        self.unsorted.add(name)

    def copy(self) -> Block:
        """A snapshot of this block."""
        copied = Block(self.first, self.last)
        copied.count, copied.earliest, copied.latest = self.count, self.earliest, self.latest
        copied.times = {name: times[:] for name, times in self.times.items()}
        copied.unsorted = set(self.unsorted)
        return copied

    def counted(self, borders: Sequence[int]) -> dict[str, list[tuple[int, int]]]:
        """(bucket, events) of each non-empty bucket, by type; a bucket ends just before the next border."""
        for name in self.unsorted:
            self.times[name] = array("q", sorted(self.times[name]))
        self.unsorted.clear()
        return {name: list(_runs(times, borders)) for name, times in self.times.items()}


def _runs(times: array[int], borders: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(bucket, events) of ordered times, with one search per non-empty bucket."""
    at, end = bisect_left(times, borders[0]), bisect_left(times, borders[-1])
    while at < end:
        bucket = bisect_right(borders, times[at]) - 1
        after = bisect_left(times, borders[bucket + 1], at, end)
        yield bucket, after - at
        at = after


class Seen(NamedTuple):
    """A snapshot of what a scan has read."""

    blocks: Sequence[Block]
    events: int
    low: int
    high: int
    is_complete: bool
    """Whether that is everything up to the requested head."""

    def range(self) -> tuple[int, int] | None:
        """The earliest and the latest time; None without events."""
        blocks = [block for block in self.blocks if block.count]
        return (min(each.earliest for each in blocks), max(each.latest for each in blocks)) if blocks else None

    def counted(self, borders: Sequence[int]) -> Iterator[dict[str, list[tuple[int, int]]]]:
        """The counts of each block, one block per step."""
        for block in self.blocks:
            yield block.counted(borders)


class TimeScan:
    """The times of the events matching one query, from number `low` to `high`."""

    def __init__(self, head: int) -> None:
        """Begin at the head; nothing is read yet."""
        self.low, self.high = head + 1, head
        self.blocks: deque[Block] = deque()
        self.events = 0
        self._types: set[str] = set()
        self._sizer = BatchSizer(_PAGE_EVENTS, _PAGE_EVENTS_FIRST, _STEP_S)

    @property
    def bytes(self) -> int:
        """The approximate memory use."""
        return _SCAN_BYTES + sum(block.bytes for block in self.blocks)

    def seen(self, log: LocalLog, head: int) -> Seen:
        """A snapshot of what has been read. Only the blocks at both ends grow, so only those are copied."""
        blocks = list(self.blocks)
        for end in {0, len(blocks) - 1} if blocks else ():
            blocks[end] = blocks[end].copy()
        is_complete = self.low <= log.first_retained and self.high >= head
        return Seen(blocks, self.events, self.low, self.high, is_complete)

    def steps(self, log: LocalLog, query: Query, partition: int | None, head: int) -> Iterator[int]:
        """Read missing events, newest first, one short page per step; yields the number of events."""
        self._forget(log.first_retained)
        while self.high < head:
            yield self._read(log, query, partition, head, backwards=False)
        while self.low > log.first_retained and self.events < EVENTS_MAX:
            yield self._read(log, query, partition, head, backwards=True)

    def _read(self, log: LocalLog, query: Query, partition: int | None, head: int, *, backwards: bool) -> int:
        """Read one page above or below the range; its times are added to the block at that end."""
        began = thread_time()
        limit = self._sizer.size
        first_retained = log.first_retained  # taken before reading: `_forget` handles a trim in between
        if backwards:
            page = log.read_page(query, self.low, backwards=True, partition=partition, limit=limit, is_bounded=True)
            low, high = (first_retained if page.is_last else page.cursor), self.low - 1
        else:
            page = log.read_page(query, self.high, upto=head, partition=partition, limit=limit, is_bounded=True)
            low, high = self.high + 1, (head if page.is_last else page.cursor)
        block = self._block(low, high, backwards=backwards)
        events = page.events if page.large is None else (page.large.event,)
        for event in events:
            block.add(self._named(event.type), happened_at(event))
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.events += len(events)
        while self.events - self.blocks[0].count >= EVENTS_MAX:
            self._drop_oldest()
        self._sizer.took(len(events), thread_time() - began)
        return len(events)

    def _block(self, low: int, high: int, *, backwards: bool) -> Block:
        """The block at that end, extended by those numbers; a new one if it is full."""
        block = self.blocks[0 if backwards else -1] if self.blocks else None
        if block is None or block.count >= BLOCK_EVENTS:
            block = Block(low, high)
            (self.blocks.appendleft if backwards else self.blocks.append)(block)
        block.first, block.last = min(block.first, low), max(block.last, high)
        return block

    def _named(self, name: str) -> str:
        if name not in self._types:
            if len(self._types) >= TYPES_MAX:
                return OTHERS
            self._types.add(name)
        return name

    def _forget(self, first_retained: int) -> None:
        """Drop blocks with trimmed events; the rest of the last one is read again."""
        while self.blocks and self.blocks[0].first < first_retained:
            self._drop_oldest()
        self.high = max(self.high, first_retained - 1)
        self.low = max(self.low, first_retained)

    def _drop_oldest(self) -> None:
        block = self.blocks.popleft()
        self.events -= block.count
        self.low = block.last + 1


class EventTimes:
    """The most recently used scans of all logs."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._scans: OrderedDict[Hashable, TimeScan] = OrderedDict()

    def scan(self, key: Hashable, head: int) -> TimeScan:
        """The scan for that key (query and incarnation of a log); a new one begins at the head."""
        scan = self._scans.setdefault(key, TimeScan(head))
        self._scans.move_to_end(key)
        self.bound()  # a client that disconnected during a scan has not done this
        return scan

    def bound(self) -> None:
        """Drop the least recently used scans while all of them use too much memory."""
        left = sum(scan.bytes for scan in self._scans.values()) - self._bytes_max
        while len(self._scans) > 1 and (left > 0 or len(self._scans) > SCANS_MAX):
            left -= self._scans.popitem(last=False)[1].bytes
