"""A primary and its replicas, each a `headwater serve`, on a home of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from tests.homes.postgres_server import Postgres
from tests.load.chaos.members import Member
from tests.waiting import eventually

from headwater.client import connect
from headwater.homes.postgres.schema import make_tables

from ..workload import Workload
from .bench import BATCH

LOG = "orders"
_CONFIGURATION = f"""
home_lease_ms = 5000
[flight]
enabled = {{flight}}
start = "at_once"
[logs.{LOG}]
"""


@contextmanager
def members(directory: Path, database: Postgres, replicas: int, *, has_flight: bool = False) -> Iterator[list[Member]]:
    """The primary first, then as many replicas, each of which serves."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS headwater CASCADE")
        make_tables(connection)
    directory.mkdir()
    configuration = _CONFIGURATION.format(flight=str(has_flight).lower())
    found: list[Member] = []
    try:
        for number in range(1 + replicas):
            found.append(Member(directory, f"server-{number}", database.url, configuration))
            if number == 0:
                eventually(lambda: found[0].is_primary)
        for member in found[1:]:
            eventually(member.stands_by, lambda member=member: member.said()[-2000:])  # type: ignore[misc]
        yield found
    finally:
        for member in found:
            member.close()


def fill(primary: Member, replicas: list[Member], events: int) -> None:
    """Append so many events, and wait until the replicas have them."""
    workload = Workload(events)
    with connect(primary.url) as server:
        for batch in workload.batches(0, events, BATCH):
            server.log(LOG).append(batch)
    for member in replicas:
        with connect(member.url) as server:
            eventually(lambda server=server: server.log(LOG).head() == events)  # type: ignore[misc]
