"""The judge: checks each append against the state after all appends applied before it, durable or not.

Ids come first (a recognised retry skips its condition), then the condition, then numbers and partitions. All checks
come before anything is applied, so that a refused append leaves no trace.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, islice

from ...core import errors as core
from ...core.condition import AppendCondition
from ...core.limits import SEQUENCE_NUMBER_MAX, EventColumns
from ...core.log import AppendRequest, AppendResult, LogStatistics
from ...core.query import Query
from ...core.settings import LogSettings
from ..frames.encoding import EncodedFrame
from ..frames.frame import Frame
from ..frames.frame_log import FrameLog
from ..frames.layout import FrameMark, frame_mark
from ..index.ids import IdHashes, are_distinct, as_list, hashes_of, hashes_of_frame
from ..index.index import Index
from ..index.matches import first_match
from .partitioner import Partitioner
from .prepared import PreparedColumns
from .sequencer import Judge, Verdict, new
from .writer_table import WriterTable

logger = logging.getLogger("headwater.storage")

BRIEF_EVENTS, BRIEF_ITEMS = 4096, 16
"""An event loop checks conditions about at most so many events, with at most so many items."""
RUN_EVENTS_MAX = 8
"""The tags of an append with more events are not checked one by one."""


class Numbering:
    """The numbers from which a log's events are retained and known, and the gaps. Only trims change them."""

    __slots__ = ("first_retained", "gaps", "known_from", "origin")

    def __init__(self, origin: int, first_retained: int, known_from: int) -> None:
        self.origin = origin
        """The first number of this log in the history of its present incarnation."""
        self.first_retained = first_retained
        self.known_from = known_from
        self.gaps: tuple[tuple[int, int], ...] = ()
        """Ranges of numbers without events, ascending: from other incarnations, or lost."""

    def next_number(self, number: int) -> int:
        """The first number, from that one on, that an event may have."""
        for low, high in self.gaps:
            if low <= number <= high:
                number = high + 1
        return number


class _Run:
    """Consecutive appends of a group that passed and are not in the postings yet.

    Most conditions ask about tags that no other append of their group has. Such a group is applied at once.
    """

    __slots__ = ("_looked_at", "_tags", "first", "requests")

    def __init__(self, first: int) -> None:
        self.first = first
        """The number of its first event."""
        self.requests: list[AppendRequest] = []
        self._tags: set[str] = set()
        self._looked_at = 0
        """The number of requests whose tags are known."""

    def may_match(self, query: Query) -> bool:
        """Whether an event of the run, which is not empty, may match the query; False is certain."""
        for request in islice(self.requests, self._looked_at, None):
            if request.columns.count > RUN_EVENTS_MAX:
                return True
            self._tags.update(*request.columns.tags)
        self._looked_at = len(self.requests)
        if query.items is None:
            return True
        known = self._tags
        for item in query.items:
            for tag in item.tags:
                if tag not in known and ":" in tag:  # no event has it; a bare key is not checked
                    break
            else:
                if known.issuperset(item.exact_tags):
                    return True
        return False


