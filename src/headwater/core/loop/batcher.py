"""The only way for appends from one event loop into one log: gathers, joins, splits and answers them.

A request costs the log as much as several events, and each wake of its threads takes the interpreter from the loop. So
the unit of work is a turn of the loop: all appends of one turn go to the log at its end. A log that judges on the loop
(`LocalLog.submit_on`) gathers a turn itself: it gets each request at once, and each joint append when it is complete.

    call                             joined with                    goes to the log            refused
    -------------------------------  -----------------------------  -------------------------  ----------------------
    `append`: all or none            nothing                        at the end of the turn     as a whole
    `join`: one event                the open joint append          at the end of the turn,    event by event, if one
    `open`, `grown`: columns, added  (one of its kind and           or when it is full         event may be at fault
      by the owners of the events    partition)
    `add`: a joint append, complete  nothing                        at the end of the turn     the same

Rules:

1. *Order.* Appends go to the log in the order of the calls. The one exception: events of a joint append that the log
   refuses after accepting it are appended again, behind later ones. So a caller that sends more events before it
   receives an answer must send separately any event that the log may already contain.
2. *One hand-over per turn*, and one wake of the loop for everything that one commit answers. A full joint append
   (`EVENTS_MAX`, `BYTES_MAX`) is handed over at once, with all appends before it, so that none waits behind a large
   amount of work.
3. *No even share is lost.* A log that assigns the next partition to each append gets each share of a joint append
   separately.
4. *Splitting.* An error that may apply to one of several events, or to all together but not to each (`_OF_ONE`),
   splits a joint append into appends of one event. Each then succeeds or fails by itself.
5. *Each share has one outcome.* An exception in one callback does not affect the others.
6. *Room.* If the log has no room, an append is refused with Overloaded; or it waits, with all appends behind it, until
   `retry`.

Appends of several loops and threads are gathered once more below this, under one sync of the disk: by the storage's
sequencer, which knows requests, not events.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from ..condition import AppendCondition
from ..errors import DuplicateEventId, InvalidInput, Overloaded
from ..event import Event
from ..limits import EventColumns, check_append
from ..local import LocalLog
from ..log import AppendRequest, AppendResult
from ..settings import LogSettings
from .traffic import Traffic

EVENTS_MAX = 256
BYTES_MAX = 256 * 1024
"""Limits of a joint append: when it reaches either limit, it is appended at once."""
_OF_ONE = (InvalidInput, DuplicateEventId, Overloaded)

Outcome = AppendResult | BaseException
"""Where events went, and whether they were stored before; or why they were not appended."""
Ended = Callable[[Outcome], None]
"""Receives an outcome, on the loop."""


class Joint(Protocol):
    """Independent events that are appended together."""

    @property
    def partition(self) -> int | None:
        """The partition of all of them; None if the log chooses."""

    @property
    def count(self) -> int:
        """The number of events in it."""

    @property
    def bytes(self) -> int:
        """Their approximate size."""

    def columns(self, settings: LogSettings) -> EventColumns:
        """The events, checked by the log's settings. Raises InvalidInput."""

    def outcomes(self, outcome: Outcome) -> Iterable[tuple[Ended, Outcome]]:
        """Each owner's callback, with its part of an outcome of all."""

    def apart(self) -> Sequence[Joint] | None:
        """The same events as joint appends of one event each, in order; None if this has only one event."""


J = TypeVar("J", bound=Joint)


class _Singles:
    """Single events."""

    __slots__ = ("_ends", "bytes", "count", "events", "partition")

    def __init__(self, partition: int | None = None) -> None:
        self.partition = partition
        self.events: list[Event] = []
        self._ends: list[Ended] = []
        self.bytes = self.count = 0

    def take(self, event: Event, ended: Ended) -> None:
        self.events.append(event)
        self._ends.append(ended)
        self.bytes += len(event.data)
        self.count += 1

    def columns(self, settings: LogSettings) -> EventColumns:
        return check_append(self.events, settings.event_bytes_max)

    def outcomes(self, outcome: Outcome) -> Iterable[tuple[Ended, Outcome]]:
        if isinstance(outcome, BaseException):
            return [(ended, outcome) for ended in self._ends]
        first, _, was_stored = outcome
        return [(ended, AppendResult(number, number, was_stored)) for number, ended in enumerate(self._ends, first)]

    def apart(self) -> Sequence[Joint] | None:
        if self.count == 1:
            return None
        return [_single(event, ended) for event, ended in zip(self.events, self._ends, strict=True)]


