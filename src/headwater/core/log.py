"""The event log: the protocol that every room uses; the memory log, the stored log and the HTTP client all keep it.

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
    """Iterate it for the events; it blocks where the log has no more, until there are some or it is closed."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        """Everything up to this number was seen, whether it matched or not; where to resume after an interruption.
        While it is iterated, that is the event last given out."""
        self.is_closed = False
        self._came: Sequence[SequencedEvent] | None = None

    @abstractmethod
    def _next_events(self, timeout_s: float | None) -> Sequence[SequencedEvent] | None:
        """The events after `cursor`, which moves over them; empty after `timeout_s` without any, None at the end."""

    def poll(self, timeout_s: float | None = 0.0) -> Sequence[SequencedEvent]:
        """The events that follow, at most one page; empty if none come in `timeout_s` (None = wait for ever)."""
        return self._next_events(timeout_s) or ()

    def __iter__(self) -> Iterator[SequencedEvent]:
        return chain.from_iterable(self._pages())

    def _pages(self) -> Iterator[Iterator[SequencedEvent]]:
        while True:
            yield iter(self._turn, None)  # no generator asks: an error would end it, and the log look deleted
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
"""Seconds that had a value and are remembered."""


class Peaks:
    """One thread adds; any may look. It costs a comparison for each value."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, float]] = deque(maxlen=SECONDS_MAX)

    def add(self, second: int, value: float) -> None:
        """A value of that second, which is none before the last one's."""
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, value))
        elif value > self._seconds[-1][1]:
            self._seconds[-1] = second, value

    def since(self, second: int) -> float:
        """The largest value from that second on, as far as it is remembered; 0 if there was none."""
        return max([value for at, value in list(self._seconds) if at >= second], default=0.0)


PAGE_EVENTS = 1000
PAGE_BYTES = 1024 * 1024
EVENT_BYTES = 128
"""What an event counts in a bounded page besides its own bytes: about what JSON puts around it."""


class AppendResult(NamedTuple):
    """Where an append went: its events have the contiguous numbers `first` to `last`, durably."""

    first: int
    last: int
    was_stored: bool = False
    """True if a retry was recognised: these very events had been appended before, or the mark was not ahead of its
    writer's. Then the numbers are those of the writer's newest batch, as far as it got, or 0 for an older batch."""


class LargeEvent(NamedTuple):
    """An event that is too large for a bounded page."""

    event: SequencedEvent
    """Without its data."""
    data: memoryview
    """Its data, where it is stored: nothing of it was copied."""


class Page(NamedTuple):
    """A bounded piece of a read."""

    events: Sequence[SequencedEvent]
    cursor: int
    """Everything up to this number (backwards: down to it) is dealt with; the next page goes on after it."""
    head: int
    """The number of the last durable event when the page was read; 0 in an empty log."""
    is_last: bool
    """Whether nothing (below the bound that was asked for) is left after this page."""
    is_gated: bool = False
    """Whether all of its events are known to have passed all checks. Other pages are checked by front ends that hand on
    messages and documents: see `formats.stubs`."""
    large: LargeEvent | None = None
    """The one event of a bounded page that has no others."""


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
    """What its events take on its storage: that part of its files which is used."""
    created_at: int
    """ms since 1970 UTC."""
    partition_events: tuple[int, ...] = ()
    """How many retained events each partition has."""
    allocated_bytes: int = 0
    """What the files of its events take on its storage, with what was allocated ahead."""


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
    fsync_peaks: Peaks = field(default_factory=Peaks)
    """The longest of each of the last seconds, by the monotonic clock."""
    conditions_failed: int = 0
    duplicates: int = 0
    refused: int = 0
    """Appends refused for other reasons (overload, full disk)."""
    events_read: int = 0
    queued_requests: int = 0
    queued_bytes: int = 0
    """What waiting appends take in memory: twice their bytes."""
    segments: int = 0
    writers: int = 0
    """Exactly-once writers that have not ended."""
    writers_max: int = 0
    """New ones are refused above that; 0: not known."""
    unindexed_bytes: int = 0
    """Memory of index entries that are in no index file yet."""
    clock_steps: int = 0
    """How often the wall clock went back behind the last recorded_at."""


class Reading(Iterator[SequencedEvent], Protocol):
    """A read: iterate it for the events. `head` is known at once, so that a decision needs one round trip."""

    @property
    def head(self) -> int:
        """The number of the last durable event when the read began."""


class ArrowBatch(Protocol):
    """Events side by side: a `pyarrow.RecordBatch`, or what gives one by Arrow's C data interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """The schema and the columns, as capsules (Arrow PyCapsule interface)."""


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
        ConditionNeedsTrimmedEvents, PositionOfOtherIncarnation (of the condition), Overloaded, DiskFull,
        SequenceExhausted, Closed.
        """

    def append_batch(
        self, batch: ArrowBatch, condition: AppendCondition | None = None, *, partition: int | None = None
    ) -> AppendResult:
        """As `append`, of a batch of Arrow, whose columns are the fields of `Event`: with the same checks and errors.

        No Python object is made of an event, which takes less than half of the CPU where there are thousands. Only the
        columns `type` and `data` must be there; null is a field's default (`formats.arrow.events.columns_of`).

        Raises InvalidEvent besides, of a schema of which no events can be made, and of malformed Arrow.
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

    def register_consumer(
        self, owner: str, component: str, *, after: int | None = None, drops_at_most: int = 0
    ) -> Consumer:
        """Register a reliable consumer, or take it over (raising its epoch).

        A new one starts after that number, by default at the present head; a known one keeps its position.
        Raises InvalidInput, InvalidPosition (above the head), and WouldDrop: of a log that keeps events until they are
        acknowledged, the first consumer lets those before its start go, more than `drops_at_most`.
        """

    def acknowledge(self, owner: str, component: str, sequence_number: int, *, epoch: int | None = None) -> Consumer:
        """Everything up to that number is done with, durably. A lower number than before changes nothing.

        Raises ConsumerNotFound, ConsumerFenced, InvalidPosition (above the head).
        """

    def reset_consumer(self, owner: str, component: str, after: int, *, drops_at_most: int = 0) -> Consumer:
        """Set a consumer's position, back or forth.

        Raises ConsumerNotFound, InvalidPosition, and WouldDrop: retention would drop more events than `drops_at_most`.
        """

    def unregister_consumer(self, owner: str, component: str, *, drops_at_most: int = 0) -> None:
        """Forget a consumer; it holds trimming back no more. Raises ConsumerNotFound, and WouldDrop as a reset."""

    def consumers(self) -> list[Consumer]:
        """All registered consumers, by owner and component."""

    def trim(self, below: int) -> int:
        """Drop the events numbered below that, as far as registered consumers allow; answers the first retained.

        Raises InvalidPosition (above head + 1).
        """


class AppendRequest:
    """One append on its way through a local log; `deliver` gets it back when `result` or `error` is set."""

    __slots__ = ("columns", "condition", "context", "deliver", "error", "is_bulk", "mark", "partition", "result")

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
        """Of an exactly-once writer; with it the columns may be empty."""
        self.is_bulk = is_bulk
        """Whether it is part of a bulk load, which is refused first where the index does not keep up."""
        self.result: AppendResult | None = None
        self.error: EventLogError | None = None


class Selection(NamedTuple):
    """The checked bounds of one read: what `read_page` is asked for, page after page."""

    after: int
    head: int
    backwards: bool
    limit: int | None
    partition: int | None
    upto: int | None = None
    """The last number in the order of the read, inclusive; None: it goes to the end, that of its begin."""
