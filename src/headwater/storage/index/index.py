"""The derived index of one log: postings files for sealed segments, postings in memory for the rest, and the ids.

Only the committer changes the part in memory. Maintenance adds whole files and drops the parts they replace. Readers
see more than is durable, and must bound their requests by the durable head.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from ...core.limits import SEQUENCE_NUMBER_MAX, EventColumns
from ...formats.arrow.columns import ArrowColumns, Coded
from ..frames.frame import ARROW_MIN, Frame
from .backlog import Backlog, LogBacklog, coded_weight, weight
from .id_table import IdTable
from .matches import PostingsPiece
from .postings import ActivePostings, FilePostings, Postings
from .runs import RunPostings, SortedRun

PART_EVENTS_MAX = 128 * 1024
"""The maximum number of events of a part in memory (plus one append). Then another part begins, and a file replaces
this one (`maintenance.tasks.index_newest`). This bounds a log's memory, and the amount that is read again after a
crash."""
_weight, _low, _high = attrgetter("weight"), attrgetter("low"), attrgetter("high")
TABLE_EVENTS_MIN = 32 * 1024
"""A table also accepts large appends until it has this many events, so that a mixed log has few pieces."""


class Index:
    """The index of one log: answers about its events without reading them."""

    def __init__(
        self,
        head: int,
        *,
        has_partitions: bool,
        files: Sequence[FilePostings] = (),
        backlog: LogBacklog | None = None,
    ) -> None:
        """`files` cover everything from the first known event up to `head`.

        `backlog` counts the bytes in memory (None for a separate backlog).
        """
        self.backlog = Backlog().share("") if backlog is None else backlog
        self.ids = IdTable()
        self.files: tuple[FilePostings, ...] = ()
        """The postings files in use, by first number."""
        self._pieces: list[PostingsPiece] = []
        """Their postings, ascending and disjoint."""
        self._use(files)
        self._has_partitions = has_partitions
        self.actives: tuple[ActivePostings | RunPostings, ...] = (self._new_active(head + 1),)
        """The postings in memory, oldest first; the last one grows."""
        self._untold = 0
        """The bytes added to them since the backlog was last told: it counts a small rise with the next one."""
        self._lock = threading.Lock()
        """Held while the part in memory changes or files and parts are replaced; readers take no lock."""

    def apply(
        self,
        first: int,
        types: Sequence[str],
        tags: Sequence[tuple[str, ...]],
        partitions: Sequence[int],
    ) -> None:
        """Add events numbered from `first` on; their ids go into `ids` separately."""
        with self._lock:
            active = self.actives[-1]
            if isinstance(active, RunPostings) or self._is_over(active, first):
                self._add(active := self._new_active(first))
            active.apply(first, types, tags, partitions)
            added = weight(tags)
            active.weight += added
            self._untold += added
        if self._untold >= self.backlog.step_bytes:
            self._tell()

    def apply_columns(self, first: int, columns: EventColumns, partitions: Sequence[int]) -> None:
        """Like `apply`, for columns. This is fast for large Arrow columns."""
        if isinstance(columns, ArrowColumns) and columns.count >= ARROW_MIN:
            self._apply_coded(first, columns.type_terms, columns.tag_terms, partitions)
        else:
            self.apply(first, columns.types, columns.tags, partitions)

    def apply_run(self, first: int, columns: ArrowColumns, run: SortedRun) -> None:
        """Like `apply_columns`, for a log with one partition and existing postings of these columns."""
        with self._lock:
            active = self._coded_for(first) if columns.count >= ARROW_MIN else None
            if is_run := isinstance(active, RunPostings):
                active.apply_run(run.at(first))
        if is_run:
            self._tell()
        else:
            self.apply_columns(first, columns, [])

    def apply_frame(self, frame: Frame) -> None:
        """Like `apply`, for a frame of the log."""
        if frame.count >= ARROW_MIN:
            self._apply_coded(frame.first, frame.coded_types(), frame.coded_tags(), frame.partitions())
        else:
            self.apply(frame.first, frame.types(), frame.tags(), frame.partitions())

    def _apply_coded(self, first: int, types: Coded, tags: Coded, partitions: Sequence[int]) -> None:
        with self._lock:
            active = self._coded_for(first)
            active.apply_coded(first, types, tags, partitions)
            if isinstance(active, ActivePostings):
                active.weight += coded_weight(len(types.codes), len(tags.codes), tags.terms.nbytes)
        self._tell()

    def _tell(self) -> None:
        self._untold = 0
        self.backlog.count(sum(map(_weight, self.actives)))

    def _coded_for(self, first: int) -> ActivePostings | RunPostings:
        """The postings that accept a large append from that number on."""
        active = self.actives[-1]
        is_begun = isinstance(active, RunPostings) or 0 < active.last - active.first + 1 < TABLE_EVENTS_MIN
        if not is_begun or self._is_over(active, first):
            self._add(active := RunPostings(first, has_partitions=self._has_partitions))
        return active

    @staticmethod
    def _is_over(active: ActivePostings | RunPostings, first: int) -> bool:
        return active.last - active.first + 1 >= PART_EVENTS_MAX or first > active.last + 1

    def _add(self, active: ActivePostings | RunPostings) -> None:
        kept = self.actives if self.actives[-1].last >= self.actives[-1].first else self.actives[:-1]
        self.actives = (*kept, active)

    def end_part(self) -> None:
        """Begin a new part in memory, so that a file can replace the previous one, which no longer grows."""
        with self._lock:
            if (newest := self.actives[-1]).last >= newest.first:
                self._add(self._new_active(newest.last + 1))

    def rollback(self, above: int) -> None:
        """Forget the events above that number: their frames did not become durable."""
        with self._lock:
            kept = tuple(active for active in self.actives if active.first <= above + 1)
            for active in kept:
                if active.last > above:
                    if isinstance(active, ActivePostings):
                        share = above + 1 - active.first
                        active.weight = active.weight * share // (active.last + 1 - active.first)
                    active.rollback(above)
            self.actives = kept or (self._new_active(above + 1),)
        self.ids.rollback(above)
        self._tell()

    def pieces(self, low: int, high: int) -> list[PostingsPiece]:
        """The postings of these numbers (inclusive), ascending and disjoint."""
        if low > high:
            return []
        actives = self.actives
        newest = actives[-1]
        if low >= newest.first and isinstance(newest, ActivePostings):  # the case of most conditions and all live reads
            return [PostingsPiece(newest, low, high)]
        pieces = self._pieces
        found = pieces[bisect_left(pieces, low, key=_high) : bisect_right(pieces, high, key=_low)]
        if found and found[0].low < low:
            found[0] = found[0]._replace(low=low)
        if found and found[-1].high > high:
            found[-1] = found[-1]._replace(high=high)
        at = found[-1].high + 1 if found else low
        for active in actives:
            found += _disjoint((active,) if isinstance(active, ActivePostings) else active.runs, at, high)
            at = found[-1].high + 1 if found else low
        return found

    def replace(self, new: FilePostings, old: Sequence[FilePostings] = ()) -> None:
        """Use a new file; drop the files and the memory that it replaces."""
        with self._lock:
            kept = [
                file for file in self.files if file not in old and not new.first <= file.first <= file.last <= new.last
            ]
            self._use([*kept, new])
            covered, newest = self.files[-1].last, self.actives[-1]
            older = tuple(active for active in self.actives[:-1] if active.last > covered)
            is_covered = newest.first <= newest.last <= covered  # a segment was sealed before a part was full
            self.actives = (*older, self._new_active(newest.last + 1) if is_covered else newest)
        self._tell()

    def drop(self, below: int) -> None:
        """Drop the files whose numbers are all below that one."""
        with self._lock:
            self._use([file for file in self.files if file.last >= below])

    def _use(self, files: Sequence[FilePostings]) -> None:
        self.files = tuple(sorted(files, key=lambda file: (file.first, -file.last)))
        self._pieces = _disjoint(self.files)

    def _new_active(self, first: int) -> ActivePostings:
        return ActivePostings(first, has_partitions=self._has_partitions)


def _disjoint(runs: Sequence[Postings], low: int = 0, high: int = SEQUENCE_NUMBER_MAX) -> list[PostingsPiece]:
    """The postings of the numbers from `low` to `high`; where several have a number, those of the first one."""
    found: list[PostingsPiece] = []
    for run in runs:
        start, end = run.first if run.first > low else low, run.last if run.last < high else high
        if start <= end:
            found.append(PostingsPiece(run, start, end))
            low = end + 1
    return found
