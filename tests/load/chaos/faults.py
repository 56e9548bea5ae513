"""What happens to servers of a home, their network and their database: a method each, which returns when it is over.

None of them waits until somebody serves again: the run does.
"""

from __future__ import annotations

import shutil
import time
from random import Random

import psycopg

from headwater.homes.postgres.schema import make_tables, set_promotion
from tests.homes.postgres_server import Postgres
from tests.waiting import eventually

from .members import LEASE_MS, Balancer, ProxiedMember

LEASE_S = LEASE_MS / 1000
_SYNCHRONOUS = "synchronous_standby_names = 'standby'"


class Database:
    """A PostgreSQL server and a standby of it."""

    def __init__(self) -> None:
        self.primary = Postgres()
        self.standby: Postgres | None = None
        try:
            with psycopg.connect(self.primary.url, autocommit=True) as connection:
                make_tables(connection)
        except BaseException:
            self.close()
            raise

    def add_standby(self, *, is_synchronous: bool) -> None:
        """Make a standby, and have each commit wait for it, or not."""
        self.standby = Postgres(standby_of=self.primary)
        self._follow(is_synchronous)

    def lose_standby_in_order(self) -> None:
        """Nobody waits for the standby any more, and it is gone; if there is one."""
        if self.standby is not None:
            self._follow(False)
            self.standby.close()
            self.standby = None

    def promote(self) -> None:
        """The server is killed with all its data, and the standby is the server from now on."""
        assert self.standby is not None
        if self.primary.runs:
            self.primary.kill()
        self.standby.promote()
        old, self.primary, self.standby = self.primary, self.standby, None
        old.close()

    def close(self) -> None:
        for each in (self.primary, self.standby):
            if each is not None:
                each.close()

    def _follow(self, is_synchronous: bool) -> None:
        self.primary.configure(_SYNCHRONOUS if is_synchronous else "")
        self.primary.reload()
        wanted = "standby" if is_synchronous else ""
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            eventually(lambda: connection.execute("SHOW synchronous_standby_names").fetchone() == (wanted,))
            set_promotion(connection, "waited-for" if is_synchronous else "ask")
            if is_synchronous:
                states = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                eventually(lambda: connection.execute(states).fetchone() == (1,))
                eventually(
                    lambda: connection.execute("SELECT is_waited_for FROM headwater.lease").fetchone() == (True,)
                )


class Scene:
    def __init__(
        self, members: list[ProxiedMember], balancer: Balancer, database: Database, chance: Random, faults: list[str]
    ) -> None:
        """`faults` takes what a server did not do as it should."""
        self.members, self.balancer, self.database = members, balancer, database
        self.chance, self.faults = chance, faults

    def primary(self) -> ProxiedMember:
        """The server that serves, or served last."""
        return self.members[self.balancer.primary or 0]

    def wait(self, least_s: float, most_s: float) -> None:
        time.sleep(self.chance.uniform(least_s, most_s))

    def use(self) -> None:
        """Lead all servers to the database that is the primary now."""
        for member in self.members:
            member.proxy.target = self.database.primary.port
            member.proxy.cut()

    def kill(self) -> None:
        """The primary is killed, and begins again: at once, or when another has its place; with or without its copy."""
        primary = self.primary()
        primary.kill()
        if self.chance.random() < 0.3:
            shutil.rmtree(primary.copy, ignore_errors=True)
        if self.chance.random() < 0.7:
            self.wait(0, 2 * LEASE_S)
        primary.start()

    def pause(self) -> None:
        """The primary sleeps, for less than its lease or for longer; its clients may stay with it."""
        primary = self.primary()
        self.balancer.keeps_old = self.chance.random() < 0.5
        primary.pause()
        self.wait(0.3 * LEASE_S, 3 * LEASE_S)
        primary.go_on()
        if self.balancer.keeps_old:
            time.sleep(1)
            self.balancer.keeps_old = False
            self.balancer.cut()

    def stop(self) -> None:
        """The primary ends in order, and begins again."""
        primary = self.primary()
        if (code := primary.stop()) != 0:
            self.faults.append(f"server {primary.name} ended in order with exit code {code}")
        primary.start()

    def kill_all(self) -> None:
        """All servers are killed, and begin again."""
        for member in self.members:
            member.kill()
        for member in self.members:
            member.start()

    def cut(self) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            self.primary().proxy.cut()
            self.wait(0, 0.2)

    def cut_off(self) -> None:
        """The primary does not reach the database: nothing comes through, or connections are refused."""
        proxy = self.primary().proxy
        if self.chance.random() < 0.5:
            proxy.stop()
        else:
            proxy.is_refusing = True
            proxy.cut()
        self.wait(0.2 * LEASE_S, 3 * LEASE_S)
        proxy.go_on()
        proxy.is_refusing = False

    def slow(self) -> None:
        """The way to the database takes long."""
        for member in self.members:
            member.proxy.delay_s = self.chance.choice((0.01, 0.05, 0.2))
        self.wait(LEASE_S, 2 * LEASE_S)
        for member in self.members:
            member.proxy.delay_s = 0.0

    def crash_database(self) -> None:
        """All of the database is killed, and begins again."""
        self.database.primary.kill()
        self.wait(0, 2 * LEASE_S)
        self.database.primary.start()

    def restart_database(self) -> None:
        """An administrator restarts the database."""
        self.database.primary.stop()
        self.database.primary.start()

    def pause_database(self) -> None:
        self.database.primary.pause()
        self.wait(0.3 * LEASE_S, 4 * LEASE_S)
        self.database.primary.go_on()

    def promote(self, *lost: ProxiedMember) -> None:
        """The database is lost, under load; the standby that each commit waited for is promoted."""
        self.database.add_standby(is_synchronous=True)
        self.wait(1, 2)
        for member in lost:
            member.kill()
        self.database.promote()
        self.use()
        for member in lost:
            member.start()

    def promote_and_kill(self) -> None:
        """The same, and the primary of the home is killed with it."""
        self.promote(self.primary())

    def hang_standby(self) -> None:
        """The standby hangs, so that no commit ends; then it goes on."""
        self.database.add_standby(is_synchronous=True)
        assert self.database.standby is not None
        self.database.standby.pause()
        self.wait(0.5 * LEASE_S, 4 * LEASE_S)
        self.database.standby.go_on()
        self.database.lose_standby_in_order()


FIRST = (Scene.kill, Scene.pause, Scene.crash_database, Scene.promote, Scene.cut_off, Scene.stop)
"""These come first, in that order."""
EVERY = (
    *(Scene.kill, Scene.pause, Scene.stop, Scene.kill_all, Scene.cut, Scene.cut_off, Scene.slow),
    *(Scene.crash_database, Scene.restart_database, Scene.pause_database),
    *(Scene.promote, Scene.promote_and_kill, Scene.hang_standby),
)
