"""The event log: the protocol that the memory log, the stored log and the HTTP client implement.

A subscription catches up, then follows. It holds a cursor, never a queue of events.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, Protocol

from .closing import Closing
from .condition import AppendCondition
from .consumer import Consumer
from .errors import EventLogError
from .event import Event, SequencedEvent
from .limits import EventColumns
from .mark import Mark
from .query import ALL, Query
from .settings import LogSettings


class Subscription(Closing):
    """Iterate it for the events. At the end of the log it blocks until more arrive or it is closed."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        """Every event up to this number was seen, matching or not; resume here after an interruption. During iteration
        it is the event last returned."""
        self.is_closed = False
        self._came: Sequence[SequencedEvent] | None = None

    @abstractmethod
    def _next_events(self, timeout_s: float | None) -> Sequence[SequencedEvent] | None:
        """The events after `cursor`, which advances past them; empty after `timeout_s` without any, None at the end."""

    def poll(self, timeout_s: float | None = 0.0) -> Sequence[SequencedEvent]:
        """The next events, at most one page; empty if none arrive within `timeout_s` (None = wait forever)."""
        return self._next_events(timeout_s) or ()

    def __iter__(self) -> Iterator[SequencedEvent]:
        return chain.from_iterable(self._pages())

    def _pages(self) -> Iterator[Iterator[SequencedEvent]]:
        while True:
            yield iter(self._turn, None)  # not a generator: an error would end it, and the log would look deleted
            if self._came is None:
                return
            yield self._given(self._came)

    def _turn(self) -> None:
        self._came = self._next_events(None)

    def _given(self, events: Sequence[SequencedEvent]) -> Iterator[SequencedEvent]:
        reached = self.cursor
        for event in events:
            self.cursor = event.sequence_number
            yield event
        self.cursor = max(self.cursor, reached)

    def close(self) -> None:
        """End it: a waiting iteration stops."""
        self.is_closed = True


SECONDS_MAX = 16
"""The number of seconds kept, counting only seconds that had a value."""


class Peaks:
    """One thread adds; any thread may read. Each value costs one comparison."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, float]] = deque(maxlen=SECONDS_MAX)

    def add(self, second: int, value: float) -> None:
        """Add a value for that second, which is not before the previous one."""
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, value))
        elif value > self._seconds[-1][1]:
            self._seconds[-1] = second, value

    def since(self, second: int) -> float:
        """The largest value since that second, among those kept; 0 if there is none."""
        return max([value for at, value in list(self._seconds) if at >= second], default=0.0)


PAGE_EVENTS = 1000
PAGE_BYTES = 1024 * 1024
EVENT_BYTES = 128
"""The overhead counted for each event in a bounded page, in addition to its own bytes: about what JSON adds."""


class AppendResult(NamedTuple):
    """The result of an append: its events have the contiguous numbers `first` to `last`, durably."""

    first: int
    last: int
    was_stored: bool = False
    """True if a retry was recognised: these events had been appended before, or the mark was not ahead of its writer's
    mark. In the second case the numbers are those of the writer's newest batch so far, or 0 for an older batch."""


class LargeEvent(NamedTuple):
    """An event too large for a bounded page."""

    event: SequencedEvent
    """Without its data."""
    data: memoryview
    """Its data, in place in the storage, without a copy."""


class Page(NamedTuple):
    """One page of a read."""

    events: Sequence[SequencedEvent]
    cursor: int
    """Everything up to this number (backwards: down to it) is covered; the next page continues after it."""
    head: int
    """The number of the last durable event when the page was read; 0 in an empty log."""
    is_last: bool
    """Whether nothing is left after this page (within the requested bound)."""
    is_gated: bool = False
    """Whether all of its events are known to have passed all checks. Front ends that deliver messages and documents
    check the events of other pages: see `formats.stubs`."""
    large: LargeEvent | None = None
    """The event of a bounded page that consists of this one large event."""


@dataclass(frozen=True, slots=True)
class LogInfo:
    """A log's identity, settings and extent at one moment."""

    name: str
    incarnation: str
    """Identity of the log under its name: it changes when the log is deleted and recreated, or restored."""
    settings: LogSettings
    head: int
    """The number of the last durable event; 0 if there has never been one."""
    first_retained: int
    """The number from which events can be read; head + 1 if there are none."""
    events: int
    """The number of retained events."""
    bytes: int
    """Bytes used by its events: the used part of its files."""
    created_at: int
    """ms since 1970 UTC."""
    partition_events: tuple[int, ...] = ()
    """The number of retained events in each partition."""
    allocated_bytes: int = 0
    """The size of its event files on the storage, including preallocated space."""


@dataclass(slots=True)
class LogStatistics:
    """Counters of one log since it was opened, and its present queues. Shown in metrics."""

    appends: int = 0
    """Successful appends."""
    events_appended: int = 0
    bytes_appended: int = 0
    commits: int = 0
    """Group commits, each of one or more frames under one fsync."""
    fsync_seconds: float = 0.0
    """Total time in write and fsync."""
    fsync_seconds_max: float = 0.0
    fsync_peaks: Peaks = field(default_factory=Peaks)
    """The longest commit in each of the last seconds, by the monotonic clock."""
    conditions_failed: int = 0
    duplicates: int = 0
    refused: int = 0
    """Appends refused for other reasons (overload, full disk)."""
    events_read: int = 0
    queued_requests: int = 0
    queued_bytes: int = 0
    """Memory used by waiting appends: twice their bytes."""
    segments: int = 0
    writers: int = 0
    """Exactly-once writers that have not ended."""
    writers_max: int = 0
    """The limit above which new writers are refused; 0 if not known."""
    unindexed_bytes: int = 0
    """Memory of index entries that no index file contains yet."""
    clock_steps: int = 0
    """How often the wall clock was set back to before the last recorded_at."""


