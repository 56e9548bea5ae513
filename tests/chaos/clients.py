"""Clients that go on where the primary ends: those of the soak, and two that are only for servers of a home."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import ClassVar
from urllib.error import HTTPError, URLError

from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.performatives import Accepted
from headwater.client import connect
from headwater.client.protocol.problems import UnexpectedAnswer
from headwater.core.condition import AppendCondition
from headwater.core.errors import AppendConditionFailed, NotPrimary, OutcomeUnknown
from headwater.core.event import Event
from headwater.core.query import Query
from headwater.flight.errors import ServerFault
from tests.hostile.neighbours import Place
from tests.soak import clients as soak
from tests.soak import operators

SEATS_LOG = "seats"
ONCE_LOG = "once"
TIMEOUT_S = 20.0
"""A server that is paused answers nothing; who waits for it goes elsewhere."""
_AWAY_STATUSES = (421, 503, 504)
_AWAY = (OutcomeUnknown, NotPrimary, TimeoutError)
_AWAY_CONDITIONS = (*soak.ENDED, "amqp:internal-error", "amqp:not-found")
"""A server says over AMQP that it cannot append, or does not know whether it has, as an internal error."""
RACERS = 3


def is_lost(error: BaseException) -> bool:
    """Whether the primary, or the home, went away: as for the soak, and what only servers of a home answer."""
    if isinstance(error, HTTPError):
        with error:
            return error.code in _AWAY_STATUSES
    if isinstance(error, OutcomeUnknown) and isinstance(error.__cause__, UnexpectedAnswer):
        error = error.__cause__
    if isinstance(error, UnexpectedAnswer):
        return error.status in _AWAY_STATUSES
    if isinstance(error, AmqpError):
        return error.condition in _AWAY_CONDITIONS
    said = str(error)
    if isinstance(error, AssertionError | ServerFault):
        return "InternalError" in said or "outcome_unknown" in said
    return (
        isinstance(error, _AWAY)
        or (isinstance(error, URLError) and isinstance(error.reason, TimeoutError))
        or soak.is_lost(error)
    )


class Lasting(soak.Lasting):
    """One that connects anew where the primary is now."""

    def is_lost(self, error: BaseException) -> bool:
        return is_lost(error)


# Writers


class Decider(Lasting, soak.Decider):
    """Conditional appends."""


class CloudEvents(Lasting, soak.CloudEvents):
    """A POST each."""


class _Amqp(Lasting, soak.AmqpOne):
    def _append_all(self, markers: list[str]) -> bool:
        states = self._sender.send_all([self._message(marker) for marker in markers])
        refused = [state for state in states if state != Accepted()]
        allowed = ("amqp:resource-limit-exceeded", *_AWAY_CONDITIONS)
        assert all(state.error.condition in allowed for state in refused), refused
        return not refused


class AmqpOne(_Amqp):
    """One message after the other."""


class AmqpMany(_Amqp):
    """Many messages at once."""

    name = "amqp_many"
    together = 20


class Futoin(Lasting, soak.Futoin):
    """addEvent with keys."""


class Cne(Lasting, soak.Cne):
    """A node."""


class Flight(Lasting, soak.Flight):
    """do_put, where what is stored already is skipped."""


class Filler(Lasting, soak.Filler):
    """Large events for the log that forgets."""


WRITERS: tuple[type[soak.LastingWriter], ...] = (Decider, CloudEvents, AmqpOne, AmqpMany, Futoin, Cne, Flight)


# Readers


class Amqp(Lasting, soak.Amqp):
    """A receiver that resumes from its offset."""


class AmqpGroup(Lasting, soak.AmqpGroup):
    """The one receiver of a consumer group."""


class DcbRead(Lasting, soak.DcbRead):
    """Reads after what it has."""


class Subscription(Lasting, soak.Subscription):
    """Server-Sent Events."""


class FutoinPush(Lasting, soak.FutoinPush):
    """A reliable consumer."""


class FutoinPoll(Lasting, soak.FutoinPoll):
    """One that asks for events over HTTP."""


class FutoinTrimmed(Lasting, soak.FutoinTrimmed):
    """Holds back what may be trimmed."""


class Webhook(Lasting, soak.Webhook):
    """Gets what happens to one resource."""


class FlightFollow(Lasting, soak.FlightFollow):
    """Reads in bulk."""


READERS: tuple[type[soak.LastingReader], ...] = (
    Amqp, AmqpGroup, DcbRead, Subscription, FutoinPush, FutoinPoll, Webhook, FlightFollow
)  # fmt: skip


class Listener(Lasting, operators.Listener):
    """Hears notifications; those of a term are of that term's primary alone."""


class Trimmer(Lasting, operators.Trimmer):
    """Looks at a log whose consumer holds it back."""


# For servers of a home


