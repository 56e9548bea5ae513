"""Both primaries are killed at a random moment, that of the servers and that of the database, again and again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Protocol

import psycopg

from headwater.homes.postgres.schema import make_tables, set_promotion

from .. import losses, readers, writers
from ..run import Run, Table, Told, stored_in
from ..server import configuration, place_at
from .members import LEASE_MS, Balancer, Member

MEMBERS = ("a", "b", "c")
CALM_S = (0.5, 3.0)
"""Between two failures, from when all go on."""
APART_S = 0.5
"""At most so much lies between the two deaths."""
GOES_ON_S = 120.0
UNAVAILABLE = 4
"""The exit code of a server that cannot reach its home."""
CATCH_UP_S = 120.0


class Database(Protocol):
    """A database of several hosts, one of which takes writes."""

    promotion: ClassVar[str]
    """What the owner of a home in it declares."""

    @property
    def url(self) -> str:
        """The address of whichever host takes writes."""

    def kill(self) -> None:
        """The host that takes writes is lost."""

    def fail_over(self) -> None:
        """Another one takes writes when this returns."""

    def mend(self) -> None:
        """The lost one is back, as a standby."""

    def close(self) -> None:
        """End all of it."""


class Failovers(Run):
    """Clients of four protocols on three servers: what was acknowledged is there once, in one order, at all three."""

    patience_s = CATCH_UP_S

    def __init__(
        self, folder: Path, database: Database, times: int, seed: int = 0, told: Told = lambda _: None
    ) -> None:
        self._database, self.times = database, times
        with psycopg.connect(database.url, autocommit=True) as connection:
            make_tables(connection)
            set_promotion(connection, database.promotion)
        settings = f"home_lease_ms = {LEASE_MS}\n[flight]\nenabled = false\n{configuration(500)}"
        self.members = [Member(folder, name, database.url, settings) for name in MEMBERS]
        self._balancer = Balancer([member.ports for member in self.members])
        super().__init__(place_at(self._balancer.ports), 0, seed, told, losses.primary_ended)
        for close in (database.close, *(member.close for member in self.members), self._balancer.close):
            self.servers.callback(close)
        self.pauses: list[float] = []
        """Of each failover: how long it took until all writers had been answered again."""
        self.writers = self.make(writers.Decider, writers.AmqpOne, writers.Futoin, writers.Cne)
        writers.bear_with_a_home(self.writers)
        self.readers = self.make(readers.Amqp, readers.DcbRead)

    def begin(self) -> None:
        self.until(lambda: self._balancer.primary is not None, GOES_ON_S, "a first primary")
        super().begin()
        self._goes_on()

    def live(self) -> None:
        """One failure after the other, and each time all go on."""
        for number in range(self.times):
            self.wait(self._chance.uniform(*CALM_S))
            self._told(f"failure {number + 1}; {self.progress()}")
            self._fail()

    def _fail(self) -> None:
        primary = self.members[self._balancer.primary or 0]
        deaths = [primary.kill, self._database.kill]
        self._chance.shuffle(deaths)
        began = time.monotonic()
        deaths[0]()
        time.sleep(self._chance.uniform(0, APART_S))
        deaths[1]()
        self._database.fail_over()
        returns = [primary.start, self._database.mend]
        self._chance.shuffle(returns)
        for each in returns:
            each()
        self._goes_on()
        self.pauses.append(time.monotonic() - began)

    def _goes_on(self) -> None:
        """Wait until each writer was answered, for something that it sent after now."""
        before = {writer: len(writer.acknowledged) for writer in self.writers}

        def goes_on() -> bool:
            self._restart()
            return all(len(its.acknowledged) > before[its] + its.together for its in self.writers)

        self.until(goes_on, GOES_ON_S, "every writer to go on", lambda: f"the primary is {self._balancer.primary}")

    def _restart(self) -> None:
        """As a unit of systemd does: a server ends that finds no host which takes writes when it starts."""
        for member in self.members:
            if not member.runs:
                if (code := member.process.returncode) != UNAVAILABLE:
                    self.faults.append(f"server {member.name} ended with {code}: {member.said()[-2000:]}")
                member.start()

    def finish(self) -> None:
        """And what each server has for itself."""
        super().finish()
        wanted = stored_in(self.place)
        for member in self.members:
            place = self.place._replace(http=member.url)
            self.until(lambda p=place: stored_in(p) == wanted, CATCH_UP_S, f"server {member.name} to have the same")

    def report(self) -> Iterator[Table | str]:
        """With how long it took."""
        yield from super().report()
        if self.pauses:
            middle, longest = statistics.median(self.pauses), max(self.pauses)
            count = len(self.pauses)
            yield f"{count} failovers; until all were answered again: p50 {middle:.1f} s, longest {longest:.1f} s"
