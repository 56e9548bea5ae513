"""Marks: how a writer that retries after a failure gets each of its batches into a log exactly once.

A writer has a name and numbers its batches in ascending order. An append that carries a mark is accepted only if the
mark is ahead of the log's state of that writer; it becomes durable together with the events. A batch may take several
appends: each mark says how many of the batch's rows have been consumed with it, and the last one ends the batch. Such a
batch may also be staged first, in parts stored next to the log, and then committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .errors import InvalidInput
from .limits import show

WRITER_CHARS_MAX = 256
BATCH_MAX = 2**63 - 1
"""Limit for numbers of batches and rows. A writer of a single batch uses this number, so that no batch can follow."""


class Mark(NamedTuple):
    """The mark of an append by an exactly-once writer."""

    writer: str
    """1 to 256 printable characters, unique in the log."""
    batch: int
    """0 or more; a writer's next batch has a higher number."""
    rows: int
    """The number of rows of the batch consumed up to and including this append (also rows left out as duplicates)."""
    is_last: bool
    """Whether this append completes the batch."""


@dataclass(frozen=True, slots=True)
class WriterState:
    """A writer's state in a log: its newest batch, as far as it is durable."""

    writer: str
    batch: int
    rows: int
    """Consumed rows of that batch."""
    first: int
    """Number of the batch's first event; 0 if it has none (yet)."""
    last: int
    """Number of its last event so far; 0 if it has none."""
    events: int
    """The number of its events so far. Events of other appends may lie between them."""
    is_complete: bool

    @property
    def is_ended(self) -> bool:
        """Whether its newest batch is complete and the last possible one: the writer can only repeat a request."""
        return self.is_complete and self.batch == BATCH_MAX

    def is_behind(self, mark: Mark, count: int) -> bool:
        """Whether an append of `count` events with that mark adds anything: a later batch, or more of this one."""
        if mark.batch != self.batch:
            return mark.batch > self.batch
        if self.is_complete:
            return False
        return mark.rows > self.rows or (mark.rows == self.rows and mark.is_last and not count)


@dataclass(frozen=True, slots=True)
class Staged:
    """A part of a batch that is staged durably; `stage` is its name for the commit."""

    stage: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch that is in the log."""

    first: int
    """Number of its first event; 0 if it has none, or if it is older than the writer's newest."""
    last: int
    """Number of its last event; 0 in the same cases."""
    events: int
    skipped: int = 0
    """Rows left out because their ids were stored already."""
    was_applied: bool = False
    """Whether it was already complete before this call."""


def advanced(state: WriterState | None, mark: Mark, first: int, count: int) -> WriterState:
    """The writer's state after an append with that mark, whose `count` events are numbered from `first` on."""
    goes_on = state is not None and state.batch == mark.batch
    begin, end, events = (state.first, state.last, state.events) if state is not None and goes_on else (0, 0, 0)
    if count:
        begin, end, events = begin or first, first + count - 1, events + count
    return WriterState(mark.writer, mark.batch, mark.rows, begin, end, events, mark.is_last)


def check_mark(mark: Mark, count: int) -> None:
    """Raises InvalidInput if a mark is malformed, or has no events although it is not the last of its batch."""
    check_writer(mark.writer, "mark.writer")
    for name, value in (("batch", mark.batch), ("rows", mark.rows)):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= BATCH_MAX:
            raise InvalidInput(f"expected 0 to {BATCH_MAX}, got {show(value)}", f"mark.{name}")
    if not isinstance(mark.is_last, bool):
        raise InvalidInput(f"expected true or false, got {show(mark.is_last)}", "mark.is_last")
    if not count and not mark.is_last:
        raise InvalidInput("an append without events requires a mark that ends its batch", "mark.is_last")


def check_writer(writer: str, where: str = "writer") -> None:
    """Raises InvalidInput if the name is not valid for an exactly-once writer."""
    if not isinstance(writer, str) or not 1 <= len(writer) <= WRITER_CHARS_MAX or not writer.isprintable():
        problem = f"expected 1 to {WRITER_CHARS_MAX} printable characters, got {show(writer)}"
        raise InvalidInput(problem, where)
