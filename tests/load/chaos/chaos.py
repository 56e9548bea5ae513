"""Clients of all protocols on three servers of one home, while servers, network and database fail; and what is left."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg

from headwater.core.errors import EventLogError
from headwater.core.event import Event
from headwater.storage import CheckReport, check_directory

from .. import losses, readers, writers
from ..operators import Listener, Trimmer
from ..place import LOG, Place
from ..run import Row, Run, Table, Told, end
from ..server import place_at
from .faults import EVERY, FIRST, LEASE_S, Database, Scene
from .members import Balancer, Member
from .rivals import ONCE_LOG, SEATS_LOG, Once, Racer, Seats

MEMBERS = ("a", "b", "c")
PAUSE_S = (0.5, 4.0)
"""Between two faults, from when all go on."""
GOES_ON_S = 60.0
"""So soon each writer is answered again."""
CATCH_UP_S = 180.0
LOST = 5
"""So many events an asynchronous standby lacks."""


class Chaos(Run):
    patience_s = CATCH_UP_S

    def __init__(self, folder: Path, seconds: float, seed: int = 0, told: Told = lambda _: None) -> None:
        self._database = Database()
        self.members = [Member(folder, name, self._database.primary) for name in MEMBERS]
        self._balancer = Balancer([member.ports for member in self.members])
        super().__init__(place_at(self._balancer.ports), seconds, seed, told, losses.primary_ended)
        for close in (self._database.close, *(member.close for member in self.members), self._balancer.close):
            self.servers.callback(close)
        self._scene = Scene(self.members, self._balancer, self._database, self._chance, self.faults)
        self.happened: Counter[str] = Counter()
        self.slowest_s = 0.0
        """The longest time from the end of a fault until every writer was answered."""
        self._make_clients(self.place)

    def _make_clients(self, place: Place) -> None:
        self.writers = self.make(*(kind for kind in writers.WRITERS if kind is not writers.Staged), writers.Filler)
        for writer in self.writers:
            if isinstance(writer, writers.AmqpOne):
                writer.refusals = (*writer.refusals, *losses.AWAY_CONDITIONS)
        self.readers = self.make(readers.FutoinTrimmed, *readers.READERS)
        urls = [member.url for member in self.members]
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
            began = time.monotonic()
            self._goes_on()
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
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
                    self.faults += [f"the copy of {each.name}: {problem}" for problem in _problems(report)]
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
            standby.pause()
            ahead = [log.append([Event("Good", b"lost")]).first for _ in range(LOST)]
        self._database.primary.kill()
        standby.go_on()
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
        yield f"happened: {dict(self.happened)}; every writer was answered again within {self.slowest_s:.1f} s"
        yield from super().report()


def _problems(report: CheckReport) -> list[str]:
    return [*report.problems, *report.state.problems, *(problem for log in report.logs for problem in log.problems)]
