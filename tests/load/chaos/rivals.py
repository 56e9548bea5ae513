"""Clients that are only for servers of a home: they race for what one may have, and send what may be refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from http.client import HTTPException
from typing import ClassVar
from urllib.error import HTTPError

from headwater.core.condition import AppendCondition
from headwater.core.errors import AppendConditionFailed
from headwater.core.event import Event
from headwater.core.query import Query

from ..clients import Client
from ..place import Place, ask

SEATS_LOG = "seats"
ONCE_LOG = "once"
TIMEOUT_S = 20.0
"""A server that is paused answers nothing; who waits for it goes elsewhere."""


class Seats:
    """What racers were told."""

    def __init__(self) -> None:
        self.newest = 0
        self.won: dict[str, int] = {}
        """The number that the winner was told, by event."""
        self.lost: set[str] = set()
        """Events whose condition failed."""

    def told(self, seat: int, event: str, number: int | None) -> None:
        """A racer has an answer; None: the condition failed."""
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


class Racer(Client):
    """Wants each seat that others want: an append whose condition is that nobody has it."""

    name: ClassVar[str] = "racer"

    def __init__(self, place: Place, seats: Seats, which: int, addresses: str) -> None:
        """`addresses`: of all servers, or of what leads to the primary."""
        super().__init__(place)
        self._seats, self._which, self._addresses = seats, which, addresses
        self._under_way: int | None = None

    def _is_done(self) -> bool:
        return self._ending.is_set() and (self._under_way is None or self.is_given_up)

    def _work(self) -> None:
        with self.place.client(self._addresses, timeout_s=TIMEOUT_S, retry_s=0) as server:
            while not self._is_done():
                seat = self._under_way = self._seats.newest if self._under_way is None else self._under_way
                event, tag = f"{seat}:{self._which}", f"seat:{seat}"
                taken = Event("Taken", event.encode(), (tag,), event, "racer")
                try:
                    condition = AppendCondition(Query.where(tags=(tag,)), 0)
                    self._seats.told(seat, event, server.log(SEATS_LOG).append([taken], condition).first)
                except AppendConditionFailed:
                    self._seats.told(seat, event, None)
                self._under_way = None
                self._ending.wait(0.02)


class Once(Client):
    """Sends each batch once, and never again, whatever the answer: what was refused must not be in the log.

    Some go to any server, whether it is the primary or takes itself for it.
    """

    name: ClassVar[str] = "once"
    together: ClassVar[int] = 3

    def __init__(self, place: Place, addresses: Sequence[str]) -> None:
        super().__init__(place)
        self._places = [place, *(place._replace(http=address) for address in addresses)]
        self.told: dict[int, int] = {}
        """The number of the last event, by batch."""
        self.refused: set[int] = set()
        self.unknown: set[int] = set()

    def _work(self) -> None:
        for batch in itertools.count(len(self.told) + len(self.refused) + len(self.unknown)):
            if self._ending.wait(0.02):
                return
            parts = (f"{batch}:{part}" for part in range(self.together))
            events = [{"type": "Once", "data": part, "id": part} for part in parts]
            place = self._places[batch % len(self._places)]
            try:
                answer = ask(place, "POST", f"/logs/{ONCE_LOG}/append", {"events": events}, timeout_s=TIMEOUT_S)
                self.told[batch] = json.loads(answer)["sequence_number"]
            except HTTPError as refused:
                with refused:
                    assert refused.code in (421, 503, 504), (refused.code, refused.read())
                    (self.unknown if refused.code == 504 else self.refused).add(batch)
            except (OSError, HTTPException):
                self.unknown.add(batch)

    def faults(self, stored: dict[int, str]) -> list[str]:
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
