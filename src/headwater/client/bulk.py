"""Bulk append: many events in batches, resumable and repeatable, preparing the next batch while one is sent.

It works on any `core.EventLog`. The events must have stable ids.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from ..core.errors import DuplicateEventId, InvalidInput
from ..core.event import Event
from ..core.limits import METADATA_BYTES
from ..core.log import EventLog

BATCH_EVENTS = 1000
BATCH_BYTES = 4 * 1024 * 1024
BATCHES_AHEAD = 2
_EVENT_INDEX = re.compile(r"events\[(\d+)\]")


@dataclass(slots=True)
class BulkProgress:
    """The progress of a bulk append. Batches are appended in order, so everything before `events` is durable."""

    batches: int = 0
    appended: int = 0
    """New events."""
    stored: int = 0
    """Events that were already in the log, from an earlier run."""
    last: int = 0
    """The sequence number of the last batch's last event."""
    refused: int = 0
    """Events that break a rule and were left out."""

    @property
    def events(self) -> int:
        """All events processed."""
        return self.appended + self.stored + self.refused


def append_all(
    log: EventLog,
    events: Iterable[Event],
    *,
    partition: int | None = None,
    batch_events: int = BATCH_EVENTS,
    on_progress: Callable[[BulkProgress], object] = lambda progress: None,
    on_refused: Callable[[int, Event, InvalidInput], object] | None = None,
) -> BulkProgress:
    """Append all events in order, in batches of `batch_events` (fewer if they are large); each batch is atomic.

    Running it again with the same events adds nothing, and resumes where an interrupted run ended: it recognises a
    batch that is already in the log. If only part of a batch is there - the source grew, or the batch size changed - it
    is appended in ever smaller pieces. An event that comes twice is stored once, even in different batches.
    `on_refused` gets each event that breaks a rule, with its index in `events`, from another thread; the others are
    appended without it.

    Raises as `EventLog.append`, with the event's index in `events`; the events before it are appended.
    """
    progress = BulkProgress()
    sending = _Sending(log, partition, on_refused)
    on_the_way: deque[Future[_Piece]] = deque()

    def finish_one() -> None:
        piece = on_the_way.popleft().result()
        progress.batches += 1
        progress.appended += piece.appended
        progress.stored += piece.stored
        progress.refused += piece.refused
        progress.last = piece.last or progress.last
        on_progress(progress)

    with ThreadPoolExecutor(1, "bulk-append") as sender:
        try:
            for start, batch in _batches(events, batch_events):
                on_the_way.append(sender.submit(sending.send, batch, start))
                if len(on_the_way) > BATCHES_AHEAD:
                    finish_one()
            while on_the_way:
                finish_one()
        finally:
            sending.is_over = True
    return progress


def _batches(events: Iterable[Event], batch_events: int) -> Iterator[tuple[int, list[Event]]]:
    start, batch, bytes = 0, list[Event](), 0
    for event in events:
        event_bytes = METADATA_BYTES + len(event.data) + len(event.envelope)
        if batch and (len(batch) >= batch_events or bytes + event_bytes > BATCH_BYTES):
            yield start, batch
            start, batch, bytes = start + len(batch), [], 0
        batch.append(event)
        bytes += event_bytes
    if batch:
        yield start, batch


class _Piece(NamedTuple):
    appended: int
    stored: int
    last: int
    refused: int = 0


class _Sending:
    """The sending thread's work, batch after batch; it stops after a failure, so that no batch is skipped."""

    def __init__(
        self, log: EventLog, partition: int | None, on_refused: Callable[[int, Event, InvalidInput], object] | None
    ) -> None:
        self._log, self._partition, self._on_refused = log, partition, on_refused
        self.is_over = False

    def send(self, batch: list[Event], start: int) -> _Piece:
        """Append a batch; `start` is the index of its first event."""
        if self.is_over:
            raise CancelledError
        try:
            return self._append(batch, range(start, start + len(batch)))
        except BaseException:
            self.is_over = True
            raise

    def _append(self, batch: list[Event], places: Sequence[int]) -> _Piece:
        if not batch:
            return _Piece(0, 0, 0)
        try:
            result = self._log.append(batch, partition=self._partition)
            count = len(batch)
            return _Piece(0, count, result.last) if result.was_stored else _Piece(count, 0, result.last)
        except DuplicateEventId as error:
            if error.sequence_number is None:
                return self._repeated(batch, places, error.index)
            if len(batch) == 1:
                raise DuplicateEventId(error.id, error.source, error.sequence_number, places[0]) from None
        except InvalidInput as error:
            found = _EVENT_INDEX.match(error.where)
            if found is None:
                raise
            index = int(found[1])
            if self._on_refused is not None:
                return self._without(batch, places, index, error)
            self._append(batch[:index], places[:index])
            error.move(_EVENT_INDEX.sub(f"events[{places[index]}]", error.where, count=1))
            raise
        middle = len(batch) // 2
        first, second = self._append(batch[:middle], places[:middle]), self._append(batch[middle:], places[middle:])
        return _Piece(
            first.appended + second.appended,
            first.stored + second.stored,
            second.last or first.last,
            first.refused + second.refused,
        )

    def _repeated(self, batch: list[Event], places: Sequence[int], index: int) -> _Piece:
        """Append a batch with a repeated id: for the same event one of them, for different events those before the
        second.
        """
        seen: dict[tuple[str, str], Event] = {}
        kept = [at for at, event in enumerate(batch) if _is_new(event, seen)]
        if len(kept) < len(batch):
            piece = self._append([batch[at] for at in kept], [places[at] for at in kept])
            return piece._replace(stored=piece.stored + len(batch) - len(kept))
        self._append(batch[:index], places[:index])
        return self._append(batch[index:], places[index:])  # the log has its id now, and refuses it

    def _without(self, batch: list[Event], places: Sequence[int], index: int, error: InvalidInput) -> _Piece:
        """Append a batch without the refused event: those before it break no rule, and go with those after it."""
        assert self._on_refused is not None
        error.move(_EVENT_INDEX.sub("", error.where).removeprefix("."))
        self._on_refused(places[index], batch[index], error)
        piece = self._append([*batch[:index], *batch[index + 1 :]], [*places[:index], *places[index + 1 :]])
        return piece._replace(refused=piece.refused + 1)


def _is_new(event: Event, seen: dict[tuple[str, str], Event]) -> bool:
    """Whether it differs from the event seen with its source and id, as a log compares them."""
    first = seen.get((event.source, event.id)) if event.id else None
    if first is None:
        seen[event.source, event.id] = event
        return True
    return (first.type, first.data, set(first.tags)) != (event.type, event.data, set(event.tags))
