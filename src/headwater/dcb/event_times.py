"""When events happened by their own times, which no index has: read from the log once for each query, and kept.

A scan grows from the newest events to the oldest, in steps, and later with the events that are new since. What was
read stays true, because an event never changes; what was trimmed is let go.
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
"""Events of one query whose times are kept: the newest."""
KEPT_BYTES_MAX = 32 * 1024 * 1024
"""Memory for the times of all queries: those that were asked for last."""
SCANS_MAX = 1000
"""Queries whose times are kept, at most, however few they have."""
TYPES_MAX = 160
"""Types of one query that are told apart; events of all others count as of none of them."""
BLOCK_EVENTS = 4096
"""So many events are counted in one step."""
TIME_MIN, TIME_MAX = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 of RFC 3339, in ms since 1970 UTC."""
_PAGE_EVENTS, _PAGE_EVENTS_FIRST, _STEP_S = 300, 64, 0.001
"""A page costs more for each event where it is shorter; this is short enough for the others who wait."""
_SCAN_BYTES, _ARRAY_BYTES, _TIME_BYTES = 1024, 256, 8
"""What a scan, and the times of one type in one block, take in memory, about."""
_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)

OTHERS = ""
"""Stands for the types that are not told apart."""


def happened_at(event: SequencedEvent) -> int:
    """The event's own time (its CloudEvents attribute `time`) in ms since 1970 UTC, else that of its recording."""
    text = event.attributes.get("time")
    if text is None:
        return event.recorded_at
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:  # a leap second, or not by RFC 3339: producers of other protocols are not asked for that
        return event.recorded_at
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(TIME_MIN, min((moment - _EPOCH) // _MS, TIME_MAX))


class Block:
    """The times of events that follow each other in the log, by type."""

    __slots__ = ("count", "earliest", "first", "last", "latest", "times", "unsorted")

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.count = self.earliest = self.latest = 0
        self.times: dict[str, array[int]] = {}
        self.unsorted: set[str] = set()

    @property
    def bytes(self) -> int:
        """What it takes in memory, about."""
        return self.count * _TIME_BYTES + len(self.times) * _ARRAY_BYTES

    def add(self, name: str, at: int) -> None:
        """One more event of that type."""
        self.earliest = min(self.earliest, at) if self.count else at
        self.latest = max(self.latest, at) if self.count else at
        self.count += 1
        self.times.setdefault(name, array("q")).append(at)
        self.unsorted.add(name)

    def copy(self) -> Block:
        """One that stays as this one is now."""
        copied = Block(self.first, self.last)
        copied.count, copied.earliest, copied.latest = self.count, self.earliest, self.latest
        copied.times = {name: times[:] for name, times in self.times.items()}
        copied.unsorted = set(self.unsorted)
        return copied

    def counted(self, borders: Sequence[int]) -> dict[str, list[tuple[int, int]]]:
        """By type (bucket, events) of each bucket that has some; a bucket is from one border to before the next."""
        for name in self.unsorted:
            self.times[name] = array("q", sorted(self.times[name]))
        self.unsorted.clear()
        return {name: list(_runs(times, borders)) for name, times in self.times.items()}


def _runs(times: array[int], borders: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(bucket, events) of times in order: as many searches as there are buckets that have some."""
    at, end = bisect_left(times, borders[0]), bisect_left(times, borders[-1])
    while at < end:
        bucket = bisect_right(borders, times[at]) - 1
        after = bisect_left(times, borders[bucket + 1], at, end)
        yield bucket, after - at
        at = after


class Seen(NamedTuple):
    """What a scan had read at one moment, whoever reads on."""

    blocks: Sequence[Block]
    events: int
    low: int
    high: int
    is_complete: bool
    """Whether that is all up to the head that was asked for."""

    def range(self) -> tuple[int, int] | None:
        """The earliest time and the latest; None if there is no event."""
        blocks = [block for block in self.blocks if block.count]
        return (min(each.earliest for each in blocks), max(each.latest for each in blocks)) if blocks else None

    def counted(self, borders: Sequence[int]) -> Iterator[dict[str, list[tuple[int, int]]]]:
        """What each block has, in a step of its own."""
        for block in self.blocks:
            yield block.counted(borders)


class TimeScan:
    """The times of the events that match one query, from the number `low` to `high`."""

    def __init__(self, head: int) -> None:
        """Nothing is read yet; it begins at the head."""
        self.low, self.high = head + 1, head
        self.blocks: deque[Block] = deque()
        self.events = 0
        self._types: set[str] = set()
        self._sizer = BatchSizer(_PAGE_EVENTS, _PAGE_EVENTS_FIRST, _STEP_S)

    @property
    def bytes(self) -> int:
        """What it takes in memory, about."""
        return _SCAN_BYTES + sum(block.bytes for block in self.blocks)

    def seen(self, log: LocalLog, head: int) -> Seen:
        """What has been read by now. Only blocks at the ends grow: so those are copied."""
        blocks = list(self.blocks)
        for end in {0, len(blocks) - 1} if blocks else ():
            blocks[end] = blocks[end].copy()
        is_complete = self.low <= log.first_retained and self.high >= head
        return Seen(blocks, self.events, self.low, self.high, is_complete)

    def steps(self, log: LocalLog, query: Query, partition: int | None, head: int) -> Iterator[int]:
        """Read what is missing, newest first, a short page in each step; gives how many events came."""
        self._forget(log.first_retained)
        while self.high < head:
            yield self._read(log, query, partition, head, backwards=False)
        while self.low > log.first_retained and self.events < EVENTS_MAX:
            yield self._read(log, query, partition, head, backwards=True)

    def _read(self, log: LocalLog, query: Query, partition: int | None, head: int, *, backwards: bool) -> int:
        """One page of what is above, or below; the times that it has belong to the block at that end."""
        began = thread_time()
        limit = self._sizer.size
        first_retained = log.first_retained  # before it is read: the log may be trimmed meanwhile, which `_forget` sees
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
        """The block at that end, grown by those numbers; a new one where that is full."""
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
        """Let go of blocks of which something was trimmed: what is left of the last one is read again."""
        while self.blocks and self.blocks[0].first < first_retained:
            self._drop_oldest()
        self.high = max(self.high, first_retained - 1)
        self.low = max(self.low, first_retained)

    def _drop_oldest(self) -> None:
        block = self.blocks.popleft()
        self.events -= block.count
        self.low = block.last + 1


class EventTimes:
    """The scans of all logs, those that were asked for last."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._scans: OrderedDict[Hashable, TimeScan] = OrderedDict()

    def scan(self, key: Hashable, head: int) -> TimeScan:
        """The scan of that question (of one incarnation of a log); a new one begins at the head."""
        scan = self._scans.setdefault(key, TimeScan(head))
        self._scans.move_to_end(key)
        self.bound()  # whoever left in the middle of a scan has not
        return scan

    def bound(self) -> None:
        """Forget the scans that were asked for longest ago, while all take too much."""
        left = sum(scan.bytes for scan in self._scans.values()) - self._bytes_max
        while len(self._scans) > 1 and (left > 0 or len(self._scans) > SCANS_MAX):
            left -= self._scans.popitem(last=False)[1].bytes
