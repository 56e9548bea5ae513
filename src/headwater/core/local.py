"""A log in this process: subclasses provide `submit`, `read_page` and `watch`; the rest is built on these three."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping, Sequence

from .actor import acting
from .condition import AppendCondition, check_condition
from .consumer import Acknowledgement, Consumer, ConsumerRegistry
from .counting import Counted, TermKind
from .errors import (
    DuplicateEventId,
    EventLogError,
    InvalidEvent,
    InvalidPosition,
    Overloaded,
    PositionOfOtherIncarnation,
    WouldDrop,
)
from .event import Event
from .extent import HELD_MAX, Drop, ForeseenTrim, Held, SegmentInfo, Weight
from .limits import APPEND_BYTES_MAX, SEQUENCE_NUMBER_MAX, EventColumns, check_append, show
from .log import AppendRequest, AppendResult, ArrowBatch, LogInfo, LogStatistics, Reading, Selection, Subscription
from .mark import Mark, WriterState, check_mark
from .query import ALL, Query
from .reading import LocalSubscription, PagedLog, PagedReading, next_event
from .settings import LogSettings
from .shared_bytes import SharedBytes
from .state import StateStore
from .streams import StreamPositions
from .watch.bus import Bus
from .watch.notification_types import NotificationType

WAITING_BYTES_MAX = 8 * APPEND_BYTES_MAX
"""Default budget of waiting appends: the largest append fits, however much waits in one other log."""
APPEND_NEW_ATTEMPTS = 8
"""How often `append_new` rechecks which ids are stored, if another append stores one of them in the meantime."""
INDEX_WAIT_S = 60.0
"""The maximum time that a blocking append waits for the index: an engine may have no thread that builds it."""


class LocalLog(PagedLog):
    """A log in this process: an `EventLog` whose subclasses provide three primitives and the consumers.

    All methods may be called from any thread. `submit`, `read_page` and `watch` do not block, so an event loop may call
    them (see `core.loop.async_log`).
    """

    def __init__(
        self, name: str, settings: LogSettings, state: StateStore, incarnation: str, clock: Callable[[], int], bus: Bus
    ) -> None:
        """The consumers are those stored in the state for the incarnation; the clock counts ms since 1970 UTC."""
        self.name = name
        self.settings = settings
        self.bus = bus
        self.registry = ConsumerRegistry(state, incarnation, self.head, clock, name, bus)
        self.streams = StreamPositions(self.head, clock)
        self.append_bytes_max = self.staged_append_bytes_max = APPEND_BYTES_MAX
        """The largest append that can ever fit, and the largest one built from staged rows."""
        self.waiting = SharedBytes(WAITING_BYTES_MAX)
        """The budget of waiting appends."""
        self._statistics = LogStatistics()
        self._watchers: dict[object, Callable[[], None]] = {}
        self._changing = threading.RLock()
        """Held while the settings or the beginning of the log change."""
        self.is_closed = False

    @abstractmethod
    def submit(self, request: AppendRequest) -> None:
        """Accept an append; `request.deliver` receives the answer after it is durable or refused.

        Raises Overloaded and Closed at once, and InvalidPosition for a partition that does not exist.
        """

    def submit_on(self, loop: AbstractEventLoop) -> Callable[[AppendRequest], None] | None:
        """A faster `submit` for the callbacks of that event loop, the running one; None if there is none for it.

        It gathers the appends of a turn of the loop. Later callbacks of the loop call `deliver`, or other threads do.
        """
        return None

    @abstractmethod
    def head(self) -> int:
        """The number of the last durable event; 0 in an empty log."""

    def check_current(self) -> None:
        """Raises NotPrimary: this server was the primary until its lease ended (see `LogStore.has_lapsed`)."""

    @abstractmethod
    def check_position(self, position: int) -> None:
        """Raises PositionTrimmed or PositionOfOtherIncarnation if a read cannot start at that number."""

    @property
    @abstractmethod
    def voids(self) -> Sequence[tuple[int, int]]:
        """Ranges (inclusive) of numbers that other incarnations under this name have issued or may have issued."""

    @abstractmethod
    def sequence_number_at(self, recorded_at: int) -> int:
        """The number of the first retained event recorded at that time (ms) or later; head + 1 if there is none."""

    @abstractmethod
    def count_steps(
        self, query: Query, after: int, upto: int, *, partition: int | None = None, by_type: bool = False
    ) -> Iterator[Counted]:
        """Count the matching retained events numbered above `after`, up to `upto` (at most the head).

        Each step is short and blocks no longer than `read_page`. The query must be checked. Steps raise
        StorageCorrupted and Closed.
        """

    @abstractmethod
    def terms(self, kind: TermKind, prefix: str) -> Iterator[Sequence[str]]:
        """The terms of that kind with that prefix, in short steps; a step may return none.

        Unordered, with duplicates. May include terms of events that are all trimmed.
        """

    @abstractmethod
    def events_with(self, kind: TermKind, terms: Sequence[str]) -> Iterator[Mapping[str, int]]:
        """The number of retained events with each of these terms, in short steps; the answer is the sum of all steps.

        A key of tags takes memory for each event of a part of the log, so pass KEYS_MAX at most.
        """

    @abstractmethod
    def info(self) -> LogInfo:
        """See EventLog."""

    @property
    def statistics(self) -> LogStatistics:
        """The counters of this log; live, must not be changed by the caller."""
        return self._statistics

    def register_consumer(
        self, owner: str, component: str, *, after: int | None = None, drops_at_most: int = 0
    ) -> Consumer:
        """See EventLog."""
        with self._changing:
            registered = self.registry.registered(owner, component, after)
            self.check_drop(self.settings, [*self._others(owner, component), registered], drops_at_most)
            return self.registry.register(owner, component, after)

    def acknowledge(self, owner: str, component: str, sequence_number: int, *, epoch: int | None = None) -> Consumer:
        """See EventLog."""
        [outcome] = self.acknowledge_all([Acknowledgement(owner, component, sequence_number, epoch)])
        if isinstance(outcome, EventLogError):
            raise outcome
        return outcome

    def acknowledge_all(self, given: Sequence[Acknowledgement]) -> list[Consumer | EventLogError]:
        """Like `acknowledge`, with one commit for all. Returns for each the consumer, or the error that refused it.

        Raises the errors of the commit: StorageUnavailable, DiskFull, NotPrimary, OutcomeUnknown. The acknowledgements
        may be repeated.
        """
        return self.registry.acknowledge_all(given)

    def reset_consumer(self, owner: str, component: str, after: int, *, drops_at_most: int = 0) -> Consumer:
        """See EventLog."""
        with self._changing:
            moved = self.registry.moved(owner, component, after)
            self.check_drop(self.settings, [*self._others(owner, component), moved], drops_at_most)
            return self.registry.reset(owner, component, after)

    def unregister_consumer(self, owner: str, component: str, *, drops_at_most: int = 0) -> None:
        """See EventLog."""
        with self._changing:
            self.check_drop(self.settings, self._others(owner, component), drops_at_most)
            self.registry.unregister(owner, component)

    def _others(self, owner: str, component: str) -> list[Consumer]:
        return [each for each in self.consumers() if (each.owner, each.component) != (owner, component)]

    def consumers(self) -> list[Consumer]:
        """See EventLog."""
        return self.registry.all()

    def consumer(self, owner: str, component: str) -> Consumer | None:
        """One registered consumer, or None; does not block."""
        return self.registry.get(owner, component)

    @property
    @abstractmethod
    def first_retained(self) -> int:
        """The number from which events can be read."""

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        token = object()
        self._watchers[token] = wake
        return lambda: self._unwatch(token)

    def _unwatch(self, token: object) -> None:
        self._watchers.pop(token, None)

    def _wake_all(self) -> None:
        for wake in list(self._watchers.values()):
            wake()

    @abstractmethod
    def segments(self, after: int, limit: int) -> list[SegmentInfo]:
        """The first `limit` segments that begin above that number, oldest first. May read from the disk.

        Raises StorageCorrupted.
        """

    @abstractmethod
    def events_between(self, low: int, high: int) -> int:
        """The count of numbers from `low` to `high` that belong to events, trimmed or not, of this incarnation.

        Counts ranges of numbers, not events, so it takes no time. `high` is at most the head.
        """

    @abstractmethod
    def weigh(self, low: int, high: int) -> Weight:
        """Number and size of the log's events from `low` to `high`; trimmed ones may or may not count."""

    @abstractmethod
    def freed_by(self, first_retained: int) -> tuple[int, int]:
        """The number of segments that would be removed, and their size, if the log began there."""

    @property
    @abstractmethod
    def known_from(self) -> int:
        """The first number from which conditions see every event."""

    @abstractmethod
    def kept_from(self, settings: LogSettings, consumers: Sequence[Consumer], ahead_ms: int = 0) -> int:
        """Where the log begins once retention has run with these settings and consumers.

        `ahead_ms` is how much older the events will be then. The current consumers are used.
        """

    def foresee_drop(self, settings: LogSettings, consumers: Sequence[Consumer]) -> Drop | None:
        """What these settings and consumers drop, beyond what the present ones drop; None if nothing.

        It is the larger of what they drop now and what they drop in WouldDrop.MINUTES, or in half the retention if that
        is sooner: within the retention period, events that no consumer protects are dropped in any case.
        """
        ahead_max = WouldDrop.MINUTES * 60_000
        soon = ahead_max if settings.retention_ms is None else min(ahead_max, settings.retention_ms // 2)
        with self._changing:
            found = (self._drop(settings, consumers, ahead_ms) for ahead_ms in (0, soon))
            return max(filter(None, found), key=lambda drop: drop.events, default=None)

    def _drop(self, settings: LogSettings, consumers: Sequence[Consumer], ahead_ms: int) -> Drop | None:
        begin = max(self.first_retained, self.kept_from(self.settings, self.consumers(), ahead_ms))
        end = max(begin, self.kept_from(settings, consumers, ahead_ms))
        loses_history = self.settings.keeps_history and not settings.keeps_history
        first = min(begin, self.known_from) if loses_history else begin
        events, history = self.weigh(first, end - 1).events, self.weigh(first, begin - 1).events
        if not events:
            return None
        since = self._time_within(begin, end - 1, backwards=False)
        until = self._time_within(begin, end - 1, backwards=True)
        return Drop(events, first, end - 1, since, until, history)

    def check_drop(self, settings: LogSettings, consumers: Sequence[Consumer], drops_at_most: int | None) -> None:
        """Raises WouldDrop if these settings and consumers drop more events than allowed (None for no limit)."""
        found = None if drops_at_most is None else self.foresee_drop(settings, consumers)
        if found is not None and drops_at_most is not None and found.events > drops_at_most:
            raise WouldDrop(self.name, *found)

    def _time_within(self, low: int, high: int, *, backwards: bool) -> int | None:
        """When the first (or last) event from `low` to `high` was recorded; None if there is none."""
        found = next_event(self, high + 1 if backwards else low - 1, backwards=backwards)
        return None if found is None or not low <= found.sequence_number <= high else found.recorded_at

    def foresee_trim(self, below: int) -> ForeseenTrim:
        """What `trim` would do now. Raises InvalidPosition, like `trim`."""
        with self._changing:
            bound, previous = max(self._trim_bound(below), self.first_retained), self.first_retained
            held = sorted(
                (each for each in self.consumers() if each.acknowledged + 1 < below),
                key=lambda each: (each.acknowledged, each.owner, each.component),
            )
            segments, freed = self.freed_by(bound)
            return ForeseenTrim(
                bound,
                self.weigh(previous, bound - 1),
                segments,
                freed,
                [Held(each, self.weigh(max(each.acknowledged + 1, previous), below - 1)) for each in held[:HELD_MAX]],
                len(held),
            )

    def _trim_bound(self, below: int) -> int:
        """Where the log would begin after trimming below that number. Raises InvalidPosition."""
        head = self.head()
        if not isinstance(below, int) or isinstance(below, bool) or not 0 <= below <= head + 1:
            raise InvalidPosition(f"expected 0 to {head + 1} (the head + 1), got {below!r}", "below")
        lowest = self.registry.lowest_acknowledged()
        return below if lowest is None else min(below, lowest + 1)

    def trim(self, below: int) -> int:
        """See EventLog. Logical, exact and immediate."""
        with self._changing:
            bound = self._trim_bound(below)
            if bound > (previous := self.first_retained):
                self._begin_at(bound)
                self.bus.emit(
                    NotificationType.LOG_TRIMMED,
                    log=self.name,
                    firstRetained=bound,
                    previousFirstRetained=previous,
                    user=acting(),
                )
            return self.first_retained

    @abstractmethod
    def _begin_at(self, number: int) -> None:
        """Retain the events from that number on, which is above `first_retained`."""

    @abstractmethod
    def writer(self, name: str) -> WriterState | None:
        """The durable state of an exactly-once writer (see `core.mark`), or None if it is unknown; does not block."""

    @abstractmethod
    def writers(self) -> list[WriterState]:
        """All exactly-once writers known to the log, by name."""

    @abstractmethod
    def forget_writer(self, name: str) -> None:
        """Forget an exactly-once writer that has ended (`WriterState.is_ended`): its batches will not be sent again.

        A batch that is sent again nevertheless is appended again. Does nothing if the writer is unknown. After a crash,
        or a takeover by another server, it may be known again.

        Raises InvalidInput (it has not ended), NotPrimary, Closed, DiskFull, StorageUnavailable.
        """

    @abstractmethod
    def stored(self, sources: Sequence[str], ids: Sequence[str]) -> list[int | None]:
        """For each (source, id): the number of the stored event that has it, None if there is none.

        Applies the ids' horizon, as appends do. May read from the disk. Raises StorageCorrupted, Closed.
        """

    def request(
        self,
        events: Sequence[Event],
        condition: AppendCondition | None,
        partition: int | None,
        deliver: Callable[[list[AppendRequest]], None],
        context: object = None,
    ) -> AppendRequest:
        """A checked request for `submit`.

        Raises the caller's errors: InvalidEvent, TooLarge, InvalidPosition, PositionOfOtherIncarnation (a decision
        based on an earlier log of this name must not pass on this one).
        """
        self._check_bounds(condition, partition)
        columns = check_append(events, self.settings.event_bytes_max)
        return AppendRequest(columns, condition, partition, deliver, context)

    def request_columns(
        self,
        columns: EventColumns,
        condition: AppendCondition | None,
        partition: int | None,
        deliver: Callable[[list[AppendRequest]], None],
        context: object = None,
        mark: Mark | None = None,
        is_bulk: bool = False,
    ) -> AppendRequest:
        """Like `request`, for events that are columns already, optionally with the mark of an exactly-once writer.

        Raises InvalidInput (of the mark), InvalidEvent (no events and no mark), InvalidPosition,
        PositionOfOtherIncarnation.
        """
        self._check_bounds(condition, partition)
        if mark is not None:
            check_mark(mark, columns.count)
        elif not columns.count:
            raise InvalidEvent("an append needs at least one event", "events")
        return AppendRequest(columns, condition, partition, deliver, context, mark, is_bulk)

    def append(
        self,
        events: Sequence[Event],
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
    ) -> AppendResult:
        """See EventLog. Blocks until the events are durable; waits where `submit` would raise Overloaded.

        It waits at most a minute for the index, then raises Overloaded.
        """
        done = threading.Lock()
        return self._await(self.request(events, condition, partition, _release_all, done), done)

    @abstractmethod
    def columns_of(self, batch: ArrowBatch) -> EventColumns:
        """The events of an Arrow batch, checked by this log's settings. Raises InvalidEvent, TooLarge."""

    def append_batch(
        self, batch: ArrowBatch, condition: AppendCondition | None = None, *, partition: int | None = None
    ) -> AppendResult:
        """See EventLog. Blocks and waits like `append`."""
        return self.append_columns(self.columns_of(batch), condition, partition=partition)

    def append_columns(
        self,
        columns: EventColumns,
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
        mark: Mark | None = None,
        is_bulk: bool = False,
    ) -> AppendResult:
        """Like `append`, for checked columns, and exactly once with a mark.

        `is_bulk`: part of a bulk load, which the index refuses before other appends when it falls behind. With a mark
        it gets Overloaded at once instead of waiting, because its writer can resume where it stopped.

        If the mark is not ahead of its writer's newest, nothing is appended and the condition is not checked:
        `was_stored`. A mark is stored only together with appended events; if the events turn out to be stored already,
        by their ids, the mark is not stored. Without events, a mark that ends its batch is stored by itself, durably.

        Raises the errors of `append`, InvalidInput (of the mark), and TooLarge for one writer too many.
        """
        done = threading.Lock()
        request = self.request_columns(columns, condition, partition, _release_all, done, mark, is_bulk)
        return self._await(request, done)

    def append_new(
        self,
        columns: EventColumns,
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
        is_bulk: bool = False,
    ) -> tuple[AppendResult | None, int]:
        """Append the events whose ids are not stored yet; also returns how many were left out.

        Of events that share an id, only the first is appended. Returns None if nothing was new (the condition was not
        checked). Raises the same errors as `append`; DuplicateEventId if other appends of the same ids repeatedly
        intervened.
        """
        left, skipped = columns, 0
        for attempt in range(APPEND_NEW_ATTEMPTS):
            kept = self.new_ones(left)
            if len(kept) < left.count:
                skipped += left.count - len(kept)
                left = left.take(kept)
            if not left.count:
                return None, skipped
            try:
                result = self.append_columns(left, condition, partition=partition, is_bulk=is_bulk)
            except DuplicateEventId:  # another append intervened
                if attempt == APPEND_NEW_ATTEMPTS - 1:
                    raise
                continue
            if result.was_stored:  # all of them were stored in the meantime
                break
            return result, skipped
        return None, skipped + left.count

    def new_ones(self, columns: EventColumns) -> list[int]:
        """The indexes of the events whose (source, id) is neither stored nor used by an earlier event here."""
        found = self.stored(columns.sources, columns.ids)
        seen: set[tuple[str, str]] = set()
        kept = []
        for index, key in enumerate(zip(columns.sources, columns.ids, strict=True)):
            if found[index] is None and key not in seen:
                seen.add(key)
                kept.append(index)
        return kept

    def _await(self, request: AppendRequest, done: threading.Lock) -> AppendResult:
        """Submit a request whose context is that lock, and wait until the lock is released."""
        done.acquire()
        waits_until = 0.0
        while True:
            try:
                self.submit(request)
                break
            except Overloaded as error:
                if error.is_of_index:
                    waits_until = waits_until or time.monotonic() + INDEX_WAIT_S
                    if request.mark is not None or time.monotonic() >= waits_until:
                        raise
                self._await_room()
        done.acquire()
        if request.error is not None:
            raise request.error
        assert request.result is not None
        return request.result

    def read(
        self,
        query: Query = ALL,
        *,
        from_: int | None = None,
        after: int | None = None,
        backwards: bool = False,
        limit: int | None = None,
        partition: int | None = None,
    ) -> Reading:
        """See EventLog."""
        return PagedReading(self, query, self.selection(from_, after, backwards, limit, partition))

    def subscribe(self, query: Query = ALL, *, after: int | None = None, partition: int | None = None) -> Subscription:
        """See EventLog."""
        return LocalSubscription(self, query, self.selection(None, after, False, None, partition))

    def selection(
        self, from_: int | None, after: int | None, backwards: bool, limit: int | None, partition: int | None
    ) -> Selection:
        """The checked bounds of a read that starts now.

        Raises InvalidPosition, PositionTrimmed, PositionOfOtherIncarnation.
        """
        if from_ is not None and after is not None:
            raise InvalidPosition("give `from` (inclusive) or `after` (exclusive), not both", "from")
        if from_ is not None:
            _check_number("from", from_, 1)
        if after is not None:
            _check_number("after", after, 0)
        if limit is not None:
            _check_number("limit", limit, 0)
        if partition is not None:
            self._check_partition(partition)
        head = self.head()
        if backwards:
            if (position := after if from_ is None else from_) is not None:
                self.check_position(position)
            start = from_ + 1 if from_ is not None else head + 1 if after is None else after
            return Selection(min(start, head + 1), head, True, limit, partition)
        position = from_ if from_ is not None else None if after is None else after + 1
        if position is not None:
            self.check_position(position)
        return Selection((position or 1) - 1, head, False, limit, partition)

    def _check_bounds(self, condition: AppendCondition | None, partition: int | None) -> None:
        if condition is not None:
            check_condition(condition)
            for low, high in self.voids:
                if low <= condition.after < high:  # the highest number is this log's own head before its first event
                    raise PositionOfOtherIncarnation(condition.after, self.info().incarnation, high + 1)
        if partition is not None:
            self._check_partition(partition)

    def _check_partition(self, partition: int) -> None:
        count = self.settings.partitions
        if not isinstance(partition, int) or isinstance(partition, bool) or not 0 <= partition < count:
            raise InvalidPosition(f"expected 0 to {count - 1}, got {show(partition)}", "partition")

    def _await_room(self) -> None:
        woken = threading.Event()
        stop = self.watch(woken.set)
        try:
            woken.wait(0.1)
        finally:
            stop()


def _release_all(requests: list[AppendRequest]) -> None:
    for request in requests:
        request.context.release()  # type: ignore[attr-defined]


def _check_number(name: str, value: int, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= SEQUENCE_NUMBER_MAX:
        raise InvalidPosition(f"expected {low} to {SEQUENCE_NUMBER_MAX}, got {show(value)}", name)