class Seats:
    """What racers were told."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self.newest = 0
        self.won: dict[str, int] = {}
        """The number that the winner was told, by event."""
        self.lost: set[str] = set()
        """Events whose condition failed."""

    def told(self, seat: int, event: str, number: int | None) -> None:
        """A racer has an answer; None: the condition failed."""
        with self._changing:
            self.newest = max(self.newest, seat + 1)
            if number is None:
                self.lost.add(event)
            else:
                self.won[event] = number

    def faults(self, stored: dict[int, str]) -> list[str]:
        """Hold it against the log: one event for each seat, that of who was told so."""
        faults = []
        taken: dict[str, str] = {}
        for number, event in stored.items():
            seat = event.partition(":")[0]
            if seat in taken:
                faults.append(f"seat {seat} has two winners: {taken[seat]} and {event} (event {number})")
            taken[seat] = event
        there = set(taken.values())
        faults += [f"{event} was told that its condition failed, and is there" for event in self.lost & there]
        faults += [
            f"{event} was told number {number}, where {stored.get(number)} is"
            for event, number in self.won.items()
            if stored.get(number) != event
        ]
        return faults


class Racer(Lasting):
    """Wants each seat that others want: an append whose condition is that nobody has it."""

    name: ClassVar[str] = "racer"

    def __init__(self, place: Place, seats: Seats, which: int, addresses: str) -> None:
        """`addresses`: of all servers, or of what leads to the primary."""
        super().__init__(place)
        self._seats, self._which, self._addresses = seats, which, addresses
        self._under_way: int | None = None

    def _is_done(self) -> bool:
        return self._ending.is_set() and (self._under_way is None or self.is_given_up)

    def _live(self) -> None:
        place = self.place
        with connect(
            self._addresses, user=place.user, password=place.password, timeout_s=TIMEOUT_S, retry_s=0
        ) as server:
            log = server.log(SEATS_LOG)
            while not self._is_done():
                seat = self._under_way = self._seats.newest if self._under_way is None else self._under_way
                event = f"{seat}:{self._which}"
                tag = f"seat:{seat}"
                taken = Event("Taken", event.encode(), (tag,), event, "racer")
                try:
                    first = log.append([taken], AppendCondition(Query.where(tags=(tag,)), 0)).first
                except AppendConditionFailed:
                    self._seats.told(seat, event, None)
                else:
                    self._seats.told(seat, event, first)
                self._under_way = None
                self._ending.wait(0.02)


class Once(Lasting):
    """Sends each batch once, and never again, whatever the answer: what was refused must not be in the log.

    Some go to any server, whether it is the primary or takes itself for it.
    """

    name: ClassVar[str] = "once"
    together: ClassVar[int] = 3

    def __init__(self, place: Place, ports: Sequence[int]) -> None:
        """`ports`: of all servers."""
        super().__init__(place)
        self._ports = (int(place.http.rpartition(":")[2]), *ports)
        self.told: dict[int, int] = {}
        """The number of the last event, by batch."""
        self.refused: set[int] = set()
        self.unknown: set[int] = set()

    def _live(self) -> None:
        for batch in itertools.count(len(self.told) + len(self.refused) + len(self.unknown)):
            if self._ending.wait(0.02):
                return
            try:
                status, answer = self._post(self._ports[batch % len(self._ports)], batch)
            except (OSError, HTTPException):
                self.unknown.add(batch)
                continue
            if status == 200:
                self.told[batch] = json.loads(answer)["sequence_number"]
            elif status in (421, 503):
                self.refused.add(batch)
            else:
                assert status == 504, (status, answer)
                self.unknown.add(batch)

    def _post(self, port: int, batch: int) -> tuple[int, bytes]:
        events = [{"type": "Once", "data": f"{batch}:{part}", "id": f"{batch}:{part}"} for part in range(self.together)]
        connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        try:
            headers = {"content-type": "application/json", "authorization": self.place.authorization}
            connection.request("POST", f"/logs/{ONCE_LOG}/append", json.dumps({"events": events}), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def faults(self, stored: dict[int, str]) -> list[str]:
        """Hold it against the log."""
        batches: dict[int, list[tuple[int, int]]] = {}
        for number, event in stored.items():
            batch, part = map(int, event.split(":"))
            batches.setdefault(batch, []).append((part, number))
        faults = [f"batch {batch} was refused, and is there" for batch in sorted(self.refused & batches.keys())]
        for batch, parts in batches.items():
            if [part for part, _ in parts] != list(range(self.together)):
                faults.append(f"batch {batch} is not there as it was sent: {parts}")
        for batch, last in self.told.items():
            if not (found := batches.get(batch)) or found[-1][1] != last:
                faults.append(f"batch {batch} was told number {last}, and is there as {found}")
        return faults