class AppendBatcher:
    """All appends of one event loop into one log. Create and use it on that loop."""

    def __init__(self, log: LocalLog, *, traffic: Traffic | None = None, waits_for_room: bool = False) -> None:
        """`traffic` counts the appended events; `waits_for_room`: see rule 6."""
        self._log, self._traffic, self._waits_for_room = log, traffic, waits_for_room
        self._loop = asyncio.get_running_loop()
        submit_here = log.submit_on(self._loop)
        self._submit = submit_here or log.submit
        self._judging = None if submit_here is None else threading.get_ident()
        """The thread of the loop, if the log gathers, judges and answers in callbacks of it."""
        self._open: Joint | None = None
        """The joint append to which this turn adds single events and columns."""
        self._gathered: list[AppendRequest] = []
        """Appends of this turn, in order, for a log that does not gather them itself."""
        self._waiting: deque[AppendRequest] = deque()
        """Appends waiting for room in the log."""
        self._is_due = False
        self._is_spread = log.settings.partitions > 1

    def append(
        self,
        events: Sequence[Event],
        ended: Ended,
        condition: AppendCondition | None = None,
        partition: int | None = None,
    ) -> None:
        """Append all of the events, or none. Raises the events' errors at once, as `LocalLog.request`."""
        self._gather(self._log.request(events, condition, partition, self._deliver, ended))

    def append_columns(
        self,
        columns: EventColumns,
        ended: Ended,
        condition: AppendCondition | None = None,
        partition: int | None = None,
    ) -> None:
        """Like `append`, for checked columns. Raises the same errors as `LocalLog.request_columns`."""
        self._gather(self._log.request_columns(columns, condition, partition, self._deliver, ended))

    def join(self, event: Event, ended: Ended, *, alone: bool = False) -> None:
        """Append one event, with others of this turn. It is appended even if its caller was cancelled.

        Set `alone` for an event that the log may already contain, so that no other event loses its place.
        """
        if alone:
            self.add(_single(event, ended))
        else:
            self.open(_Singles, None).take(event, ended)
            self.grown()

    def open(self, kind: Callable[[int | None], J], partition: int | None) -> J:
        """The open joint append of that class for that partition: add events to it, then call `grown`."""
        joint = self._open
        if joint is None or joint.__class__ is not kind or joint.partition != partition:
            self._close()
            self._open = opened = kind(partition)
            self._end_soon()
            return opened
        return joint  # type: ignore[return-value]

    def grown(self) -> None:
        """The open joint append has one more share."""
        joint = self._open
        assert joint is not None
        if self._is_spread and joint.partition is None:
            self._close()
        elif joint.count >= EVENTS_MAX or joint.bytes >= BYTES_MAX:
            self.flush()

    def add(self, joint: Joint) -> None:
        """Append events that have already been joined."""
        if self._open is not None:
            self._close()
        try:
            columns = joint.columns(self._log.settings)
            request = self._log.request_columns(columns, None, joint.partition, self._deliver, joint)
        except Exception as error:  # as in `_is_taken`
            self._refuse(joint, error)
        else:
            self._gather(request)

    def flush(self) -> None:
        """Hand the gathered appends to the log; called at the end of a turn, or earlier."""
        try:
            if self._open is not None:
                self._close()  # while the end of the turn is still scheduled, so that it is not scheduled twice
            while self._gathered:
                gathered, self._gathered = self._gathered, []
                for index, request in enumerate(gathered):
                    if self._waiting or not self._is_taken(request):
                        self._waiting.append(request)
                    elif self._gathered:  # it was refused and split: its events go before those behind it
                        self._gathered += gathered[index + 1 :]
                        break
        finally:
            self._is_due = False

    def retry(self) -> None:
        """The log may have room: hand over the waiting appends. Call it when the log commits."""
        while self._waiting and self._is_taken(self._waiting[0]):
            self._waiting.popleft()

    def _close(self) -> None:
        joint, self._open = self._open, None
        if joint is not None and joint.count:
            self.add(joint)

    def _gather(self, request: AppendRequest) -> None:
        if self._open is not None:
            self._close()
        if self._judging is None:
            self._gathered.append(request)
            self._end_soon()
        elif self._waiting or not self._is_taken(request):
            self._waiting.append(request)

    def _end_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.flush)

    def _is_taken(self, request: AppendRequest) -> bool:
        """Submit; returns False if the request must wait for room."""
        try:
            self._submit(request)
        except Exception as error:  # whatever the error is, its caller receives it, and the others continue
            if self._waits_for_room and isinstance(error, Overloaded):
                return False
            self._refuse(request.context, error)  # type: ignore[arg-type]
        return True

    def _refuse(self, owner: Joint | Ended, error: Exception) -> None:
        """Divide the events, or report the error later: the caller is still on the stack."""
        if not self._is_divided(owner, error):
            self._loop.call_soon(self._end, [(owner, error)] if callable(owner) else owner.outcomes(error))

    def _is_divided(self, owner: Joint | Ended, error: BaseException) -> bool:
        """If one of several refused events may be at fault, append each by itself."""
        if callable(owner) or not isinstance(error, _OF_ONE) or (parts := owner.apart()) is None:
            return False
        for part in parts:
            self.add(part)
        return True

    def _end(self, outcomes: Iterable[tuple[Ended, Outcome]]) -> None:
        for ended, outcome in outcomes:
            try:
                ended(outcome)
            except Exception as error:
                self._loop.call_exception_handler({"message": "an append could not be answered", "exception": error})

    def _deliver(self, requests: list[AppendRequest], is_soon: bool = True) -> None:
        """Called by the log, from a thread of its own or as `LocalLog.submit_on` says."""
        if is_soon and threading.get_ident() != self._judging:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._deliver, requests, False)
            return
        if self._traffic is not None:
            self._traffic.came_in(requests)
        outcomes: list[tuple[Ended, Outcome]] = []
        for request in requests:
            owner: Joint | Ended = request.context  # type: ignore[assignment]
            if request.error is not None and self._is_divided(owner, request.error):
                continue
            outcome = request.error or request.result
            assert outcome is not None
            if callable(owner):
                outcomes.append((owner, outcome))
            else:
                outcomes += owner.outcomes(outcome)
        self._end(outcomes)


def settle(end: asyncio.Future[AppendResult], outcome: Outcome) -> None:
    """Set a future to the outcome of an append, unless it is done because its caller was cancelled."""
    if end.done():
        return
    if isinstance(outcome, BaseException):
        end.set_exception(outcome)
    else:
        end.set_result(outcome)


def _single(event: Event, ended: Ended) -> _Singles:
    joint = _Singles()
    joint.take(event, ended)
    return joint
