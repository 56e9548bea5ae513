"""What was acknowledged survives the loss of both primaries, in the databases that the guide recommends.

That of the servers and that of the database are killed at a random moment, again and again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.homes.postgres.schema import make_tables, set_promotion
from tests.interop.install import bring
from tests.interop.runtimes import Patroni
from tests.load import losses, readers, writers
from tests.load.chaos.members import LEASE_MS, Balancer, Member
from tests.load.run import Run, Table, Told, stored_in
from tests.load.server import configuration, place_at
from tests.night import IS_NIGHT, night
from tests.seeds import draw, seed

from .patroni import PatroniDatabase
from .standby_pair import StandbyPair

TIMES = 20 if IS_NIGHT else 1
TIMES_OF_PATRONI = 3
MEMBERS = ("a", "b", "c")
CALM_S = (0.5, 3.0)
"""Between two failures, from when all go on."""
APART_S = 0.5
"""At most so much lies between the two deaths."""
GOES_ON_S = CATCH_UP_S = 120.0


class Failovers(Run):
    """Clients of four protocols on three servers: what was acknowledged is there once, in one order, at all three."""

    patience_s = CATCH_UP_S

    def __init__(
        self,
        folder: Path,
        database: StandbyPair | PatroniDatabase,
        times: int,
        seed: int = 0,
        told: Told = lambda _: None,
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
            return all(len(its.acknowledged) > before[its] + its.together for its in self.writers)

        self.until(goes_on, GOES_ON_S, "every writer to go on", lambda: f"the primary is {self._balancer.primary}")
        for each in self.members:
            if not each.runs:  # one that finds no host which takes writes waits
                self.faults.append(f"server {each.name} ended with {each.process.returncode}: {each.said()[-2000:]}")

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


def judge(database: StandbyPair | PatroniDatabase, folder: Path, times: int) -> None:
    run = Failovers(folder, database, times, int.from_bytes(draw(seed(), "failovers")[:4]))
    assert run.run() == []
    assert len(run.pauses) == times
    assert all(row.events for row in run.rows())


@pytest.mark.timeout(1500 if IS_NIGHT else 300)
def test_nothing_is_lost_or_doubled_when_a_standby_that_was_waited_for_is_promoted(tmp_path: Path) -> None:
    judge(StandbyPair(), tmp_path, TIMES)


@night
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_when_patroni_promotes_a_standby(tmp_path: Path) -> None:
    bring(Patroni())
    judge(PatroniDatabase(), tmp_path, TIMES_OF_PATRONI)
