"""What the questions share in one run: a PostgreSQL server, ways to it of some length, the contenders, filled."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import psycopg
from tests.homes.postgres_server import Postgres

from headwater.core import Event
from headwater.homes.postgres.schema import make_tables

from ..measure import WrongAnswer
from ..workload import Workload
from .delayed import Delayed
from .writers import EventsourcingWriter, HeadwaterWriter, Pair, Writer

HOME, LOCAL, EVENTSOURCING = "headwater, home", "local directory", "eventsourcing"
POSTGRES_SETTINGS = """
shared_buffers = 256MB
max_wal_size = 4GB
max_connections = 400
"""
"""Beside those of the tests: what it has by default, or more."""
BATCH = 1000


class HomesBench:
    """One run. A sample takes `seconds`; `events` are in each log before anything is measured, 10 of each account."""

    def __init__(
        self,
        directory: Path,
        *,
        events: int,
        seconds: float,
        round_trips_ms: Sequence[float],
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.note, self.seconds, self.round_trips_ms = note, seconds, round_trips_ms
        self.directory = directory
        self.workload = Workload(events)
        self._numbers = itertools.count(1)
        self._ending = ExitStack()
        self._writers: dict[tuple[str, float], Writer] = {}
        self._delayed: dict[float, Delayed] = {}
        self.note("starting PostgreSQL")
        self.database = self.start_postgres()
        self.peers = (EVENTSOURCING,) if find_spec("eventsourcing") and find_spec("psycopg_pool") else ()
        """Contenders that are there."""

    def start_postgres(self, further: str = "", *, standby_of: Postgres | None = None) -> Postgres:
        """A server with its files in the directory of the run, until that ends."""
        server = Postgres(POSTGRES_SETTINGS + further, standby_of=standby_of, directory=_open_to_all(self.directory))
        self._ending.callback(server.close)
        return server

    def new_home(self, server: Postgres, options: str = "") -> str:
        """The address of an empty home in a database of its own."""
        url = self.new_database(server)
        with psycopg.connect(url, autocommit=True) as connection:
            make_tables(connection)
        return url + options

    def new_database(self, server: Postgres) -> str:
        """The address of an empty database."""
        name = f"bench_{next(self._numbers)}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return server.url_of(name)

    def writer(self, name: str, round_trip_ms: float = 0.0) -> Writer:
        """A contender whose way to the database takes so long, filled."""
        if (found := self._writers.get((name, round_trip_ms))) is not None:
            return found
        self.note(f"filling {name}, {round_trip_ms:g} ms")
        directory = self.directory / f"copy-{next(self._numbers)}"
        if name == LOCAL:
            writer: Writer = HeadwaterWriter(directory, None)
        elif name == HOME:
            writer = HeadwaterWriter(directory, self._through(self.new_home(self.database), round_trip_ms))
        else:
            writer = EventsourcingWriter(directory, self._through(self.new_database(self.database), round_trip_ms))
        return self.keep(name, round_trip_ms, writer)

    def keep(self, name: str, round_trip_ms: float, writer: Writer) -> Writer:
        """Fill a contender, and close it in the end."""
        self._writers[name, round_trip_ms] = writer
        self._ending.callback(writer.close)
        events = self.workload.total
        writer.append_all(self.workload.batches(0, events, BATCH))
        if (head := writer.head()) != events:
            raise WrongAnswer(f"{name}: {head} events are there, not {events}")
        return writer

    def singles(self, count: int) -> list[list[Event]]:
        """So many appends of one event."""
        return [self.workload.fresh(1) for _ in range(count)]

    def commands(self, count: int) -> list[tuple[Pair, Event]]:
        """So many commands: two accounts drawn at random, and an event of both."""
        numbers = self.workload.account_numbers(count, seed=next(self._numbers))
        pairs = [_pair(number, self.workload.accounts) for number in numbers]
        return [(pair, self.workload.fresh(1, pair)[0]) for pair in pairs]

    def close(self) -> None:
        """End all of it."""
        self._ending.close()

    def _through(self, url: str, round_trip_ms: float) -> str:
        if not round_trip_ms:
            return url
        if (delayed := self._delayed.get(round_trip_ms)) is None:
            delayed = self._delayed[round_trip_ms] = Delayed(self.database.port, round_trip_ms)
            self._ending.callback(delayed.close)
        return url.replace(f":{self.database.port}/", f":{delayed.port}/")


def _open_to_all(directory: Path) -> Path:
    """The nearest one, from there upwards, that every user may enter: as root, PostgreSQL is another user."""
    for each in (directory, *directory.parents):
        if all(place.stat().st_mode & stat.S_IXOTH for place in (each, *each.parents)):
            return each
    raise WrongAnswer(f"no other user may enter {directory}")


def _pair(number: int, accounts: int) -> Pair:
    """An account, and another one far from it."""
    return f"account:{number}", f"account:{(number + 1 + number * 7919 % (accounts - 1)) % accounts}"


def labels(bench: HomesBench, round_trip_ms: float) -> Sequence[str]:
    """The contenders of a question: a local directory has no way to a database."""
    return (HOME, *(() if round_trip_ms else (LOCAL,)), *bench.peers)
