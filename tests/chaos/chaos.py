"""Clients of all protocols on three servers of one home, while servers, network and database fail; and what is left."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from traceback import extract_tb

from headwater.client import connect
from headwater.core.errors import EventLogError
from headwater.core.event import Event
from headwater.storage import CheckReport, check_directory
from tests.hostile.neighbours import LOG, Place
from tests.soak.book import Book, faults_of_reader, faults_of_writer
from tests.soak.clients import TRIMMED_REPEATS, LastingReader, LastingWriter, Webhook
from tests.soak.server import PASSWORD
from tests.soak.soak import Row

from . import clients, faults
from .balancer import Balancer
from .database import Database
from .members import LEASE_MS, PROTOCOLS, Member

MEMBERS = ("a", "b", "c")
PAUSE_S = (0.5, 4.0)
"""Between two faults, from when all go on."""
GOES_ON_S = 60.0
"""So soon each writer is answered again."""
CATCH_UP_S = 180.0
LOST = 5
"""So many events an asynchronous standby lacks."""
_MARKER = re.compile(r"(good:\w+:\d+)~")


class Faulty(Exception):
    """Something is wrong; what, is in the lists of faults."""


class Chaos:
    """One run."""

    def __init__(
        self, folder: Path, seconds: float, seed: int = 0, told: Callable[[str], object] = lambda _: None
    ) -> None:
        self._seconds, self._told = seconds, told
        self._chance = Random(seed)
        self.book, self.trimmed_book = Book(), Book(TRIMMED_REPEATS)
        self._faults: list[str] = []
        self.happened: Counter[str] = Counter()
        self.slowest_s = 0.0
        """The longest time from the end of a fault until every writer was answered."""
        self._database = Database()
        self.members = [Member(folder, name, self._database.primary) for name in MEMBERS]
        self._balancer = Balancer([member.ports for member in self.members])
        self._scene = faults.Scene(self.members, self._balancer, self._database, self._chance)
        self._make_clients(self._balancer.ports)

    def _make_clients(self, ports: dict[str, int]) -> None:
        http, amqp, flight = (f"127.0.0.1:{ports[protocol]}" for protocol in PROTOCOLS)
        place = self._place = Place(f"http://{http}", f"amqp://{amqp}", f"grpc://{flight}", "alice", PASSWORD)
        self.writers: list[LastingWriter] = [kind(place, self.book) for kind in clients.WRITERS]
        self.filler = clients.Filler(place, self.trimmed_book)
        self.readers: list[LastingReader] = [kind(place, self.book) for kind in clients.READERS]
        self.holder = clients.FutoinTrimmed(place, self.trimmed_book)
        self.trimmer = clients.Trimmer(place, self.filler, self.holder)
        self.listener = clients.Listener(place)
        self.seats, self.once = (
            clients.Seats(),
            clients.Once(place, [member.ports["http"] for member in self.members]),
        )
        ways = [place.http, place.http, ",".join(member.url for member in self.members)]
        self.racers = [clients.Racer(place, self.seats, which, way) for which, way in enumerate(ways)]

    def run(self) -> list[str]:
        """Run, and answer all faults that were found."""
        try:
            self._begin()
            self._live_through()
            self._catch_up()
            self._compare()
            self._end(self._everybody())
            self._compare_copies()
            self._go_back()
        except Faulty:
            pass
        except (AssertionError, EventLogError) as error:
            where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(extract_tb(error.__traceback__)))
            self._faults.append(f"{type(error).__name__}: {error} at {where}")
        finally:
            self._close()
        return self._all_faults()

    def acknowledged(self) -> int:
        """Events, of all writers."""
        return sum(len(writer.acknowledged) for writer in (*self.writers, self.filler))

    def rows(self) -> list[Row]:
        """What each client did."""
        rows = [Row("writes", its.name, len(its.acknowledged), 0, its.losses) for its in (*self.writers, self.filler)]
        rows += [
            Row("reads", its.page.name, len(its.page.numbers), its.page.repeats, its.losses)
            for its in (*self.readers, self.holder)
        ]
        rows.append(Row("races", "seats won", len(self.seats.won), 0, sum(its.losses for its in self.racers)))
        rows.append(Row("writes", "once: known", len(self.once.told), 0, 0))
        rows.append(Row("writes", "once: refused", len(self.once.refused), 0, 0))
        rows.append(Row("writes", "once: unknown", len(self.once.unknown), 0, 0))
        return rows

    # The stretches

    def _begin(self) -> None:
        self._told("the servers begin")
        self._until(lambda: self._balancer.primary is not None, GOES_ON_S, "a first primary")
        self._start([self.holder, *self.readers])
        [webhook] = [each for each in self.readers if isinstance(each, Webhook)]
        self._until(webhook.is_ready.is_set, GOES_ON_S, "a webhook to be registered")
        self._start([*self.writers, self.filler, self.trimmer, self.listener, *self.racers, self.once])
        self._goes_on()

    def _live_through(self) -> None:
        until = time.monotonic() + self._seconds
        while time.monotonic() < until:
            turn = self.happened.total()
            fault = faults.FIRST[turn] if turn < len(faults.FIRST) else self._chance.choice(faults.EVERY)
            self.happened[fault.__name__] += 1
            self._told(f"{fault.__name__}; the primary is {self._scene.primary().name}")
            fault(self._scene)
            began = time.monotonic()
            self._goes_on()
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self._wait(self._chance.uniform(*PAUSE_S))
            if self._database.standby is not None:
                self._database.lose_standby_in_order()

    def _goes_on(self) -> None:
        """Wait until each writer was answered, for something that it sent after now."""
        everybody = [*self.writers, self.filler]
        before = {writer: len(writer.acknowledged) for writer in everybody}
        won, told = len(self.seats.won), len(self.once.told)

        def goes_on() -> bool:
            is_told = len(self.once.told) > told and len(self.seats.won) > won
            return is_told and all(len(its.acknowledged) > before[its] + its.together for its in everybody)

        self._until(goes_on, GOES_ON_S, "every writer to go on", self._stuck)

    def _stuck(self) -> str:
        waiting = [f"{its.name} at {its.stands_at[:300]}" for its in (*self.writers, self.filler, *self.racers)]
        return f"the primary is {self._balancer.primary}; {'; '.join(waiting)}"

    def _catch_up(self) -> None:
        self._told("writers end, readers catch up")
        self._end([*self.racers, self.once, *self.writers, self.filler])
        for reader in (*self.readers, self.holder):
            mine = [its for its in (*self.writers, self.filler) if its.log == reader.log and _is_for(reader, its)]
            last = max((its.told.get(marker, 0) for its in mine for marker in list(its.told)[-1:]), default=0)
            count = sum(len(its.acknowledged) for its in mine)
            self._until(
                lambda r=reader, n=count, m=last: len(r.page.numbers) >= n and r.after >= m,
                CATCH_UP_S,
                f"{reader.page.name} to catch up",
            )

    def _compare(self) -> None:
        self._told("everything is compared")
        by_number = {number: _marker_of(data) for number, data in self._stored(LOG).items()}
        if by_number != (seen := dict(sorted(self.book.markers.items()))):
            differing = [n for n in by_number.keys() | seen.keys() if by_number.get(n) != seen.get(n)]
            self._faults.append(f"readers saw other events than the log has: {differing[:10]}")
        for writer in self.writers:
            self._faults += faults_of_writer(
                writer.name, list(writer.acknowledged), writer.under_way, writer.told, by_number
            )
        for reader in self.readers:
            self._faults += faults_of_reader(reader.page, by_number, reader.writers)
        filler, its = self.filler, dict(sorted(self.trimmed_book.markers.items()))
        self._faults += faults_of_writer(filler.name, list(filler.acknowledged), filler.under_way, filler.told, its)
        self._faults += self.seats.faults(self._stored(clients.SEATS_LOG))
        self._faults += self.once.faults(
            {number: data.strip('"') for number, data in self._stored(clients.ONCE_LOG).items()}
        )
        self._check()

    def _compare_copies(self) -> None:
        """Each server in turn is the primary, and has the same; nothing of a copy is damaged."""
        wanted = self._stored(LOG)
        for member in self.members:
            self._told(f"all that server {member.name} has")
            others = [each for each in self.members if each is not member]
            for each in others:
                each.stop()
            self._until(lambda m=member: m.is_primary, GOES_ON_S, f"server {member.name} to be the primary")
            if (found := self._stored(LOG, member.url)) != wanted:
                self._faults.append(f"server {member.name} has other events: {len(found)}, wanted {len(wanted)}")
            for each in others:
                if each.has_copy:
                    report = check_directory(each.copy)
                    self._faults += [f"the copy of {each.name}: {problem}" for problem in _problems(report)]
                each.start()
        self._check()

    # A home that lost the newest

    def _go_back(self) -> None:
        """A standby that nobody waited for is promoted without the newest: nobody appends until that is accepted."""
        self._told("a standby that lacks the newest is promoted")
        self._database.add_standby(is_synchronous=False)
        with connect(self._place.http, user="alice", password=PASSWORD) as server:
            self._until(lambda: self._balancer.primary is not None, GOES_ON_S, "a primary")
            log = server.log(LOG)
            kept = log.append([Event("Good", b"kept")]).first
            standby = self._database.standby
            assert standby is not None
            self._until(lambda: self._standby_has(kept), GOES_ON_S, "the standby to have it")
            standby.pause()
            ahead = [log.append([Event("Good", b"lost")]).first for _ in range(LOST)]
        self._database.primary.kill()
        standby.go_on()
        self._database.promote()
        self._scene.use()
        time.sleep(3 * LEASE_MS / 1000)
        self._nobody_appends(ahead[-1])

    def _standby_has(self, number: int) -> bool:
        import psycopg

        standby = self._database.standby
        assert standby is not None
        with psycopg.connect(standby.url, autocommit=True) as connection:
            query = "SELECT count(*) FROM headwater.frame WHERE last >= %s"
            row = connection.execute(query, (number,)).fetchone()
        return row is not None and row[0] > 0

    def _nobody_appends(self, head: int) -> None:
        for member in self.members:
            try:
                with connect(member.url, user="alice", password=PASSWORD, retry_s=0, timeout_s=5) as server:
                    given = server.log(LOG).append([Event("Good", b"forked")]).first
            except (EventLogError, OSError):
                continue
            self._faults.append(f"server {member.name} gave number {given}, and {head} was given before")

    # Everybody

    def _stored(self, log: str, url: str = "") -> dict[int, str]:
        with connect(url or self._place.http, user="alice", password=PASSWORD) as server:
            return {event.sequence_number: event.data.decode() for event in server.log(log).read()}

    def _everybody(self) -> Sequence[clients.Lasting]:
        others = (self.filler, self.holder, self.trimmer, self.listener, *self.racers, self.once)
        return [*self.writers, *self.readers, *others]  # type: ignore[list-item]

    def _start(self, everybody: Sequence[clients.Lasting | LastingReader | LastingWriter]) -> None:
        for client in everybody:
            client.start()

    def _end(self, everybody: Sequence[clients.Lasting | LastingReader | LastingWriter]) -> None:
        started = [client for client in everybody if client.is_started]
        for client in started:
            client.end()
        for client in started:
            client.stop()

    def _close(self) -> None:
        self._told("the clients end")
        for client in self._everybody():
            client.is_given_up = True
            client.end()
        for each in self.members:
            each.close()
        self._balancer.close()
        self._end(self._everybody())
        self._database.close()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._check()
            time.sleep(min(left, 0.5))

    def _until(
        self, holds: Callable[[], bool], seconds: float, what: str, instead: Callable[[], str] = lambda: ""
    ) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            self._check()
            if time.monotonic() > deadline:
                self._faults.append(f"{what} did not come to pass in {seconds:g} s: {instead()}")
                raise Faulty
            time.sleep(0.05)

    def _check(self) -> None:
        """Raises Faulty as soon as anything is wrong."""
        if self._all_faults():
            raise Faulty

    def _all_faults(self) -> list[str]:
        ended = [f"{type(its).__name__} ended with {its.fault!r}" for its in self._everybody() if its.fault]
        return [*self._faults, *self._scene.faults, *self.book.faults, *self.trimmed_book.faults, *ended]


def _is_for(reader: LastingReader, writer: LastingWriter) -> bool:
    return reader.writers is None or writer.name in reader.writers


def _marker_of(data: str) -> str:
    found = _MARKER.search(data)
    return found[1] if found is not None else data


def _problems(report: CheckReport) -> list[str]:
    return [*report.problems, *report.state.problems, *(problem for log in report.logs for problem in log.problems)]
