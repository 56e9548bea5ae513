"""A database on two hosts: each commit waits for the standby, and is on it when that is promoted."""

from __future__ import annotations

from typing import ClassVar

import psycopg

from tests.ports import free_ports
from tests.waiting import eventually

from .postgres_server import Postgres, address_of

NAMES = ("db_1", "db_2")
_SYNC = "SELECT count(*) FROM pg_stat_replication WHERE application_name = %s AND sync_state = 'sync'"


class StandbyPair:
    """The hosts keep their names and ports, whichever of them takes writes; each names the other as its standby.

    So after a promotion no commit is answered until the other host is back, as a standby.
    """

    promotion: ClassVar[str] = "waited-for"
    """What the owner of a home in it declares."""

    def __init__(self) -> None:
        self._ports = dict(zip(NAMES, free_ports(2), strict=True))
        self.name, self.other = NAMES
        """Of the host that takes writes, and of its standby."""
        self.primary = Postgres(port=self._ports[self.name])
        self.standby: Postgres | None = None
        try:
            self.mend()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The address of whichever host takes writes."""
        return address_of(*self._ports.values())

    def kill(self) -> None:
        """The host that takes writes is lost."""
        self.primary.kill()

    def fail_over(self) -> None:
        """Promote the standby."""
        assert self.standby is not None
        self.standby.promote()
        lost, self.primary, self.standby = self.primary, self.standby, None
        self.name, self.other = self.other, self.name
        lost.close()

    def mend(self) -> None:
        """Bring the other host back, empty: it gets a base backup, and each commit waits for it."""
        self.standby = Postgres(
            _waiting_for(self.name), standby_of=self.primary, name=self.other, port=self._ports[self.other]
        )
        self.primary.configure(_waiting_for(self.other))
        self.primary.reload()
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            eventually(lambda: connection.execute(_SYNC, (self.other,)).fetchone() == (1,))

    def close(self) -> None:
        """End both."""
        for each in (self.standby, self.primary):
            if each is not None:
                each.close()


def _waiting_for(name: str) -> str:
    return f"synchronous_standby_names = '{name}'"
