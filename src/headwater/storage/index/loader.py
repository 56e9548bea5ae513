"""Loads the index of a log from its files, and finds the frames that must be read again for the rest.

Missing or damaged index files of sealed segments are rebuilt here; deleting them all loses nothing.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np

from ...core.errors import StorageCorrupted
from ..frames.frame import Frame
from ..segments.meta import HISTORY, INDEX, Meta
from ..segments.places import FramePlaces, places_name
from ..segments.segment import Segment
from ..segments.segment_log import SegmentLog
from . import id_files
from .backlog import LogBacklog
from .builder import Sealed, frames_of, range_of, seal
from .id_table import IdTable
from .ids import Hashes, hashes_of_frame
from .index import Index
from .postings import FilePostings

REOPENED_IDS_MAX = 64 * 1024
"""The newest ids file is read into memory, so that it can grow, if it has at most this many ids (2 ms)."""
logger = logging.getLogger("headwater.storage")
_Run = TypeVar("_Run", FilePostings, FilePostings | Segment)


class LoadedIndex:
    """An index loaded from its files, and the frames left to apply."""

    def __init__(self, index: Index, frames: SegmentLog, replay_after: int) -> None:
        self.index, self._frames, self._replay_after = index, frames, replay_after

    def frames_to_replay(self) -> Iterator[Frame]:
        """The frames not in the index yet. They begin at its edge."""
        return self._frames.read(self._replay_after)


def load_index(directory: Path, frames: SegmentLog, meta: Meta, backlog: LogBacklog | None = None) -> LoadedIndex:
    """Load the index files; `backlog`: see `Index`.

    Raises StorageCorrupted if the history of trimmed events is missing or a frame is damaged.
    """
    for place in (directory, directory / INDEX, directory / HISTORY):
        for unfinished in place.glob("*.tmp"):
            unfinished.unlink(missing_ok=True)  # an indexing process that outlived its server may be writing it
    sealed = Sealed(directory)
    for segment in frames.segments[:-1]:
        if not sealed.has(segment):
            logger.info("log %s: rebuilding the index of %s", meta.name, segment.path.name)
            seal(directory, segment.path.name, segment.last)
    replay_after, files = _usable_postings(directory, frames, meta)
    index = Index(replay_after, has_partitions=meta.partitions > 1, files=files, backlog=backlog)
    _load_ids(index.ids, directory / INDEX, frames, meta, replay_after)
    return LoadedIndex(index, frames, replay_after)


def _usable_postings(directory: Path, frames: SegmentLog, meta: Meta) -> tuple[int, list[FilePostings]]:
    """The number up to which the files cover everything known without a gap, and these files."""
    found: dict[str, FilePostings] = {}
    for path in chain(sorted((directory / HISTORY).glob("*.postings")), sorted((directory / INDEX).glob("*.postings"))):
        try:
            postings = FilePostings(path)
            postings.verify()
            found.setdefault(path.name, postings)
        except (OSError, ValueError) as error:
            logger.warning("log %s: unusable postings: %s", meta.name, error)
            if path.parent.name == INDEX:
                path.unlink()
    newest_first = frames.segments[-1].first if frames.segments else 0
    edge, used = _joined(found.values(), _first_known(frames.segments, meta) - 1, frames.last, meta)
    if edge + 1 < newest_first:
        segment = next((each for each in frames.segments if each.first <= edge + 1 <= each.last), None)
        if segment is None or segment is frames.segments[-1]:
            raise _without_history(directory, edge + 1, newest_first - 1)
        seal(directory, segment.path.name, segment.last)
        return _usable_postings(directory, frames, meta)
    return min(edge, frames.last), used


def missing_history(directory: Path, segments: Sequence[Segment], meta: Meta) -> StorageCorrupted | None:
    """The error that loading a log with intact segments would raise for missing postings of trimmed events, or None.

    Changes nothing: postings that a segment lacks, and that would be built, count as known.
    """
    runs: list[FilePostings | Segment] = [segment for segment in segments[:-1] if segment.events]
    for path in chain((directory / HISTORY).glob("*.postings"), (directory / INDEX).glob("*.postings")):
        with suppress(OSError, ValueError):
            postings = FilePostings(path)
            postings.verify()
            runs.append(postings)
    last = max((segment.last for segment in segments if segment.events), default=0)
    newest_first = segments[-1].first if segments else 0
    edge, _ = _joined(runs, _first_known(segments, meta) - 1, last, meta)
    return _without_history(directory, edge + 1, newest_first - 1) if edge + 1 < newest_first else None


def _joined(runs: Iterable[_Run], edge: int, last: int, meta: Meta) -> tuple[int, list[_Run]]:
    """The number up to which the runs after `edge` extend without a gap, not above `last`, and these runs."""
    used: list[_Run] = []
    for run in sorted(runs, key=lambda each: (each.first, -each.last)):
        if run.first <= edge + 1 and edge < run.last <= last:
            used.append(run)
            edge = _skip_voids(meta, run.last + 1) - 1
    return edge, used


def _without_history(directory: Path, first: int, last: int) -> StorageCorrupted:
    problem = f"the postings of the trimmed events {first} to {last} are missing or damaged"
    return StorageCorrupted(str(directory / HISTORY), problem, "restore a backup (headwater restore)")


def _first_known(segments: Iterable[Segment], meta: Meta) -> int:
    """The first known number, rounded down to its frame: frames are replayed whole, whatever is trimmed."""
    number = _skip_voids(meta, meta.known_from)
    for segment in segments:
        if segment.events and segment.first <= number <= segment.last:
            return min(segment.firsts[max(bisect_right(segment.firsts, number) - 1, 0)], number)
    return number


def _skip_voids(meta: Meta, number: int) -> int:
    """The first number, from that one on, that may be an event of this log."""
    for low, high in sorted(meta.gaps):
        if low <= number <= high:
            number = high + 1
    return number


def _load_ids(table: IdTable, index: Path, frames: SegmentLog, meta: Meta, upto: int) -> None:
    """Load the ids of the retained events up to that number; the replay adds the rest."""
    edge = _load_id_files(table, index, meta, frames.last)
    for segment in frames.segments:
        if segment.events and segment.last > edge and segment.first <= upto:
            _add_ids(table, segment, index, meta, edge, upto)


def _load_id_files(table: IdTable, index: Path, meta: Meta, last: int) -> int:
    """Load the files from the first retained number on without a gap, up to `last`; returns the last number covered.

    The others are unlinked: their content is read again.
    """
    edge = meta.first_retained - 1
    for path in sorted(index.glob("*.ids"), key=_widest_first):
        try:
            file = id_files.load(path)
            is_used = file.first <= _skip_voids(meta, edge + 1) and edge < file.last <= last
        except (OSError, ValueError) as error:
            logger.warning("log %s: unusable ids: %s", meta.name, error)
            is_used = False
        if is_used:
            table.replace(file)
            edge = file.last
        else:
            path.unlink()
    if table.files and table.files[-1].count <= REOPENED_IDS_MAX:
        table.append(table.files[-1].generation())
        table.files = table.files[:-1]
    return edge


def _widest_first(path: Path) -> tuple[int, int]:
    """A sort key: by first number, and among equals the widest first."""
    first, last = range_of(path) or (0, 0)
    return first, -last


def _add_ids(table: IdTable, segment: Segment, index: Path, meta: Meta, edge: int, upto: int) -> None:
    """Enter the ids of one segment above `edge`, up to `upto`."""
    try:
        places = FramePlaces(index / places_name(segment.first))
        hashes = places.id_hashes
    except (OSError, ValueError):
        found = np.zeros(segment.last - segment.first + 1, np.uint64)
        for frame in frames_of(segment):
            if edge < frame.last and frame.first <= upto:
                start = frame.first - segment.first
                found[start : start + frame.count] = hashes_of_frame(frame, meta.id_seed)
        hashes = found
    start = max(edge + 1 - segment.first, 0)
    end = min(upto, segment.last) - segment.first + 1
    for run_start, run_end in _runs_of_nonzero(hashes[start:end]):
        table.insert(hashes[start + run_start : start + run_end], segment.first + start + run_start)


def _runs_of_nonzero(hashes: Hashes) -> list[tuple[int, int]]:
    """The ranges of the array without holes (holes are events whose loss was accepted)."""
    holes = np.flatnonzero(hashes == 0)
    edges = [-1, *holes.tolist(), len(hashes)]
    return [(a + 1, b) for a, b in pairwise(edges) if b > a + 1]
