"""A stored log for processes other than its writer: read-only, up to a durable head that the caller passes.

It returns Arrow batches, in place for large frames. It never writes, and never reads beyond the durable head.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from ...core.errors import Closed, InvalidInput, StorageCorrupted, StorageUnavailable, TooLarge
from ...core.extent import SplitSize
from ...core.query import ALL, Query
from ...formats.arrow.tables import SCHEMA
from ..catalog.trim_point import RESTORE
from ..disk.system import refusal_of
from ..frames.columns import Rows
from ..index.postings import PARTITION
from ..segments.meta import FRAMES, INDEX, META_NAME, read_meta
from ..segments.recovery import highest_kept
from ..segments.segment import Ranges, segment_paths
from .mapped_segment import Followed, FollowedSegment
from .scan import Limits, Sized, all_batches, batches_of, bounded, fetched, filtered, put_together, runs
from .segment_sharing import Lent, lent
from .selection import PostingsFiles, matches_max, matching_numbers
from .splits import SPLITS_MAX, Weights

BATCH_EVENTS = 65_536
BATCH_BYTES = 4 * 1024 * 1024
_SEARCHED_BYTES = 64 * 1024 * 1024
"""The number of bytes of frames to search at once."""
LOOKED_UP, SEARCHED = 4, 1 / 8
"""Read costs relative to an event read sequentially: of an event looked up by postings, and of one that does not match
a search through types and tags without postings."""
ESTIMATE_S = 2.0
"""The time limit for opening postings to estimate the bytes that a query reads: only part of a large index that is not
in memory is opened."""
_TICK_NS = 100_000_000
"""Two changes of a directory within this time may have the same timestamp."""
_Stamp = tuple[int, int]
"""When a file changed, and its identity."""


class MappedLog:
    """One log's directory. Safe to call from any number of threads."""

    def __init__(self, directory: Path) -> None:
        """Raises StorageCorrupted, StorageUnavailable. Nothing can be read before the first `refresh`."""
        self.directory = directory
        self._lock = threading.RLock()
        """Guards the attributes below; never held while frames are read."""
        self._is_closed = False
        self.head = 0
        """The highest durable head passed to `refresh`."""
        self.meta = read_meta(directory)
        """META, as of the last `refresh`."""
        self._meta_stamp: _Stamp = (0, 0)
        self._paths: dict[int, Path] = {}
        """The path of every segment, by first number, ascending."""
        self._paths_stamp: _Stamp = (0, 0)
        self._segments: dict[int, FollowedSegment] = {}
        """The segments read so far."""
        self._distrusted: Ranges = ()
        """Events that scans refuse; see `refresh`."""
        self._postings = PostingsFiles(directory / INDEX)

    def refresh(self, head: int, distrusted: Ranges | None = None) -> None:
        """Set the durable head to `head`, and list the current files. Cheap if little is new.

        `distrusted`: events damaged on disk, by `StoredLog.distrusted`; None: as before.

        Raises StorageUnavailable (for example, the log was deleted), StorageCorrupted, Closed.
        """
        with self._lock:
            self._check_open()
            self.head = max(self.head, head)
            if distrusted is not None:
                self._distrust(tuple(distrusted))
            self._read_meta()
            self._list_segments()
            self._postings.list()

    def _distrust(self, ranges: Ranges) -> None:
        """Set the damaged events. Events trusted again may be in a new file, which is mapped.

        Scans keep the old map.
        """
        for low in [low for low, high in self._distrusted if (low, high) not in ranges]:
            if (first := max((each for each in self._segments if each <= low), default=None)) is not None:
                self._segments.pop(first).close()
        self._distrusted = ranges
        for segment in self._segments.values():
            segment.distrust(ranges)

    def close(self) -> None:
        """Begin no more scans. Running scans and batches stay valid; the last one releases the files."""
        with self._lock:
            self._is_closed = True
            for segment in self._segments.values():
                segment.close()
            self._segments.clear()
            self._postings.close()

    def count(self, after: int, upto: int, partition: int | None = None) -> int:
        """The number of retained events above `after`, up to `upto` (at most the head).

        Raises the same errors as `scan`.
        """
        low, high = self._bounds(after, upto)
        if self._is_everything(partition):
            return _count(low, high, self.meta.gaps)
        return sum(self._count_in(part, low, high, partition) for part in self._pinned(low, high))

    def splits(
        self,
        after: int,
        upto: int,
        *,
        split_bytes: int,
        splits_min: int,
        partition: int | None = None,
        query: Query = ALL,
    ) -> list[SplitSize]:
        """Split (after, upto] into pieces of about that many bytes, ascending, without gaps.

        Raises the same errors as `scan`. There are at least `splits_min` pieces, if there are as many events, and at
        least one if `upto` is above `after`. They end at frame ends, except in frames that are large compared with a
        piece. If few events match a query, pieces are larger: the size then counts the bytes to read, as estimated by
        postings. Raises TooLarge if SPLITS_MAX pieces are not enough.
        """
        if upto <= after:
            return []
        low, high = self._bounds(after, upto)
        parts = self._pinned(low, high)
        weights = read = Weights(parts, low, high)
        events = self.count(after, upto)
        if query.items is not None and weights.bytes > splits_min * split_bytes:
            read = Weights(parts, low, high, self._shares(parts, low, high, query))
        total = read.bytes
        if events and not self._is_everything(partition):
            total = min(total, weights.bytes * self.count(after, upto, partition) // events)
        pieces = min(max(-(-total // max(split_bytes, 1)), splits_min, 1), max(events, 1))
        if pieces > SPLITS_MAX:
            raise TooLarge(pieces, SPLITS_MAX, "splits", "split_bytes")
        borders = [after, *(read if read.bytes else weights).borders(pieces), upto]
        return [self._split(weights, *piece, partition) for piece in pairwise(borders)]

    def scan(
        self,
        after: int,
        upto: int,
        *,
        partition: int | None = None,
        query: Query = ALL,
        columns: Sequence[str] | None = None,
        batch_events: int = BATCH_EVENTS,
        batch_bytes: int | Callable[[], int] = BATCH_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """The matching events above `after`, up to `upto` (at most the head), in order, as batches.

        They have these columns of `formats.arrow.tables.SCHEMA`, in the requested order; each has at most
        `batch_events` rows and about `batch_bytes` bytes (a function is called before each batch), but at least one
        row. All events retained at the time of the call are returned, even if they are trimmed during the iteration.

        Raises InvalidInput (no such column), Closed; StorageCorrupted and StorageUnavailable, also during the
        iteration.
        """
        names = _checked(columns)
        low, high = self._bounds(after, upto)
        sized = batch_bytes if callable(batch_bytes) else partial(max, batch_bytes, 1)
        limits = Limits(low, high, max(batch_events, 1), sized)
        parts = self._pinned(low, high)
        if self._is_everything(partition):
            partition = None
        return put_together(self._batches(parts, names, limits, query, partition), limits)

    def lend(self, after: int, upto: int) -> Lent | None:
        """The segments with the events above `after`, up to `upto` (at most the head), for another process.

        None if there are none, or they cannot be lent. The caller closes it. Raises the same errors as `scan`.
        """
        low, high = self._bounds(after, upto)
        parts = self._pinned(low, high)
        return lent(parts, low - 1, high) if parts else None

    def _batches(
        self, parts: Sequence[Followed], names: Sequence[str], limits: Limits, query: Query, partition: int | None
    ) -> Iterator[Sized]:
        for part in parts:
            if query.items is None and partition is None:
                yield from all_batches(part, names, limits)
            else:
                for rows in self._matching(part, limits, query, partition):
                    for batch in batches_of(rows, names, limits):
                        yield from bounded(batch, limits)

    def _matching(self, part: Followed, limits: Limits, query: Query, partition: int | None) -> Iterator[Rows]:
        """The matching events of a segment, some at a time: by postings, or by checking all of them.

        With postings, only the frames of matching events are read; without, the first visit verifies each frame, and
        later ones read only its types, tags and partitions.
        """
        low, high = max(limits.low, part.segment.first), min(limits.high, part.last)
        if (postings := self._postings.covering(low, high)) is not None:
            numbers = matching_numbers(postings, low, high, query, partition)
            for at in range(0, len(numbers), limits.events):
                yield fetched(part, numbers[at : at + limits.events])
        else:
            for frames in runs(part, low, high, BATCH_EVENTS, _SEARCHED_BYTES):
                yield filtered(Rows.all(frames).between(low, high), query, partition)

    def _count_in(self, part: Followed, low: int, high: int, partition: int | None) -> int:
        low, high = max(low, part.segment.first), min(high, part.last)
        if (postings := self._postings.covering(low, high)) is not None:
            numbers = postings.numbers(PARTITION, str(partition))
            return 0 if numbers is None else numbers.above(high) - numbers.above(low - 1)
        found = runs(part, low, high, BATCH_EVENTS, _SEARCHED_BYTES)
        return sum(len(filtered(Rows.all(frames).between(low, high), ALL, partition)) for frames in found)

    def _shares(self, parts: Sequence[Followed], low: int, high: int, query: Query) -> list[float]:
        """The share of each segment that a query has to read, estimated from postings within the time limit.

        Segments without postings are assumed to have as many matching events as the others.
        """
        found: list[float | None] = []
        events = matching = 0
        ends_at = time.monotonic() + ESTIMATE_S
        for part in parts:
            first, last = max(low, part.segment.first), min(high, part.last)
            postings = self._postings.covering(first, last) if time.monotonic() < ends_at else None
            if postings is None:
                found.append(None)
                continue
            count = last - first + 1
            matches = matches_max(postings, first, last, query)
            events, matching = events + count, matching + matches
            found.append(min(1.0, LOOKED_UP * matches / count))
        others = min(1.0, SEARCHED + matching / events) if events else 1.0
        return [others if each is None else each for each in found]

    def _split(self, weights: Weights, after: int, upto: int, partition: int | None) -> SplitSize:
        every = self.count(after, upto)
        size = weights.bytes_upto(upto) - weights.bytes_upto(after)
        if not every or self._is_everything(partition):
            return SplitSize(after, upto, every, size)
        events = self.count(after, upto, partition)
        return SplitSize(after, upto, events, size * events // every)

    def _is_everything(self, partition: int | None) -> bool:
        return partition is None or (partition == 0 and self.meta.partitions == 1)

    def _bounds(self, after: int, upto: int) -> tuple[int, int]:
        return max(after + 1, self.meta.first_retained), min(upto, self.head)

    def _pinned(self, low: int, high: int) -> list[Followed]:
        """The current segments with these numbers. Raises StorageCorrupted, StorageUnavailable, Closed."""
        with self._lock:
            self._check_open()
            if low > high:
                return []
            try:
                return self._followed(low, high)
            except (OSError, StorageCorrupted):
                # A segment may have been created or trimmed within one tick of the directory timestamps.
                self._meta_stamp = self._paths_stamp = (0, 0)
                self._read_meta()
                self._list_segments()
            try:
                return self._followed(max(low, self.meta.first_retained), high)
            except OSError as error:
                raise refusal_of(error, Path(error.filename or self.directory), "the log cannot be read") from error

    def _followed(self, low: int, high: int) -> list[Followed]:
        """Like `_pinned`, if the list of files is recent enough. Also raises OSError."""
        found: list[Followed] = []
        gaps, expected = self.meta.gaps, low
        firsts = [first for first in self._paths if first <= self.head]
        for first, following in pairwise([*firsts, self.head + 1]):
            upto = highest_kept(gaps, following - 1)
            if upto < max(low, first):  # below the requested range, or never used
                continue
            if first > high:
                break
            self._check_reached(expected, highest_kept(gaps, first - 1))
            segment = self._segment(first)
            if segment.last < upto:
                if following <= self.head:
                    segment.adopt(self.directory / INDEX)
                segment.walk(upto, gaps)
            if following <= self.head:
                segment.close()  # it no longer grows
            expected = segment.last + 1
            found.append(segment.followed())
        self._check_reached(expected, highest_kept(gaps, high))
        return found

    def _check_reached(self, expected: int, kept: int) -> None:
        if kept >= expected:
            problem = f"events {expected} to {kept} are missing; a segment file is gone"
            raise StorageCorrupted(str(self.directory / FRAMES), problem, RESTORE)

    def _segment(self, first: int) -> FollowedSegment:
        if first not in self._segments:
            self._segments[first] = FollowedSegment(self._paths[first], bytes.fromhex(self.meta.segments_id))
            self._segments[first].distrust(self._distrusted)
        return self._segments[first]

    def _read_meta(self) -> None:
        if (stamp := self._stamp(self.directory / META_NAME)) != self._meta_stamp:
            self.meta, self._meta_stamp = read_meta(self.directory), stamp

    def _list_segments(self) -> None:
        directory = self.directory / FRAMES
        if (stamp := self._stamp(directory)) == self._paths_stamp:
            return
        self._paths = {int(path.stem): path for path in segment_paths(directory)}
        self._paths_stamp = stamp if stamp[0] < time.time_ns() - _TICK_NS else (0, 0)
        for first in [first for first in self._segments if not self._is_there(first)]:
            self._segments.pop(first).close()

    def _is_there(self, first: int) -> bool:
        """Whether a segment read before is still the same file: a damaged one may have been replaced."""
        try:
            return first in self._paths and self._paths[first].stat().st_ino == self._segments[first].inode
        except FileNotFoundError:  # just trimmed
            return False

    def _stamp(self, path: Path) -> _Stamp:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            raise StorageUnavailable(f"{path}: it no longer exists; the log was deleted") from None
        return found.st_mtime_ns, found.st_ino

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(self.meta.name)


def _checked(columns: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(SCHEMA.names if columns is None else columns)
    for name in names:
        if name not in SCHEMA.names:
            raise InvalidInput(f"expected one of {', '.join(SCHEMA.names)}, got {name!r}", "columns")
    if not names or len(set(names)) < len(names):
        raise InvalidInput(f"expected at least one column, each at most once, got {list(names)}", "columns")
    return names


def _count(low: int, high: int, gaps: Ranges) -> int:
    """The count of numbers from `low` to `high` that are outside all gaps."""
    count = 0
    for first, last in sorted(gaps):
        if low <= last:
            count += max(min(first - 1, high) - low + 1, 0)
            low = last + 1
    return count + max(high - low + 1, 0)
