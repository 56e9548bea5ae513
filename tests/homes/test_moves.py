"""A home that moves to another database cluster after an orderly stop goes on there by itself, with its numbers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from headwater.client import connect
from headwater.homes.postgres.lease import identifier
from tests.interop.install import unavailable
from tests.interop.runtimes import PostgreSql
from tests.night import night

from ..waiting import eventually
from .postgres_server import Postgres, installed, programs_of
from .test_evidence import appended, started
from .test_servers import Member, command, servers, status


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def database(closing: ExitStack, programs: Path) -> Postgres:
    with programs_of(programs):
        made = Postgres()
    closing.callback(made.close)
    return made


def debian() -> Path:
    """The programs of Debian's PostgreSQL, which is older than the one that is installed for development."""
    if reason := PostgreSql().missing():
        unavailable(reason)
    return Path(PostgreSql.program("pg_ctl") or "").resolve().parent


def moved(old: Postgres, new: Postgres) -> None:
    """As the guide says it: by a dump where both are of one version, else by pg_upgrade."""
    if old.version == new.version:
        old.copy_to(new)
        return
    old.stop()
    new.stop()
    old.upgrade_to(new)
    new.start()


def of(url: str) -> str:
    """Which cluster that is."""
    with psycopg.connect(url, autocommit=True) as connection:
        return identifier(connection)


def logs(directory: Path) -> list[str]:
    """The incarnations of the logs in a copy."""
    return sorted(each.name for each in (directory / "logs").iterdir())


@pytest.mark.parametrize("way", ["dump", "pg_upgrade from 16", pytest.param("pg_upgrade from Debian's", marks=night)])
def test_a_home_that_moves_after_an_orderly_stop_goes_on_by_itself(
    closing: ExitStack, tmp_path: Path, way: str
) -> None:
    older = {"dump": lambda: installed(), "pg_upgrade from 16": lambda: installed(16)}.get(way, debian)
    old, new = database(closing, older()), database(closing, installed())
    command("home", "init", "--home", old.url)
    places = [tmp_path / name for name in ("a", "b")]
    one = started(closing, old.url, places[0])
    one.comes()
    two = started(closing, old.url, places[1])
    assert [one.append(number) for number in range(5)] == [1, 2, 3, 4, 5]
    with connect(one.url) as server:
        log = server.log("orders")
        consumer = log.register_consumer("who", "it", after=0)
        log.acknowledge(consumer.owner, consumer.component, 3, epoch=consumer.epoch)
    eventually(lambda: servers(old.url).get(two.url, {}).get("lag_events") == 0)
    incarnations = logs(places[0])
    clusters = of(old.url)
    assert [each.end(signal.SIGTERM) for each in (one, two)] == [0, 0]
    moved(old, new)
    assert of(new.url) != clusters
    members = [started(closing, new.url, place) for place in places]
    eventually(lambda: any(appended(each, 5) == 6 for each in members), lambda: status(new.url))
    for each, place in zip(members, places, strict=True):
        eventually(lambda each=each: holds(each, 6))
        assert logs(place) == incarnations
    with connect([each.url for each in members]) as server:
        [found] = server.log("orders").consumers()
    assert (found.owner, found.component, found.acknowledged) == ("who", "it", 3)


def holds(member: Member, count: int) -> bool:
    with connect(member.url) as server:
        return [event.data for event in server.log("orders").read()] == [b"%d" % number for number in range(count)]
