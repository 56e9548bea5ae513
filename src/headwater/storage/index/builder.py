"""Builds the files derived from a sealed segment (places and postings), and merges postings.

Runs in a worker process (file names in, file names out), or in the same thread if a log is opened without its index.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from ..frames.frame import ARROW_MIN, Frame
from ..segments.meta import FRAMES, INDEX, Meta, read_meta
from ..segments.places import places_name, write_places
from ..segments.recovery import SegmentScan
from ..segments.segment import Segment
from .id_files import ids_name
from .id_files import merge_ids as merge_id_files
from .ids import hashes_of_frame
from .merge import merge_postings
from .postings import ActivePostings, postings_name, write_columns, write_postings
from .runs import RunPostings


def seal(log_directory: Path, segment_name: str, last: int, parts: Sequence[tuple[int, int]] = ()) -> None:
    """Build the places and postings of a segment that is no longer written; its last event has number `last`.

    `parts` are the adjacent ranges, from its first number on, with existing postings files: they are merged, not
    rebuilt, unless one is damaged. Raises StorageCorrupted if a frame of the segment is damaged.
    """
    meta, segment = _scanned(log_directory, segment_name, last)
    first = parts[-1][1] + 1 if parts else segment.first
    postings = _postings_from(first, segment, meta)
    id_hashes = np.zeros(segment.last - segment.first + 1, np.uint64)
    for frame in frames_of(segment):
        start = frame.first - segment.first
        id_hashes[start : start + frame.count] = hashes_of_frame(frame, meta.id_seed)
        _apply(postings, frame)
    directory = log_directory / INDEX
    ranges = list(parts)
    if first <= segment.last:
        _write(directory, segment.last, postings)
        ranges.append((first, segment.last))
    if len(ranges) > 1:
        try:
            merge(directory, ranges)
        except (OSError, ValueError):
            seal(log_directory, segment_name, last)
            return
    write_places(directory, segment.first, segment.end, segment.firsts, segment.offsets, id_hashes)


def index_part(log_directory: Path, segment_name: str, first: int, last: int) -> None:
    """Build the postings of a part of the newest segment, `first` to `last`, which ends a frame.

    Raises StorageCorrupted if a frame up to there is damaged.
    """
    meta, segment = _scanned(log_directory, segment_name, last)
    postings = _postings_from(first, segment, meta)
    for frame in frames_of(segment):
        _apply(postings, frame)
    _write(log_directory / INDEX, last, postings)


def _postings_from(first: int, segment: Segment, meta: Meta) -> ActivePostings | RunPostings:
    """Empty postings for the events of a segment from that number on: runs if all its frames are large."""
    edges = [*segment.firsts[bisect_left(segment.firsts, first) :], segment.last + 1]
    are_large = edges[0] == first and all(end - begin >= ARROW_MIN for begin, end in pairwise(edges))
    return (RunPostings if are_large else ActivePostings)(first, has_partitions=meta.partitions > 1)


def _write(directory: Path, last: int, postings: ActivePostings | RunPostings) -> None:
    columns = postings.columns() if isinstance(postings, RunPostings) else None
    if columns is not None:
        write_columns(directory, postings.first, last, columns)
    else:
        write_postings(directory, postings.first, last, postings.encoded_terms())


def _apply(postings: ActivePostings | RunPostings, frame: Frame) -> None:
    """Add the events of a frame, except those below the first number of the postings."""
    first = postings.first
    start, end = max(first - frame.first, 0), frame.count
    if isinstance(postings, RunPostings):
        if not start:
            postings.apply_coded(frame.first, frame.coded_types(), frame.coded_tags(), frame.partitions())
    elif not start:
        postings.apply_frame(frame)
    elif start < end:
        postings.apply(first, frame.types(start, end), frame.tags(start, end), frame.partitions(start, end))


class Sealed:
    """The segments that have their derived files, according to a single listing of the directory."""

    def __init__(self, log_directory: Path) -> None:
        directory = log_directory / INDEX
        self._places = {path.name for path in directory.glob("*.places")}
        ranges = postings_ranges(directory)
        self._firsts = [first for first, _ in ranges]
        self._lasts = list(accumulate((last for _, last in ranges), max))
        """The highest last number of all ranges up to each one."""

    def has(self, segment: Segment) -> bool:
        """Whether a segment has its derived files; its postings may be in a merged file."""
        begun = bisect_right(self._firsts, segment.first)
        is_covered = begun > 0 and self._lasts[begun - 1] >= segment.last
        return is_covered and places_name(segment.first) in self._places


def postings_ranges(directory: Path) -> list[tuple[int, int]]:
    """The ranges of all postings files in a directory, by their names."""
    found = []
    for path in directory.glob("*.postings"):
        if (each := range_of(path)) is not None:
            found.append(each)
    return sorted(found)


def range_of(path: Path) -> tuple[int, int] | None:
    """The range of numbers in the name of an index file; None for other files."""
    first, _, last = path.stem.partition("-")
    return (int(first), int(last)) if first.isdecimal() and last.isdecimal() else None


def merge(directory: Path, ranges: Sequence[tuple[int, int]]) -> None:
    """Merge the postings of adjacent ranges, oldest first, into one file; the old files stay until dropped."""
    merge_postings([directory / postings_name(*each) for each in ranges], directory)


def merge_ids(directory: Path, ranges: Sequence[tuple[int, int]]) -> None:
    """Like `merge`, for files of ids."""
    merge_id_files([directory / ids_name(*each) for each in ranges], directory)


def frames_of(segment: Segment) -> Iterator[Frame]:
    """All frames of a segment, in order. Raises StorageCorrupted."""
    return (segment.frame(index) for index in range(len(segment.firsts)))


def _scanned(log_directory: Path, segment_name: str, last: int) -> tuple[Meta, Segment]:
    """A segment with frames verified up to the one that ends with that event. Raises StorageCorrupted."""
    meta = read_meta(log_directory)
    segment = Segment(log_directory / FRAMES / segment_name, bytes.fromhex(meta.segments_id))
    scan = SegmentScan(segment, meta.gaps, ends_at=last)
    scan.run()
    if scan.bad is not None:
        raise scan.damage(last)
    return meta, segment
