"""Turns frames of one segment into Arrow batches: selects rows, and joins or splits them to the size of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...core.query import Query
from ...formats.arrow.columns import numbers_of
from ..frames.columns import Frames, Ints, Rows, in_place, record_batch
from .mapped_segment import Followed
from .selection import matching_rows

IN_PLACE_BYTES = 256 * 1024
"""Frames of this size are returned in place; the rows of smaller ones are gathered."""
ROWS_MIN = 8192
"""Small batches of fewer rows are joined."""
_ROW_BYTES = 64
"""The approximate size of a row in a batch, without its texts and bytes."""
_PAYLOAD = frozenset({"data", "envelope"})
_WITHOUT_PAYLOAD = 16
"""Without payload columns, a multiple of a batch's bytes is scanned at once; this is the factor."""


class Limits(NamedTuple):
    """The requested numbers, and the limits of a batch."""

    low: int
    high: int
    events: int
    batch_bytes: Callable[[], int]
    """Called before each batch."""

    @property
    def bytes(self) -> int:
        """The approximate limit of the next batch."""
        return self.batch_bytes()


class Sized(NamedTuple):
    """A batch with its size in bytes: counting them takes as long as making a small batch."""

    batch: pa.RecordBatch
    bytes: int


def all_batches(part: Followed, names: Sequence[str], limits: Limits) -> Iterator[Sized]:
    """Every event of a segment within the limits. Raises StorageCorrupted, StorageUnavailable."""
    bytes_max = limits.bytes if _PAYLOAD.intersection(names) else limits.bytes * _WITHOUT_PAYLOAD
    for frames in runs(part, limits.low, limits.high, limits.events, bytes_max):
        length, about = int(frames.headers["length"][0]), None
        if len(frames) == 1 and length >= IN_PLACE_BYTES:
            first, count = int(frames.firsts[0]), int(frames.counts[0])
            start, end = max(limits.low - first, 0), min(limits.high - first + 1, count)
            if "data" in names and end - start == count:
                about = length + _ROW_BYTES * count
            if start < end:
                yield from bounded(in_place(frames, names).slice(start, end - start), limits, about)
        else:
            yield from bounded(record_batch(Rows.all(frames).between(limits.low, limits.high), names), limits)


def batches_of(rows: Rows, names: Sequence[str], limits: Limits) -> Iterator[pa.RecordBatch]:
    """These events as batches."""
    if rows.is_whole_frame() or not _PAYLOAD.intersection(names):
        yield record_batch(rows, names)
        return
    totals = np.cumsum(rows.payload_bytes() + _ROW_BYTES)
    start = 0
    while start < len(rows):
        done = int(totals[start - 1]) if start else 0
        end = max(int(np.searchsorted(totals, done + limits.bytes, "right")), start + 1)
        yield record_batch(rows.taken(slice(start, end)), names)
        start = end


def runs(part: Followed, low: int, high: int, events_max: int, bytes_max: int) -> Iterator[Frames]:
    """The frames with events from `low` to `high`, as many at a time as fit, but at least one; large frames alone."""
    start, end = part.between(low, high)
    lengths, counts = part.lengths[start:end], part.counts[start:end]
    sizes, events = np.cumsum(lengths + _ROW_BYTES * counts), np.cumsum(counts)
    large = np.flatnonzero(lengths >= IN_PLACE_BYTES)
    at, size = 0, end - start
    while at < size:
        bytes_done, events_done = (int(sizes[at - 1]), int(events[at - 1])) if at else (0, 0)
        stop = min(
            int(np.searchsorted(sizes, bytes_done + bytes_max, "right")),
            int(np.searchsorted(events, events_done + events_max, "right")),
        )
        if (next_large := int(np.searchsorted(large, at))) < len(large):
            stop = min(stop, int(large[next_large]))
        stop = max(stop, at + 1)
        yield part.frames(start + at, start + stop)
        at = stop


def filtered(rows: Rows, query: Query, partition: int | None) -> Rows:
    """The matching rows. Reads only the columns it needs."""
    if partition is not None:
        rows = rows.taken(numbers_of(rows.column("partition")) == partition)
    if query.items is None or not len(rows):
        return rows
    asked = record_batch(rows, ("type", "tags"))
    return rows.taken(matching_rows(asked.column(0), asked.column(1), query))


def fetched(part: Followed, numbers: Ints) -> Rows:
    """The events with these numbers, ascending; lost events are left out."""
    indices = np.maximum(np.searchsorted(part.firsts, numbers, "right") - 1, 0)
    is_next = np.diff(indices, prepend=-1) > 0
    frames = part.chosen(indices[is_next])
    of = np.cumsum(is_next) - 1
    index = numbers - frames.firsts[of]
    return Rows(frames, of, index).taken((index >= 0) & (index < frames.counts[of]))


def bounded(batch: pa.RecordBatch, limits: Limits, about: int | None = None) -> Iterator[Sized]:
    """Split the batch into slices within the row and byte limits. `about`: an upper bound of its bytes, if known."""
    rows, size = batch.num_rows, batch.nbytes if about is None or about > limits.bytes else about
    if rows <= limits.events and (size <= limits.bytes + limits.bytes // 4 or rows <= 1):
        if rows:
            yield Sized(batch, size)
        return
    pieces = max(-(-rows // limits.events), min(-(-size // limits.bytes), rows))
    each = -(-rows // pieces)
    for start in range(0, rows, each):
        yield from bounded(batch.slice(start, each), limits)


def put_together(batches: Iterator[Sized], limits: Limits) -> Iterator[pa.RecordBatch]:
    """Join consecutive small batches."""
    rows_min = min(ROWS_MIN, limits.events)
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch, its_size in batches:
        is_small = batch.num_rows < rows_min and its_size < min(IN_PLACE_BYTES, limits.bytes)
        if held and (not is_small or rows + batch.num_rows > limits.events or size + its_size > limits.bytes):
            yield _joined(held)
            held, rows, size = [], 0, 0
        if not is_small:
            yield batch
            continue
        held.append(batch)
        rows, size = rows + batch.num_rows, size + its_size
        if rows >= rows_min:
            yield _joined(held)
            held, rows, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
