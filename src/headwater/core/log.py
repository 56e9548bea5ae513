"""The event log: the protocol that every room uses, and what a log inside this process adds to it.

`EventLog` is what a program needs; the memory log, the stored log and the HTTP client all keep it. `LocalLog` is a
log in this process: three primitives (`submit`, `read_page`, `watch`) from which the rest follows, here, once.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

from .condition import AppendCondition, check_condition
from .consumer import Consumer
from .errors import EventLogError, InvalidPosition, Overloaded
from .event import Event, SequencedEvent
from .limits import SEQUENCE_NUMBER_MAX, EventColumns, check_append, show
from .query import ALL, Query
from .settings import LogSettings
from .subscription import Subscription

PAGE_EVENTS = 1000
PAGE_BYTES = 1024 * 1024


class AppendResult(NamedTuple):
    """Where an append went: its events have the contiguous numbers `first` to `last`, durably."""

    first: int
    last: int
    was_stored: bool = False
    """True if a retry was recognised: these very events had been appended before."""


class Page(NamedTuple):
    """A bounded piece of a read."""

    events: Sequence[SequencedEvent]
    cursor: int
    """Everything up to this number (backwards: down to it) is dealt with; the next page goes on after it."""
    head: int
    """The number of the last durable event when the page was read; 0 in an empty log."""
    is_last: bool
    """Whether nothing (below the bound that was asked for) is left after this page."""


@dataclass(frozen=True, slots=True)
class LogInfo:
    """What is to be known of a log at one moment."""

    name: str
    incarnation: str
    """Identity of the log under its name: it changes when the log is deleted and recreated, or restored."""
    settings: LogSettings
    head: int
    """The number of the last durable event; 0 if there never was one."""
    first_retained: int
    """The number from which events can be read; head + 1 if there are none."""
    events: int
    """How many events are retained."""
    bytes: int
    """What the log takes on its storage."""
    created_at: int
    """ms since 1970 UTC."""
    partition_events: tuple[int, ...] = ()
    """How many retained events each partition has."""


@dataclass(slots=True)
class LogStatistics:
    """Counters of one log since it was opened, and its present queues. What metrics show."""

    appends: int = 0
    """Answered with success."""
    events_appended: int = 0
    bytes_appended: int = 0
    commits: int = 0
    """Group commits, each one or more frames under one fsync."""
    fsync_seconds: float = 0.0
    """Total time in write and fsync."""
    fsync_seconds_max: float = 0.0
    conditions_failed: int = 0
    duplicates: int = 0
    refused: int = 0
    """Appends refused for other reasons (overload, full disk)."""
    events_read: int = 0
    queued_requests: int = 0
    queued_bytes: int = 0
    segments: int = 0
    clock_steps: int = 0
    """How often the wall clock went back behind the last recorded_at."""


class Reading(Iterator[SequencedEvent], Protocol):
    """A read: iterate it for the events. `head` is known at once, so that a decision needs one round trip."""

    @property
    def head(self) -> int:
        """The number of the last durable event when the read began."""


class EventLog(Protocol):
    """A durable, ordered log of events."""

    @property
    def name(self) -> str:
        """The log's name."""

    def info(self) -> LogInfo:
        """Identity, settings, extent."""

    def append(
        self,
        events: Sequence[Event],
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
    ) -> AppendResult:
        """Append all events, atomically and durably, or none.

        An append whose events are all stored already (same ids, types, data and tags, one contiguous block) answers
        where they are, without looking at the condition again: so it can be repeated after a lost answer.

        Raises InvalidEvent, TooLarge, InvalidPosition (no such partition), AppendConditionFailed, DuplicateEventId,
        ConditionNeedsTrimmedEvents, Overloaded, DiskFull, SequenceExhausted, Closed.
        """

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
        """The matching events up to the present head, in order (or backwards, in reverse order).

        `from_` is inclusive, `after` exclusive, in the direction of reading; give one of them or none.
        Raises InvalidQuery, InvalidPosition, PositionTrimmed (only for a given position), PositionOfOtherIncarnation.
        """

    def head(self) -> int:
        """The number of the last durable event; 0 in an empty log."""

    def subscribe(self, query: Query = ALL, *, after: int | None = None, partition: int | None = None) -> Subscription:
        """Catch up after that number (default: from the first retained event), then follow. Never skips, never repeats.

        Raises as `read`.
        """

    def register_consumer(self, owner: str, component: str, *, after: int | None = None) -> Consumer:
        """Register a reliable consumer, or take it over (raising its epoch).

        A new one starts after that number, by default at the present head; a known one keeps its position.
        Raises InvalidInput, InvalidPosition (above the head).
        """

    def acknowledge(self, owner: str, component: str, sequence_number: int, *, epoch: int | None = None) -> Consumer:
        """Everything up to that number is done with. A lower number than before changes nothing.

        Raises ConsumerNotFound, ConsumerFenced, InvalidPosition (above the head).
        """

    def reset_consumer(self, owner: str, component: str, after: int) -> Consumer:
        """Set a consumer's position, back or forth. Raises ConsumerNotFound, InvalidPosition."""

    def unregister_consumer(self, owner: str, component: str) -> None:
        """Forget a consumer; it holds trimming back no more. Raises ConsumerNotFound."""

    def consumers(self) -> list[Consumer]:
        """All registered consumers, by owner and component."""

    def trim(self, below: int) -> int:
        """Drop the events numbered below that, as far as registered consumers allow; answers the first retained.

        Raises InvalidPosition (above head + 1).
        """