class LogJudge(Judge):
    """The judge of one log (see `sequencer.Judge`); only its committer calls the methods."""

    def __init__(
        self,
        index: Index,
        settings: Callable[[], LogSettings],
        numbering: Numbering,
        statistics: LogStatistics,
        frame_at: Callable[[int], Frame | None],
        writers: WriterTable,
        *,
        id_seed: int,
        recorded_at: int,
        clock: Callable[[], int],
        counts_as: Callable[[int], int | None] = lambda number: None,
    ) -> None:
        """`recorded_at` is the time of the last event; for `counts_as`, see `Meta.counts_as`."""
        self._counts_as = counts_as
        self._index, self._settings, self._numbering, self._statistics = index, settings, numbering, statistics
        self._frame_at = frame_at
        self._writers = writers
        self._id_seed = id_seed
        self._recorded_at = self._clock_read = self._now = recorded_at
        self._clock = clock
        self._partitioner = Partitioner(settings())
        self._in_flight: deque[tuple[int, EventColumns]] = deque()
        """The first number and the events of frames that may not be readable yet."""
        self._passed: list[tuple[int, EventColumns]] = []
        """The first number and the events of this group's appends that were judged one by one."""

    def next_recorded_at(self) -> int:
        now = self._clock()
        if now < self._clock_read:
            self._statistics.clock_steps += 1
            logger.warning(
                "the clock went back %d ms; events get the last time until it catches up", self._clock_read - now
            )
        self._clock_read = now
        self._now = max(now, self._recorded_at)
        return self._now

    def judge(self, group: Sequence[AppendRequest], first: int) -> Verdict:
        if isinstance(group[0].columns, PreparedColumns):
            return self._judge_segment(group[0], group[0].columns, first)
        return self._judge_if_new(group, first) or self._judge_each(group, first)

    def judge_briefly(self, group: Sequence[AppendRequest], first: int) -> Verdict | None:
        lowest = max(first - BRIEF_EVENTS, 0)
        for request in group:
            if request.mark is not None:
                return None
            if (condition := request.condition) is not None:
                items = condition.fail_if_events_match.items
                begin = max(condition.after, self._numbering.known_from)
                if condition.requires_match or begin < lowest or (items is not None and len(items) > BRIEF_ITEMS):
                    return None
        return self._judge_if_new(group, first)

    def _judge_if_new(self, group: Sequence[AppendRequest], first: int) -> Verdict | None:
        """The verdict about a group whose ids are all new (nearly always); None if one may be known."""
        is_one = len(group) == 1
        columns = group[0].columns if is_one else EventColumns.join([request.columns for request in group])
        hashes = hashes_of(columns, self._id_seed)
        if (len(hashes) == 1 or are_distinct(hashes)) and not self._index.ids.has_any(hashes):
            return self._judge_new(group, columns, hashes, first)
        return None

    def _judge_new(
        self, group: Sequence[AppendRequest], columns: EventColumns, hashes: IdHashes, first: int
    ) -> Verdict:
        """All ids are new: only conditions can refuse, and appends that pass are applied in runs."""
        passed: list[AppendRequest] = []
        run = _Run(first)
        partitions: list[int] = []
        marks: list[FrameMark] = []
        number = first
        assign, is_one = self._partitioner.assign, self._partitioner.is_one
        for request in group:
            try:
                if request.mark is not None and self._is_behind(request):
                    continue
                if (condition := request.condition) is not None:
                    query = condition.fail_if_events_match
                    if condition.requires_match or (run.requests and run.may_match(query)):
                        self._apply(run, partitions)
                        run = _Run(number)
                    self._check(condition, run.first - 1)
                last = number + request.columns.count - 1
                if last > SEQUENCE_NUMBER_MAX:
                    raise core.SequenceExhausted(SEQUENCE_NUMBER_MAX)
            except core.EventLogError as error:
                request.error = error
                continue
            if request.mark is not None:
                marks.append(self._apply_mark(request, number, number - first))
            if not is_one:
                partitions += assign(request.columns, request.partition)
            request.result = new(AppendResult, (number, last, False))
            run.requests.append(request)
            passed.append(request)
            number = last + 1
        if len(run.requests) == len(group):
            self._index.apply_columns(first, columns, partitions)
        else:
            self._apply(run, partitions)
        if len(passed) < len(group):
            if not passed:
                return Verdict(None, [])
            columns = EventColumns.join([request.columns for request in passed])
            hashes = hashes_of(columns, self._id_seed)
        self._index.ids.insert(hashes, first)
        return new(Verdict, (columns, partitions, marks))

    def _judge_segment(self, request: AppendRequest, segment: PreparedColumns, first: int) -> Verdict:
        """A staged segment passes only in the plain case.

        Otherwise its rows are appended, which reports the problem.
        """
        assert request.mark is not None and request.condition is None and self._partitioner.is_one
        try:
            if self._is_behind(request):
                return Verdict(None, [])
            if not segment.are_distinct or self._index.ids.has_any(segment.hashes):
                raise segment.refusal("the log contains, or may contain, an id of its events")
            if first + segment.count - 1 > SEQUENCE_NUMBER_MAX:
                raise core.SequenceExhausted(SEQUENCE_NUMBER_MAX)
        except core.EventLogError as error:
            request.error = error
            return Verdict(None, [])
        marks: list[FrameMark] = []
        numbered, given = segment.numbered(first), segment.marks(request.mark)
        for (number, part), run, mark in zip(numbered, segment.runs, given, strict=True):
            self._index.apply_run(number, part, run)
            marks.append(frame_mark(self._writers.apply(mark, number, part.count, self._now), 0, part.count))
        self._index.ids.insert(segment.hashes, first)
        request.result = AppendResult(first, first + segment.count - 1)
        return Verdict(segment, [], marks)

    def _apply(self, run: _Run, partitions: list[int]) -> None:
        """Add a run of appends to the postings; its partitions are the last ones assigned so far."""
        if run.requests:
            columns = EventColumns.join([request.columns for request in run.requests])
            self._index.apply_columns(run.first, columns, partitions[-columns.count :])

    def _judge_each(self, group: Sequence[AppendRequest], first: int) -> Verdict:
        """Some id is, or may be, in the log: judge one append after the other, each against the earlier ones."""
        partitions: list[int] = []
        marks: list[FrameMark] = []
        number = first
        for request in group:
            columns = request.columns
            hashes = hashes_of(columns, self._id_seed)
            try:
                if request.mark is not None and self._is_behind(request):
                    continue
                request.result = self._stored_block(columns, hashes, number - 1)
                if request.result is not None:
                    continue
                if request.condition is not None:
                    self._check(request.condition, number - 1)
                last = number + columns.count - 1
                if last > SEQUENCE_NUMBER_MAX:
                    raise core.SequenceExhausted(SEQUENCE_NUMBER_MAX)
            except core.EventLogError as error:
                request.error = error
                continue
            if request.mark is not None:
                marks.append(self._apply_mark(request, number, number - first))
            request.result = AppendResult(number, last)
            assigned = self._partitioner.assign(columns, request.partition)
            partitions += assigned
            self._index.apply_columns(number, columns, assigned)
            self._index.ids.insert(hashes, number)
            self._passed.append((number, columns))
            number = last + 1
        passed = [columns for _, columns in self._passed]
        return Verdict(EventColumns.join(passed) if passed else None, partitions, marks)

    def record(self, request: AppendRequest, head: int) -> None:
        assert request.mark is not None
        try:
            if self._is_behind(request):
                return
            if request.condition is not None:
                self._check(request.condition, head)
            self._writers.record(request.mark, head, self._now)
            request.result = AppendResult(0, 0)
        except core.EventLogError as error:
            request.error = error

    def _is_behind(self, request: AppendRequest) -> bool:
        """Whether a mark is not ahead of its writer's newest mark, which then becomes the request's result.

        If it is ahead, it can be applied. Raises TooLarge (one writer too many), DiskFull, StorageUnavailable.
        """
        assert request.mark is not None
        request.result = self._writers.judge(request.mark, request.columns.count, self._now)
        if request.result is not None:
            return True
        self._writers.begin()
        return False

    def _apply_mark(self, request: AppendRequest, number: int, index: int) -> FrameMark:
        assert request.mark is not None
        count = request.columns.count
        return frame_mark(self._writers.apply(request.mark, number, count, self._now), index, count)

    def applied(self, frame: EncodedFrame, columns: EventColumns) -> None:
        self._recorded_at = frame.recorded_at
        if isinstance(columns, PreparedColumns):
            self._in_flight.extend(columns.numbered(frame.first))
        else:
            self._in_flight.append((frame.first, columns))
        self._passed.clear()

    def landed(self, head: int) -> None:
        while self._in_flight and self._in_flight[0][0] <= head:
            self._in_flight.popleft()

    def rollback(self, above: int) -> None:
        self._index.rollback(above)
        self._writers.rollback()
        self._in_flight.clear()
        self._passed.clear()

    def catch_up(self, frame_log: FrameLog, after: int) -> None:
        for frame in frame_log.read(after):
            if frame.last > self._index.actives[-1].last:  # else all but its marks is applied already
                self.apply_frame(frame)
            self._writers.replay(frame)

    def apply_frame(self, frame: Frame) -> None:
        """Apply the events of a frame that is already in the log."""
        self._index.apply_frame(frame)
        ids = self._index.ids
        if frame.last > ids.last:  # otherwise they are in a file
            known = max(ids.last + 1 - frame.first, 0)  # overlapping files could not be merged
            ids.insert(hashes_of_frame(frame, self._id_seed)[known:], frame.first + known)
        self._recorded_at = max(self._recorded_at, self._counts_as(frame.last) or frame.recorded_at)

    def _check(self, condition: AppendCondition, head: int) -> None:
        """Raises AppendConditionFailed or ConditionNeedsTrimmedEvents."""
        query, after = condition.fail_if_events_match, condition.after
        known_from = self._numbering.known_from
        forgets = known_from > self._numbering.origin
        if forgets and after < known_from - 1:
            raise core.ConditionNeedsTrimmedEvents(after, known_from)
        conflict = self._first_match(query, max(after + 1, known_from), head)
        if conflict is not None:
            self._statistics.conditions_failed += 1
            reason = core.ConditionFailure.NEWER_MATCH if after else core.ConditionFailure.NO_MATCH_EXPECTED
            raise core.AppendConditionFailed(reason, conflict, after)
        if condition.requires_match and self._first_match(query, known_from, min(after, head)) is None:
            if forgets:
                raise core.ConditionNeedsTrimmedEvents(after, known_from)
            self._statistics.conditions_failed += 1
            raise core.AppendConditionFailed(core.ConditionFailure.NO_MATCH_FOUND, None, after)

    def _first_match(self, query: Query, low: int, high: int) -> int | None:
        if low > high:
            return None
        if query.items is None:
            number = self._numbering.next_number(low)
            return number if number <= high else None
        return first_match(self._index.pieces(low, high), query)

    def _stored_block(self, columns: EventColumns, hashes: IdHashes, head: int) -> AppendResult | None:
        """Where exactly these events are stored; None if none of the ids is. Raises DuplicateEventId."""
        if columns.count > 1 and len(set(columns.ids)) != columns.count:
            self._check_repeats(columns)
        if not self._index.ids.has_any(hashes):
            return None
        horizon = self._settings().id_horizon
        lowest = max(self._numbering.first_retained, head - horizon + 1 if horizon else 0)
        hashes = as_list(hashes)
        found = [self._find(hashes[i], columns.sources[i], columns.ids[i], lowest) for i in range(columns.count)]
        known = [(index, number) for index, number in enumerate(found) if number is not None]
        if not known:
            return None
        first = found[0]
        if first is not None and all(
            number == first + index and self._is_same(number, columns, index) for index, number in enumerate(found)
        ):
            return AppendResult(first, first + columns.count - 1, was_stored=True)
        self._statistics.duplicates += 1
        index, stored = known[0]
        raise core.DuplicateEventId(columns.ids[index], columns.sources[index], stored, index)

    def _check_repeats(self, columns: EventColumns) -> None:
        seen: set[tuple[str, str]] = set()
        for index, key in enumerate(zip(columns.sources, columns.ids, strict=True)):
            if key in seen:
                self._statistics.duplicates += 1
                raise core.DuplicateEventId(key[1], key[0], None, index)
            seen.add(key)

    def _find(self, hash: int, source: str, id: str, lowest: int) -> int | None:
        """The newest number, from `lowest` on, with that source and id: an earlier, narrower horizon may have let two
        in."""
        for number in sorted(self._index.ids.candidates(hash), reverse=True):
            if number >= lowest and (fields := self._fields(number)) is not None and fields[:2] == (source, id):
                return number
        return None

    def _is_same(self, number: int, columns: EventColumns, index: int) -> bool:
        given = (columns.types[index], columns.data[index], columns.tags[index])
        fields = self._fields(number)
        return fields is not None and fields[2:] == given

    def _fields(self, number: int) -> tuple[str, str, str, bytes, tuple[str, ...]] | None:
        """(source, id, type, data, tags) of an applied event; None if it has just been trimmed."""
        for first, columns in chain(reversed(self._passed), reversed(self._in_flight)):
            if first <= number < first + columns.count:
                return _fields_of(columns, number - first)
        frame = self._frame_at(number)
        if frame is None:
            return None
        event = frame.event(number - frame.first)
        return (event.source, event.id, event.type, event.data, event.tags)


def _fields_of(columns: EventColumns, index: int) -> tuple[str, str, str, bytes, tuple[str, ...]]:
    return (columns.sources[index], columns.ids[index], columns.types[index], columns.data[index], columns.tags[index])