class Reading(Iterator[SequencedEvent], Protocol):
    """A read: iterate it for the events. `head` is known at once, so a decision needs one round trip."""

    @property
    def head(self) -> int:
        """The number of the last durable event when the read began."""


class ArrowBatch(Protocol):
    """Events in columns: a `pyarrow.RecordBatch`, or an object that exports one through Arrow's C data interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """The schema and the columns, as capsules (Arrow PyCapsule interface)."""


class EventLog(Protocol):
    """A durable, ordered log of events."""

    @property
    def name(self) -> str:
        """The log's name."""

    def info(self) -> LogInfo:
        """Its identity, settings and extent."""

    def append(
        self,
        events: Sequence[Event],
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
    ) -> AppendResult:
        """Append all events, atomically and durably, or none.

        An append whose events are all stored already (same ids, types, data and tags, one contiguous block) returns
        where they are, without checking the condition again: it can be retried after a lost answer.

        Raises InvalidEvent, TooLarge, InvalidPosition (no such partition), AppendConditionFailed, DuplicateEventId,
        ConditionNeedsTrimmedEvents, PositionOfOtherIncarnation (of the condition), Overloaded, DiskFull,
        SequenceExhausted, Closed.
        """

    def append_batch(
        self, batch: ArrowBatch, condition: AppendCondition | None = None, *, partition: int | None = None
    ) -> AppendResult:
        """Like `append`, for an Arrow batch whose columns are the fields of `Event`, with the same checks and errors.

        It creates no Python object per event, so thousands of events take less than half the CPU time. Only the columns
        `type` and `data` are required; null stands for a field's default (`formats.arrow.events.columns_of`).

        Also raises InvalidEvent for a schema that does not describe events, and for malformed Arrow.
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

        `from_` is inclusive, `after` exclusive, in the direction of reading; pass at most one of them. Raises
        InvalidQuery, InvalidPosition, PositionTrimmed (only for a given position), PositionOfOtherIncarnation.
        """

    def head(self) -> int:
        """The number of the last durable event; 0 in an empty log."""

    def subscribe(self, query: Query = ALL, *, after: int | None = None, partition: int | None = None) -> Subscription:
        """Catch up after that number (default: from the first retained event), then follow. Never skips or repeats.

        Raises the same errors as `read`.
        """

    def register_consumer(
        self, owner: str, component: str, *, after: int | None = None, drops_at_most: int = 0
    ) -> Consumer:
        """Register a reliable consumer, or take it over (raising its epoch).

        A new one starts after that number, by default at the present head; a known one keeps its position. Raises
        InvalidInput, InvalidPosition (above the head), and WouldDrop: if a log keeps events until they are
        acknowledged, its first consumer releases those before its start, more than `drops_at_most`.
        """

    def acknowledge(self, owner: str, component: str, sequence_number: int, *, epoch: int | None = None) -> Consumer:
        """Mark every event up to that number as processed, durably. A lower number than before changes nothing.

        Raises ConsumerNotFound, ConsumerFenced, InvalidPosition (above the head).
        """

    def reset_consumer(self, owner: str, component: str, after: int, *, drops_at_most: int = 0) -> Consumer:
        """Set a consumer's position, backward or forward.

        Raises ConsumerNotFound, InvalidPosition, and WouldDrop: retention would drop more events than `drops_at_most`.
        """

    def unregister_consumer(self, owner: str, component: str, *, drops_at_most: int = 0) -> None:
        """Remove a consumer; it no longer holds trimming back. Raises ConsumerNotFound, and WouldDrop as a reset."""

    def consumers(self) -> list[Consumer]:
        """All registered consumers, by owner and component."""

    def trim(self, below: int) -> int:
        """Drop the events numbered below that, as far as registered consumers allow; returns the first retained.

        Raises InvalidPosition (above head + 1).
        """


class AppendRequest:
    """One append on its way through a local log; `deliver` is called with it once `result` or `error` is set."""

    __slots__ = ("columns", "condition", "context", "deliver", "error", "held_bytes", "is_bulk", "mark", "partition",
                 "result")  # fmt: skip

    def __init__(
        self,
        columns: EventColumns,
        condition: AppendCondition | None,
        partition: int | None,
        deliver: Callable[[list[AppendRequest]], None],
        context: object = None,
        mark: Mark | None = None,
        is_bulk: bool = False,
    ) -> None:
        self.columns = columns
        self.condition = condition
        self.partition = partition
        self.deliver = deliver
        """Called once per commit, from the log's own thread, with all of its finished requests; must not block."""
        self.context = context
        self.mark = mark
        """The mark of an exactly-once writer; with it the columns may be empty."""
        self.is_bulk = is_bulk
        """Whether it belongs to a bulk load, which is refused first if the index falls behind."""
        self.held_bytes = 0
        """The bytes that the log counts for it while it waits."""
        self.result: AppendResult | None = None
        self.error: EventLogError | None = None


class Selection(NamedTuple):
    """The checked bounds of one read: the arguments of `read_page`, page after page."""

    after: int
    head: int
    backwards: bool
    limit: int | None
    partition: int | None
    upto: int | None = None
    """The last number in reading order, inclusive; None for the end of the log as of the read's start."""