class AppendRequest:
    """One append on its way through a local log; `deliver` gets it back when `result` or `error` is set."""

    __slots__ = ("columns", "condition", "context", "deliver", "error", "partition", "result")

    def __init__(
        self,
        columns: EventColumns,
        condition: AppendCondition | None,
        partition: int | None,
        deliver: Callable[[list[AppendRequest]], None],
        context: object = None,
    ) -> None:
        self.columns = columns
        self.condition = condition
        self.partition = partition
        self.deliver = deliver
        """Called once per commit, from the log's own thread, with all of its finished requests; must not block."""
        self.context = context
        self.result: AppendResult | None = None
        self.error: EventLogError | None = None


class LocalLog(ABC):
    """A log in this process: an `EventLog` whose subclasses keep three primitives and the consumers.

    All methods may be called from any thread; `submit`, `read_page` and `watch` do not block, so that an event loop
    may call them (see `core.asynchronous`).
    """

    name: str
    settings: LogSettings
    _statistics: LogStatistics

    @abstractmethod
    def submit(self, request: AppendRequest) -> None:
        """Take an append; it is answered through `request.deliver`, once it is durable or refused.

        Raises Overloaded and Closed at once, and InvalidPosition for a partition that is not there.
        """

    @abstractmethod
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
    ) -> Page:
        """At most `limit` matching events and about `bytes_max` payload bytes after `after`, up to `upto`.

        `upto` (inclusive) defaults to the durable head. Backwards, events numbered below `after` come in descending
        order, down to `upto` (default: the first retained). A position below the first retained event is moved up to
        it silently: `check_position` is for a position that a caller gave. The query must be checked.
        """

    @abstractmethod
    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each commit and at the close, from the log's thread; it must not block.

        Answers a callable that stops it.
        """

    @abstractmethod
    def head(self) -> int:
        """The number of the last durable event; 0 in an empty log."""

    @abstractmethod
    def check_position(self, position: int) -> None:
        """Raises PositionTrimmed or PositionOfOtherIncarnation if reading cannot begin at that number."""

    @abstractmethod
    def sequence_number_at(self, recorded_at: int) -> int:
        """The number of the first retained event recorded at that time (ms) or later; head + 1 if there is none."""

    @abstractmethod
    def info(self) -> LogInfo:
        """See EventLog."""

    @property
    def statistics(self) -> LogStatistics:
        """The counters of this log; live, not to be changed by the caller."""
        return self._statistics

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the log takes and serves nothing any more."""

    @abstractmethod
    def register_consumer(self, owner: str, component: str, *, after: int | None = None) -> Consumer:
        """See EventLog."""

    @abstractmethod
    def acknowledge(self, owner: str, component: str, sequence_number: int, *, epoch: int | None = None) -> Consumer:
        """See EventLog."""

    @abstractmethod
    def reset_consumer(self, owner: str, component: str, after: int) -> Consumer:
        """See EventLog."""

    @abstractmethod
    def unregister_consumer(self, owner: str, component: str) -> None:
        """See EventLog."""

    @abstractmethod
    def consumers(self) -> list[Consumer]:
        """See EventLog."""

    @abstractmethod
    def trim(self, below: int) -> int:
        """See EventLog."""

    def request(
        self,
        events: Sequence[Event],
        condition: AppendCondition | None,
        partition: int | None,
        deliver: Callable[[list[AppendRequest]], None],
        context: object = None,
    ) -> AppendRequest:
        """A checked request to `submit`. Raises what the caller did wrong: InvalidEvent, TooLarge, InvalidPosition."""
        if condition is not None:
            check_condition(condition)
        if partition is not None:
            self._check_partition(partition)
        return AppendRequest(check_append(events, self.settings), condition, partition, deliver, context)

    def append(
        self,
        events: Sequence[Event],
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
    ) -> AppendResult:
        """See EventLog. Blocks until the events are durable; waits where `submit` would be overloaded."""
        done = threading.Lock()
        done.acquire()
        request = self.request(events, condition, partition, _release_all, done)
        while True:
            try:
                self.submit(request)
                break
            except Overloaded:
                self._await_commit()
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
        """The checked bounds of a read that begins now.

        Raises InvalidPosition, PositionTrimmed, PositionOfOtherIncarnation.
        """
        if from_ is not None and after is not None:
            raise InvalidPosition("give `from` (inclusive) or `after` (exclusive), not both", "from")
        for name, value, low in (("from", from_, 1), ("after", after, 0), ("limit", limit, 0)):
            if value is not None:
                _check_number(name, value, low)
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

    def _check_partition(self, partition: int) -> None:
        count = self.settings.partitions
        if not isinstance(partition, int) or isinstance(partition, bool) or not 0 <= partition < count:
            raise InvalidPosition(f"{show(partition)} given, 0 to {count - 1} is allowed", "partition")

    def _await_commit(self) -> None:
        woken = threading.Event()
        with self.waking(woken.set):
            woken.wait(0.1)

    def waking(self, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """`watch` for the length of a with-block."""
        return _Watching(self, wake)


class Selection(NamedTuple):
    """The checked bounds of one read: what `read_page` is asked for, page after page."""

    after: int
    head: int
    backwards: bool
    limit: int | None
    partition: int | None


class PagedReading:
    """A read of a local log, page by page, so that a slow consumer holds one page at most."""

    def __init__(self, log: LocalLog, query: Query, selection: Selection) -> None:
        self.head = selection.head
        self._events = chain.from_iterable(page.events for page in read_pages(log, query, selection))

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self._events

    def __next__(self) -> SequencedEvent:
        return next(self._events)


def read_pages(log: LocalLog, query: Query, selection: Selection) -> Iterator[Page]:
    """The pages of a read, bounded by the head at its begin and by its limit."""
    cursor, left = selection.after, selection.limit
    upto = None if selection.backwards else selection.head
    while left is None or left > 0:
        page = log.read_page(
            query,
            cursor,
            upto=upto,
            backwards=selection.backwards,
            partition=selection.partition,
            limit=PAGE_EVENTS if left is None else min(left, PAGE_EVENTS),
        )
        cursor = page.cursor
        left = None if left is None else left - len(page.events)
        yield page
        if page.is_last:
            return


class LocalSubscription(Subscription):
    """One loop of bounded reads at a cursor, up to the durable head; between them it sleeps until a commit."""

    def __init__(self, log: LocalLog, query: Query, selection: Selection) -> None:
        super().__init__(selection.after)
        self._log, self._query, self._partition = log, query, selection.partition
        self._woken = threading.Event()
        self._stop = log.watch(self._woken.set)

    def _next_events(self, timeout_s: float | None) -> Sequence[SequencedEvent] | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_closed:
            self._woken.clear()
            page = self._log.read_page(self._query, self.cursor, partition=self._partition)
            self.cursor = max(self.cursor, page.cursor)
            if page.events:
                return page.events
            if not page.is_last:
                continue
            if self._log.is_closed:
                return None
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return ()
            self._woken.wait(left)
        return None

    def close(self) -> None:
        """End it: a waiting iteration stops."""
        super().close()
        self._stop()
        self._woken.set()


class _Watching:
    def __init__(self, log: LocalLog, wake: Callable[[], None]) -> None:
        self._log, self._wake = log, wake

    def __enter__(self) -> None:
        self._stop = self._log.watch(self._wake)

    def __exit__(self, *exc_info: object) -> None:
        self._stop()


def _release_all(requests: list[AppendRequest]) -> None:
    for request in requests:
        request.context.release()  # type: ignore[attr-defined]


def _check_number(name: str, value: int, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= SEQUENCE_NUMBER_MAX:
        raise InvalidPosition(f"{show(value)} given, {low} to {SEQUENCE_NUMBER_MAX} is allowed", name)
