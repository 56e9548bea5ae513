"""The database of the home, with a standby, and what can become of the two."""

from __future__ import annotations

import psycopg

from headwater.homes.postgres.schema import make_tables
from tests.homes.postgres_server import Postgres
from tests.waiting import eventually

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
        """Nobody waits for the standby any more, and it is gone."""
        self._follow(False)
        if self.standby is not None:
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
        """End both."""
        for each in (self.primary, self.standby):
            if each is not None:
                each.close()

    def _follow(self, is_synchronous: bool) -> None:
        self.primary.configure(_SYNCHRONOUS if is_synchronous else "")
        self.primary.reload()
        wanted = "standby" if is_synchronous else ""
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            eventually(lambda: connection.execute("SHOW synchronous_standby_names").fetchone() == (wanted,))
            if is_synchronous:
                states = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                eventually(lambda: connection.execute(states).fetchone() == (1,))
                eventually(
                    lambda: connection.execute("SELECT is_synchronous FROM headwater.lease").fetchone() == (True,)
                )
