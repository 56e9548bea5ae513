"""Logs in memory: the reference implementation and the model in the tests of every other log.

All operations take linear time, and nothing is durable. For tests and experiments.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from ..core import errors as core
from ..core.condition import AppendCondition
from ..core.consumer import Consumer
from ..core.counting import Counted, TermKind
from ..core.event import SequencedEvent, tag_key
from ..core.extent import SegmentInfo, Weight
from ..core.limits import SEQUENCE_NUMBER_MAX, EventColumns
from ..core.local import LocalLog
from ..core.log import (
    EVENT_BYTES,
    PAGE_BYTES,
    PAGE_EVENTS,
    AppendRequest,
    AppendResult,
    ArrowBatch,
    LargeEvent,
    LogInfo,
    Page,
)
from ..core.mark import WriterState
from ..core.query import Query
from ..core.settings import LogSettings, check_log_name, refuse_own
from ..core.state import USER_KIND, StateEntry, StateStore
from ..core.store import LogStore
from ..core.watch.bus import Bus
from .append.clock import PATIENCE_MS, TrustedClock, shown_ms
from .append.partitioner import Partitioner
from .append.writer_table import WriterTable
from .notifications import notify_changed, notify_created, notify_deleted


class MemoryLog(LocalLog):
    """A log in a list."""

    def __init__(
        self,
        name: str = "memory",
        settings: LogSettings | None = None,
        *,
        state: StateStore | None = None,
        floor: int = 0,
        clock: Callable[[], int] = shown_ms,
        bus: Bus | None = None,
    ) -> None:
        self._incarnation = uuid.uuid4().hex
        super().__init__(
            name, settings or LogSettings(), state or MemoryState(), self._incarnation, clock, bus or Bus()
        )
        self._floor = floor
        """Numbers up to this one were issued by earlier logs of this name."""
        self._events: list[SequencedEvent] = []
        """All events ever appended; those below `_first_retained` count only for conditions."""
        self._by_id: dict[tuple[str, str], SequencedEvent] = {}
        """The newest event of each source and id."""
        self._first_retained = floor + 1
        self._known_from = floor + 1
        """Conditions see events from this number on: all of them, unless the log drops its history."""
        self._head = floor
        self._recorded_at = 0
        self._created_at = clock()
        self._clock = clock
        self._partitioner = Partitioner(self.settings)
        self._writers = WriterTable(floor)
        self._is_gated = True
        """Whether all events passed all checks."""

    def columns_of(self, batch: ArrowBatch) -> EventColumns:
        from ..formats.arrow.events import columns_of

        return columns_of(batch, self.settings)

    def submit(self, request: AppendRequest) -> None:
        with self._changing:
            if self.is_closed:
                raise core.Closed(self.name)
            try:
                request.result = self._append(request)
            except core.EventLogError as error:
                request.error = error
            self._count(request)
        request.deliver([request])
        if request.result is not None:
            self._wake_all()

    def _count(self, request: AppendRequest) -> None:
        statistics = self._statistics
        if request.result is not None:
            statistics.appends += 1
            if not request.result.was_stored:
                statistics.commits += 1
                statistics.events_appended += request.columns.count
                statistics.bytes_appended += request.columns.bytes
        elif isinstance(request.error, core.AppendConditionFailed):
            statistics.conditions_failed += 1
        elif isinstance(request.error, core.DuplicateEventId):
            statistics.duplicates += 1
        else:
            statistics.refused += 1

    def _append(self, request: AppendRequest) -> AppendResult:
        columns, mark, now = request.columns, request.mark, max(self._clock(), self._recorded_at)
        if mark is not None and (done := self._writers.judge(mark, columns.count, now)):
            return done
        if stored := self._stored_block(columns):
            return stored
        if request.condition is not None:
            self._check_condition(request.condition)
        if mark is not None and not columns.count:
            self._writers.record(mark, self._head, now)
            return AppendResult(0, 0)
        self._is_gated &= columns.is_gated
        first, last = self._head + 1, self._head + columns.count
        if last > SEQUENCE_NUMBER_MAX:
            raise core.SequenceExhausted(SEQUENCE_NUMBER_MAX)
        now = self._clock()
        self._statistics.clock_steps += now < self._recorded_at
        self._recorded_at = max(now, self._recorded_at)
        partitions = self._partitioner.assign(columns, request.partition)
        added = map(
            SequencedEvent,
            range(first, last + 1),
            [self._recorded_at] * columns.count,
            partitions,
            columns.types,
            columns.data,
            columns.tags,
            columns.ids,
            columns.sources,
            [MappingProxyType(dict(mapping)) for mapping in columns.attributes],
            columns.group_keys,
            columns.envelopes,
            columns.encodings,
        )
        for event in added:
            self._events.append(event)
            self._by_id[event.source, event.id] = event
        self._head = last
        if mark is not None:
            self._writers.apply(mark, first, columns.count, self._recorded_at)
        self._writers.landed(last)
        return AppendResult(first, last)

    def _stored_block(self, columns: EventColumns) -> AppendResult | None:
        """Where exactly these events are already stored. Raises DuplicateEventId if only some ids are."""
        keys = list(zip(columns.sources, columns.ids, strict=True))
        seen: set[tuple[str, str]] = set()
        for index, key in enumerate(keys):
            if key in seen:
                raise core.DuplicateEventId(key[1], key[0], None, index)
            seen.add(key)
        found = self._known(keys)
        if not any(found):
            return None
        first = found[0].sequence_number if found[0] else 0
        for index, event in enumerate(found):
            given = (first + index, columns.types[index], columns.data[index], columns.tags[index])
            if event is None or given != (event.sequence_number, event.type, event.data, event.tags):
                index, known = next((index, event) for index, event in enumerate(found) if event is not None)
                raise core.DuplicateEventId(known.id, known.source, known.sequence_number, index)
        return AppendResult(first, first + columns.count - 1, was_stored=True)

    def _known(self, keys: Iterable[tuple[str, str]]) -> list[SequencedEvent | None]:
        """The event of each source and id that the log remembers."""
        horizon = self.settings.id_horizon
        lowest = max(self._first_retained, self._head - horizon + 1 if horizon else 0)
        found = map(self._by_id.get, keys)
        return [event if event is not None and event.sequence_number >= lowest else None for event in found]

    def _check_condition(self, condition: AppendCondition) -> None:
        query, after, known_from = condition.fail_if_events_match, condition.after, self._known_from
        known = self._events[known_from - self._floor - 1 :]
        forgets = known_from > self._floor + 1
        if forgets and after < known_from - 1:
            raise core.ConditionNeedsTrimmedEvents(after, known_from)
        matching = [event.sequence_number for event in known if query.matches(event.type, event.tags)]
        newer = [number for number in matching if number > after]
        if newer:
            reason = core.ConditionFailure.NEWER_MATCH if after else core.ConditionFailure.NO_MATCH_EXPECTED
            raise core.AppendConditionFailed(reason, newer[0], after)
        if condition.requires_match and not matching:
            if forgets:
                raise core.ConditionNeedsTrimmedEvents(after, known_from)
            raise core.AppendConditionFailed(core.ConditionFailure.NO_MATCH_FOUND, None, after)

    def read_page(
        self,
        query: Query,
        after: int,
        *,
        upto: int | None = None,
        backwards: bool = False,
        partition: int | None = None,
        limit: int = PAGE_EVENTS,
        bytes_max: int = PAGE_BYTES,
        packs: bool = False,
        is_bounded: bool = False,
    ) -> Page:
        """See LocalLog. Nothing is packed: the events are objects already."""
        with self._changing:
            head, lowest = self._head, self._first_retained
            if backwards:
                bound = min(max(upto or 0, lowest), after)
                numbers = range(min(after - 1, head), bound - 1, -1)
            else:
                bound = max(min(head if upto is None else upto, head), after)
                numbers = range(max(after + 1, lowest), bound + 1)
            events: list[SequencedEvent] = []
            cursor, size = after, 0
            for number in numbers:
                event = self._events[number - self._floor - 1]
                if partition not in (None, event.partition) or not query.matches(event.type, event.tags):
                    continue
                if len(events) >= limit:
                    return self._page(events, cursor, head, is_last=False)
                more = _bytes_of(event) if is_bounded else len(event.data) + len(event.envelope)
                if is_bounded and more > bytes_max and not events:
                    large = LargeEvent(event._replace(data=b""), memoryview(event.data))
                    return Page((), number, head, number == numbers[-1], self._is_gated, large)
                if events and size + (is_bounded and more - 1) >= bytes_max:
                    return self._page(events, cursor, head, is_last=False)
                events.append(event)
                cursor = number
                size += more
            return self._page(events, bound, head, is_last=True)

    def _page(self, events: list[SequencedEvent], cursor: int, head: int, *, is_last: bool) -> Page:
        self._statistics.events_read += len(events)
        return Page(events, cursor, head, is_last, self._is_gated)

    def head(self) -> int:
        return self._head

    def check_position(self, position: int) -> None:
        if 1 < position <= self._floor:
            raise core.PositionOfOtherIncarnation(position, self._incarnation, self._floor + 1)
        if position < self._first_retained and self._first_retained > self._floor + 1:
            raise core.PositionTrimmed(position, self._first_retained)

    @property
    def voids(self) -> Sequence[tuple[int, int]]:
        return [(1, self._floor)] if self._floor else []

    def sequence_number_at(self, recorded_at: int) -> int:
        with self._changing:
            for event in self._retained():
                if event.recorded_at >= recorded_at:
                    return event.sequence_number
            return self._head + 1

    def count_steps(
        self, query: Query, after: int, upto: int, *, partition: int | None = None, by_type: bool = False
    ) -> Iterator[Counted]:
        with self._changing:
            last = min(upto, self._head)
            events = [event for event in self._retained() if after < event.sequence_number <= last]
        for start in range(0, len(events), PAGE_EVENTS):
            part = events[start : start + PAGE_EVENTS]
            found = Counter(
                event.type
                for event in part
                if partition in (None, event.partition) and query.matches(event.type, event.tags)
            )
            yield Counted(part[-1].sequence_number, found.total(), dict(found) if by_type else {})

    def terms(self, kind: TermKind, prefix: str) -> Iterator[Sequence[str]]:
        with self._changing:
            events = self._retained()
        for start in range(0, len(events), PAGE_EVENTS):
            part = events[start : start + PAGE_EVENTS]
            yield sorted({term for event in part for term in _terms(event, kind) if term.startswith(prefix)})

    def events_with(self, kind: TermKind, terms: Sequence[str]) -> Iterator[Mapping[str, int]]:
        with self._changing:
            events = self._retained()
        for start in range(0, len(events), PAGE_EVENTS):
            yield Counter(
                term for event in events[start : start + PAGE_EVENTS] for term in {*_terms(event, kind)} & {*terms}
            )

    def info(self) -> LogInfo:
        with self._changing:
            retained = self._retained()
            counts = [0] * self.settings.partitions
            for event in retained:
                counts[event.partition] += 1
            return LogInfo(
                self.name,
                self._incarnation,
                self.settings,
                self._head,
                self._first_retained,
                len(retained),
                sum(len(event.data) + len(event.envelope) for event in retained),
                self._created_at,
                tuple(counts),
            )

    def segments(self, after: int, limit: int) -> list[SegmentInfo]:
        """See LocalLog. The retained events count as one segment."""
        with self._changing:
            retained, first = self._retained(), self._first_retained
        begin, end = (retained[0].recorded_at, retained[-1].recorded_at) if retained else (None, None)
        size = sum(map(_size, retained))
        found = SegmentInfo(first, first + len(retained) - 1, len(retained), size, size, begin, end, is_written=True)
        return [found] if first > after and limit else []

    def events_between(self, low: int, high: int) -> int:
        return max(0, high - max(low, self._floor + 1) + 1)

    def weigh(self, low: int, high: int) -> Weight:
        """See LocalLog. Trimmed events count."""
        with self._changing:
            found = [event for event in self._events if low <= event.sequence_number <= high]
        return Weight(len(found), sum(map(_size, found)))

    def freed_by(self, first_retained: int) -> tuple[int, int]:
        """See LocalLog. Memory keeps trimmed events."""
        return 0, 0

    def writer(self, name: str) -> WriterState | None:
        return self._writers.get(name)

    def writers(self) -> list[WriterState]:
        return self._writers.all()

    def forget_writer(self, name: str) -> None:
        if self.is_closed:
            raise core.Closed(self.name)
        self._writers.forget(name)

    def stored(self, sources: Sequence[str], ids: Sequence[str]) -> list[int | None]:
        with self._changing:
            found = self._known(zip(sources, ids, strict=True))
        return [None if event is None else event.sequence_number for event in found]

    @property
    def first_retained(self) -> int:
        return self._first_retained

    @property
    def known_from(self) -> int:
        return self._known_from

    def kept_from(self, settings: LogSettings, consumers: Sequence[Consumer], ahead_ms: int = 0) -> int:
        """See LocalLog. Memory has no retention."""
        return self._first_retained

    def _begin_at(self, number: int) -> None:
        self._first_retained = number
        self._forget()

    def _forget(self) -> None:
        """Permanently drop the history of trimmed events, if the log keeps none."""
        if not self.settings.keeps_history:
            self._known_from = self._first_retained

    def change(self, settings: LogSettings) -> None:
        """Apply new settings. Raises InvalidSettings for those fixed at creation."""
        with self._changing:
            self.settings.check_change(settings)
            self.settings = settings
            self._forget()

    def close(self) -> None:
        """Stop accepting and serving; wake all waiters."""
        with self._changing:  # an append in progress completes before the log closes
            self.is_closed = True
        self._wake_all()

    def _retained(self) -> list[SequencedEvent]:
        return self._events[self._first_retained - self._floor - 1 :]


def _size(event: SequencedEvent) -> int:
    return len(event.data) + len(event.envelope)


def _terms(event: SequencedEvent, kind: TermKind) -> Collection[str]:
    if kind is TermKind.TYPE:
        return (event.type,)
    return event.tags if kind is TermKind.TAG else {tag_key(tag) for tag in event.tags}


class MemoryStore(LogStore):
    """Logs by name, in memory."""

    def __init__(
        self, clock: Callable[[], int] = shown_ms, *, bus: Bus | None = None, clock_patience_ms: int = PATIENCE_MS
    ) -> None:
        self.bus = bus or Bus()
        self._state = MemoryState()
        self._logs: dict[str, MemoryLog] = {}
        self._floors: dict[str, int] = {}
        self.clock = (
            clock
            if isinstance(clock, TrustedClock)
            else TrustedClock(clock, patience_ms=clock_patience_ms, bus=self.bus)
        )
        """The clock of all its logs."""
        self._lock = threading.RLock()

    @property
    def state(self) -> StateStore:
        return self._state

    def create(self, name: str, settings: LogSettings | None = None, *, is_own: bool = False) -> MemoryLog:
        check_log_name(name, is_own=is_own)
        with self._lock:
            if (log := self._logs.get(name)) is not None:
                if settings not in (None, log.settings):
                    raise core.LogExists(name)
                return log
            floor = self._floors.get(name, 0)
            bus = None if is_own else self.bus
            log = MemoryLog(name, settings, state=self.state, floor=floor, clock=self.clock, bus=bus)
            self._logs[name] = log
            notify_created(log.bus, log.info())
            return log

    def open(self, name: str) -> MemoryLog:
        if name not in self._logs:
            raise core.LogNotFound(name)
        return self._logs[name]

    def names(self) -> list[str]:
        return sorted(self._logs)

    def opened(self) -> list[MemoryLog]:
        return [self._logs[name] for name in self.names()]

    def settings_of(self, name: str) -> LogSettings:
        return self.open(name).settings

    def incarnation_of(self, name: str) -> str:
        return self.open(name).info().incarnation

    def consumers_of(self, name: str) -> list[Consumer]:
        return self.open(name).consumers()

    def change(self, name: str, settings: LogSettings, *, drops_at_most: int | None = 0) -> MemoryLog:
        log = self.open(name)
        old = log.settings
        old.check_change(settings)
        log.check_drop(settings, log.consumers(), drops_at_most)
        log.change(settings)
        notify_changed(log.bus, name, old, settings)
        return log

    def delete(self, name: str, incarnation: str | None = None) -> None:
        refuse_own(name)
        with self._lock:
            log = self.open(name)
            info = log.info()
            if incarnation not in (None, info.incarnation):
                raise core.LogNotFound(name, incarnation)
            log.close()
            self._floors[name] = log.head()
            del self._logs[name]
            notify_deleted(log.bus, info)

    def unready(self) -> str | None:
        """See LogStore. Memory is always ready."""
        return None

    def may_act(self) -> bool:
        """See LogStore. No other process shares these logs."""
        return True

    def has_lapsed(self) -> bool:
        """See LogStore. No other process shares these logs."""
        return False

    def unavailable(self) -> dict[str, str]:
        """See LogStore. Memory cannot be damaged."""
        return {}

    def troubles(self) -> list[str]:
        self.clock()
        return [trouble] if (trouble := self.clock.trouble()) else []

    def close(self) -> None:
        for log in self._logs.values():
            log.close()


class MemoryState(StateStore):
    """A StateStore in a dictionary."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], StateEntry] = {}
        self._lock = threading.Lock()
        self._had_users = False

    def get(self, kind: str, key: str) -> StateEntry | None:
        return self._entries.get((kind, key))

    def put(
        self, kind: str, key: str, value: bytes, expected_version: int | None = None, *, is_durable: bool = True
    ) -> int:
        with self._lock:
            version = self._expect(kind, key, expected_version) + 1
            self._entries[kind, key] = StateEntry(value, version)
            self._had_users |= kind == USER_KIND
            return version

    def delete(self, kind: str, key: str, expected_version: int | None = None) -> bool:
        with self._lock:
            self._expect(kind, key, expected_version)
            return self._entries.pop((kind, key), None) is not None

    def delete_all(self, kind: str, keys: Iterable[str]) -> int:
        with self._lock:
            return sum(self._entries.pop((kind, key), None) is not None for key in keys)

    def flush(self) -> None:
        pass

    def items(self, kind: str, prefix: str = "") -> Iterator[tuple[str, StateEntry]]:
        with self._lock:
            found = sorted((k, e) for (its_kind, k), e in self._entries.items() if its_kind == kind)
        return ((key, entry) for key, entry in found if key.startswith(prefix))

    def had_users(self) -> bool:
        return self._had_users

    def keep_had_users(self, had_users: bool) -> None:
        self._had_users = had_users

    def _expect(self, kind: str, key: str, expected_version: int | None) -> int:
        entry = self._entries.get((kind, key))
        version = entry.version if entry else 0
        if expected_version not in (None, version):
            raise core.StateConflict(kind, key, expected_version or 0, version)
        return version


def _bytes_of(event: SequencedEvent) -> int:
    """The size of the event in a bounded page."""
    texts = "".join((event.type, *event.tags, event.id, event.source, event.group_key))
    size = EVENT_BYTES + len(event.data) + len(event.envelope) + len(texts.encode())
    if event.attributes:
        size += sum(len(name) + len(value.encode()) for name, value in event.attributes.items())
    return size
