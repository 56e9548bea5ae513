"""Commits of an event loop: it judges the appends of its turn itself, and a background thread makes them durable.

Each hand-over to another thread of Python costs a busy loop more than judging a small append: the thread needs the
interpreter lock, which the loop releases and takes again around each of its callbacks. So the loop does the short part:
it judges and encodes a group, and begins to write it. The end of the write wakes the loop, which publishes the new
head, begins the next group with the appends of the meantime, and answers.

All else belongs to the committer: marks, ids that may be known, conditions about many events, large groups, and
everything while anything else is under way. The thread that wants to judge first lands the group that is being written.
"""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from collections import deque
from contextlib import suppress

from ...core.errors import EventLogError, OutcomeUnknown
from ...core.log import AppendRequest
from ..disk.background_writer import BackgroundWriter
from ..disk.locks import LockLostMeanwhile
from ..segments.segment_log import SegmentLog
from .sequencer import Flight, Sequencer


class LoopCommits:
    """The appends of one event loop to one log in local files."""

    def __init__(self, sequencer: Sequencer, frames: SegmentLog) -> None:
        self._sequencer, self._frames = sequencer, frames
        self._loop: AbstractEventLoop | None = None
        self._writer: BackgroundWriter | None = None
        self._is_due = False
        """Whether the loop is about to `_go_on`."""
        self._waiting: deque[AppendRequest] = deque()
        """Appends not judged yet; guarded by the sequencer's `admission`."""
        self._flight: Flight | None = None
        """The group that is being written; guarded by the sequencer's `turn`, as `_began`."""
        self._began = 0.0

    def attach(self, loop: AbstractEventLoop) -> bool:
        """Take the appends of that loop, the running one; False if the log takes those of another."""
        with self._sequencer.admission:
            if self._loop is None or self._loop.is_closed():
                self._loop = loop
                if self._writer is not None:
                    loop.add_reader(self._writer.ended, self._go_on)
            return self._loop is loop

    def submit(self, request: AppendRequest) -> None:
        """Like `Sequencer.submit`, on the attached loop: the append is judged after the callbacks of this turn."""
        self._sequencer.submit(request, self._waiting)
        if self._flight is None and not self._is_due:  # otherwise the thread that lands the flight looks for it
            assert self._loop is not None
            self._is_due = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Land the group that was written, begin the next, and answer the first meanwhile."""
        self._is_due = False
        sequencer = self._sequencer
        try:
            if not sequencer.turn.acquire(blocking=False):  # the committer lands the flight
                sequencer.take_over(self._waiting)
                return
            try:
                answered = [] if self._flight is None else self._land()
                while self._flight is None and self._waiting:
                    answered += self._begin(len(answered))
            finally:
                sequencer.turn.release()
            if answered:
                sequencer.answer(answered)
        except BaseException as error:
            sequencer.broken(error)

    def yield_turn(self) -> list[AppendRequest]:
        """Land the flight and hand over the waiting appends: the caller has the turn, and answers the result."""
        landed = self._land(waits=True)
        if self._waiting:
            self._sequencer.take_over(self._waiting)
        return landed

    def _land(self, *, waits: bool = False) -> list[AppendRequest]:
        """Publish the group that was being written, if it is durable, and return it. Raises OSError."""
        flight, sequencer = self._flight, self._sequencer
        if flight is None or self._writer is None or flight.frame is None:
            return []
        try:
            if not self._writer.has_ended(waits=waits):
                return []
            self._frames.end_frame(flight.frame)
        except LockLostMeanwhile:
            self._flight = None
            sequencer.ground([flight], OutcomeUnknown(sequencer.name))
            return []
        except OSError as error:
            self._flight = None
            sequencer.fail(error)
        self._flight = None
        sequencer.landed(flight.frame, self._began, has_turn=True)
        return flight.requests

    def _begin(self, unanswered: int) -> list[AppendRequest]:
        """Judge a group of the waiting appends and begin to write it, or hand all of them over.

        Returns the group if all of it is refused. `unanswered`: how many appends have landed and are not answered.
        """
        sequencer = self._sequencer
        writer = self._writer or self._opened_writer()
        flight = None if writer is None else sequencer.judged_briefly(self._waiting, unanswered)
        if writer is None or flight is None:
            sequencer.take_over(self._waiting)
            return []
        if flight.frame is None:
            return flight.requests
        self._began = time.monotonic()
        is_begun = False
        with suppress(EventLogError):  # raised again, and handled, by the sequencer's own writer
            is_begun = self._frames.begin_frame(flight.frame, writer)
        if is_begun:
            self._flight = flight
        else:
            sequencer.hand_to_writer(flight)
            sequencer.take_over(self._waiting)
        return []

    def _opened_writer(self) -> BackgroundWriter | None:
        """A new writer; None if the system refuses it, or the disk has none."""
        with suppress(OSError):  # no descriptor or no thread is left: the committer writes, until the next turn
            self._writer = self._frames.background_writer()
        if self._writer is not None and self._loop is not None:
            self._loop.add_reader(self._writer.ended, self._go_on)
        return self._writer

    def close(self) -> None:
        """Land the flight and hand over the waiting appends; nothing more is submitted."""
        with self._sequencer.turn:
            answered = self.yield_turn()
            writer, self._writer = self._writer, None
        if answered:
            self._sequencer.answer(answered)
        if writer is None:
            return
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._forget, self._loop, writer)
        except RuntimeError:  # the loop is closed
            writer.close()

    @staticmethod
    def _forget(loop: AbstractEventLoop, writer: BackgroundWriter) -> None:
        loop.remove_reader(writer.ended)
        writer.close()
