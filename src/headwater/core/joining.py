"""Single events that come in one turn of the event loop, appended together: one request to the log for all of them.

Many peers append one event at a time. What an append costs besides its event (a request, its way through two threads,
an answer) is then paid once for all that came in a turn. Each event has its own end all the same: where they cannot be
appended together, because of one of them, each is appended by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from .asynchronous import AsyncLog
from .errors import DuplicateEventId, EventLogError, InvalidInput, Overloaded
from .event import Event
from .log import AppendResult

JOINED_EVENTS_MAX = 512
JOINED_BYTES_MAX = 256 * 1024
"""Of their data. Whatever reaches one of both is appended at once, so that none waits behind very much."""
_OF_ONE = (InvalidInput, DuplicateEventId, Overloaded)
"""What may hold for one of several events, or for all of them together, but not for each."""

Told = Callable[[AppendResult | BaseException], None]
"""Takes where one event went, and whether it was stored before, or why it has no number."""


class Joining:
    """The way into one log for single events, on one event loop. They keep the order in which they came.

    But where an event of those that were appended together has an id that the log knows, they are appended once more,
    behind what came meanwhile. Who sends on before it has an answer therefore lets such events go alone.
    """

    def __init__(self, log: AsyncLog) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._events: list[Event] = []
        self._ends: list[Told] = []
        self._bytes = 0
        self._is_spread = log.log.settings.partitions > 1
        """Whether the log gives each append another partition: then one of several events is no even share."""

    def append(self, event: Event, *, alone: bool = False) -> asyncio.Future[AppendResult]:
        """Append an event by the end of this turn of the loop. The future is where it went, or an EventLogError.

        `alone` is for one that the log may know: it costs no other event its place. The event is appended even if
        nobody waits for the future any more.
        """
        end: asyncio.Future[AppendResult] = self._loop.create_future()
        self.append_telling(event, partial(settle, end), alone=alone)
        return end

    def append_telling(self, event: Event, told: Told, *, alone: bool = False) -> None:
        """As `append`, for who has something short to do when it is over, and no use for a future and its turn."""
        if alone or self._is_spread:
            self._append_all()
            self._begin([event], [told])
            return
        if not self._events:
            self._loop.call_soon(self._append_all)
        self._events.append(event)
        self._ends.append(told)
        self._bytes += len(event.data)
        if self._bytes >= JOINED_BYTES_MAX or len(self._events) >= JOINED_EVENTS_MAX:
            self._append_all()

    def _append_all(self) -> None:
        if self._events:
            events, ends = self._events, self._ends
            self._events, self._ends, self._bytes = [], [], 0
            self._begin(events, ends)

    def _begin(self, events: list[Event], ends: list[Told]) -> None:
        try:
            append = self._log.submit(events)
        except EventLogError as error:
            self._failed(events, ends, error)
        else:
            append.add_done_callback(lambda append: self._ended(events, ends, append))

    def _ended(self, events: list[Event], ends: list[Told], append: asyncio.Future[AppendResult]) -> None:
        if (error := append.exception()) is not None:
            self._failed(events, ends, error)
            return
        first, _, was_stored = append.result()
        for number, end in enumerate(ends, first):
            self._tell(end, AppendResult(number, number, was_stored))

    def _failed(self, events: list[Event], ends: list[Told], error: BaseException) -> None:
        if len(events) > 1 and isinstance(error, _OF_ONE):
            for event, end in zip(events, ends, strict=True):
                self._begin([event], [end])
            return
        for end in ends:
            self._tell(end, error)

    def _tell(self, end: Told, outcome: AppendResult | BaseException) -> None:
        try:
            end(outcome)
        except Exception as error:  # a fault in one of them is none of the others'
            self._loop.call_exception_handler({"message": "an append could not be answered", "exception": error})


def settle(end: asyncio.Future[AppendResult], outcome: AppendResult | BaseException) -> None:
    """Tell a future what an append came to, if anybody still waits for it."""
    if end.done():
        return  # who asked for it has gone
    if isinstance(outcome, BaseException):
        end.set_exception(outcome)
    else:
        end.set_result(outcome)
