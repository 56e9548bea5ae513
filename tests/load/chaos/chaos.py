"""Clients of all protocols on three servers of one home, while servers, network and database fail; and what is left."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import ClassVar
from urllib.error import HTTPError

import psycopg

from headwater.core.condition import AppendCondition
from headwater.core.errors import AppendConditionFailed, EventLogError
from headwater.core.event import Event
from headwater.core.query import Query
from headwater.storage import check_directory
from tests.night import IS_NIGHT

from .. import losses, readers, writers
from ..clients import Client
from ..operators import Listener, Trimmer
from ..place import LOG, Place, ask
from ..run import Row, Run, Table, Told, end
from ..server import configuration, place_at
from .faults import EVERY, FIRST, LEASE_S, Database, Scene
from .members import LEASE_MS, Balancer, ProxiedMember

MEMBERS = ("a", "b", "c")
SEATS_LOG, ONCE_LOG = "seats", "once"
TIMEOUT_S = 20.0
"""A server that is paused answers nothing; who waits for it goes elsewhere."""
PAUSE_S = (0.5, 4.0)
"""Between two faults, from when all go on."""
GOES_ON_S = 60.0
CATCH_UP_S = 180.0
LOST = 5


class Chaos(Run):
    patience_s = CATCH_UP_S

    def __init__(self, folder: Path, seconds: float, seed: int = 0, told: Told = lambda _: None) -> None:
        self._database = Database()
        settings = f"home_lease_ms = {LEASE_MS}\n[flight]\nenabled = true\n{configuration(500, SEATS_LOG, ONCE_LOG)}"
        self.members = [ProxiedMember(folder, name, self._database.primary, settings) for name in MEMBERS]
        self._balancer = Balancer([member.ports for member in self.members])
        super().__init__(place_at(self._balancer.ports), seconds, seed, told, losses.primary_ended)
        for close in (self._database.close, *(member.close for member in self.members), self._balancer.close):
            self.servers.callback(close)
        self._scene = Scene(self.members, self._balancer, self._database, self._chance, self.faults)
        self.happened: Counter[str] = Counter()
        self._make_clients()

    def _make_clients(self) -> None:
        self.writers = self.make(*(kind for kind in writers.WRITERS if kind is not writers.Staged), writers.Filler)
        writers.bear_with_a_home(self.writers)
        self.readers = self.make(readers.FutoinTrimmed, *readers.READERS)
        place, urls = self.place, [member.url for member in self.members]
        self.seats, self.once = Seats(), Once(place, urls)
        ways = [place.http, place.http, ",".join(urls)]
        racers = [Racer(place, self.seats, which, way) for which, way in enumerate(ways)]
        self.rivals = [*racers, self.once]
        trimmer = Trimmer(place, self.writers[-1], self.readers[0])
        self.others = self.adopt(trimmer, Listener(place), *self.rivals)

    def begin(self) -> None:
        self._told("the servers begin")
        self.until(lambda: self._balancer.primary is not None, GOES_ON_S, "a first primary")
        super().begin()
        self._goes_on()

    def rows(self) -> list[Row]:
        seats = Row("races", "seats won", len(self.seats.won), losses=sum(its.losses for its in self.rivals))
        outcomes = {"known": self.once.told, "refused": self.once.refused, "unknown": self.once.unknown}
        once = [Row("writes", f"once: {name}", len(batches)) for name, batches in outcomes.items()]
        return [*super().rows(), seats, *once]

    def live(self) -> None:
        """One fault after the other, and each time all go on."""
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            turn = self.happened.total()
            fault = FIRST[turn] if turn < len(FIRST) else self._chance.choice(EVERY)
            self.happened[fault.__name__] += 1
            self._told(f"{fault.__name__}; the primary is {self._scene.primary().name}")
            fault(self._scene)
            self._goes_on()
            self.wait(self._chance.uniform(*PAUSE_S))
            self._database.lose_standby_in_order()

    def _goes_on(self) -> None:
        """Wait until each writer was answered, for something that it sent after now."""
        before = {writer: len(writer.acknowledged) for writer in self.writers}
        won, told = len(self.seats.won), len(self.once.told)

        def goes_on() -> bool:
            is_told = len(self.once.told) > told and len(self.seats.won) > won
            return is_told and all(len(its.acknowledged) > before[its] + its.together for its in self.writers)

        what = "every writer to go on"
        self.until(goes_on, GOES_ON_S, what, lambda: f"the primary is {self._balancer.primary}")

    def finish(self) -> None:
        """And what each server has for itself, and what becomes of a home that lost the newest."""
        end(self.rivals)
        super().finish()
        self._compare_copies()
        self._go_back()
        said = ((member.name, member.said().partition("Traceback")) for member in self.members)
        self.faults += [
            f"server {name} broke: {stack[:2000]}" for name, (_, found, stack) in said if found and IS_NIGHT
        ]

    def compare(self, stored: Mapping[int, str]) -> None:
        """And what rivals were told."""
        super().compare(stored)
        self.faults += self.seats.faults(self._stored(SEATS_LOG))
        self.faults += self.once.faults(self._stored(ONCE_LOG))

    def _compare_copies(self) -> None:
        """Each server in turn is the primary, and has the same; nothing of a copy is damaged."""
        wanted = self._stored(LOG)
        for member in self.members:
            self._told(f"all that server {member.name} has")
            others = [each for each in self.members if each is not member]
            for each in others:
                each.stop()
            self.until(lambda m=member: m.is_primary, GOES_ON_S, f"server {member.name} to be the primary")
            if (found := self._stored(LOG, member.url)) != wanted:
                self.faults.append(f"server {member.name} has other events: {len(found)}, wanted {len(wanted)}")
            for each in others:
                if (each.copy / "state.sqlite").exists():  # it was the primary since it had an empty directory
                    report = check_directory(each.copy)
                    problems = [*report.problems, *report.state.problems]
                    problems += (problem for log in report.logs for problem in log.problems)
                    self.faults += [f"the copy of {each.name}: {problem}" for problem in problems]
                each.start()
        self.check()

    # A home that lost the newest

    def _go_back(self) -> None:
        """A standby that nobody waited for is promoted without the newest: nobody appends until that is accepted."""
        self._told("a standby that lacks the newest is promoted")
        self._database.add_standby(is_synchronous=False)
        with self.place.client() as server:
            self.until(lambda: self._balancer.primary is not None, GOES_ON_S, "a primary")
            log = server.log(LOG)
            kept = log.append([Event("Good", b"kept")]).first
            standby = self._database.standby
            assert standby is not None
            self.until(lambda: self._standby_has(kept), GOES_ON_S, "the standby to have it")
            standby.kill()  # one that is only paused has the newest in its socket
            ahead = [log.append([Event("Good", b"lost")]).first for _ in range(LOST)]
        self._database.primary.kill()
        standby.start()
        self._database.promote()
        self._scene.use()
        time.sleep(3 * LEASE_S)
        self._nobody_appends(ahead[-1])

    def _standby_has(self, number: int) -> bool:
        standby = self._database.standby
        assert standby is not None
        with psycopg.connect(standby.url, autocommit=True) as connection:
            query = "SELECT count(*) FROM headwater.frame WHERE last >= %s"
            row = connection.execute(query, (number,)).fetchone()
        return row is not None and row[0] > 0

    def _nobody_appends(self, head: int) -> None:
        for member in self.members:
            try:
                with self.place.client(member.url, retry_s=0, timeout_s=5) as server:
                    given = server.log(LOG).append([Event("Good", b"forked")]).first
            except (EventLogError, OSError):
                continue
            self.faults.append(f"server {member.name} gave number {given}, and {head} was given before")

    def _stored(self, log: str, url: str = "") -> dict[int, str]:
        with self.place.client(url) as server:
            return {event.sequence_number: event.data.decode().strip('"') for event in server.log(log).read()}

    def report(self) -> Iterator[Table | str]:
        """With what happened; where something is at fault, what the servers said is kept."""
        for member in self.members if self.all_faults() else ():
            kept = Path(tempfile.gettempdir()) / f"headwater-chaos-{self.seed}-{member.name}.log"
            kept.write_text(member.said())
            yield f"what server {member.name} said: {kept}"
        yield f"happened: {dict(self.happened)}"
        yield from super().report()


# Rivals: clients that race for what one may have, and send what may be refused


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
