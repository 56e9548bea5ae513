"""A server that starts while no host of its home takes writes waits for one, and for nothing else."""

from __future__ import annotations

import signal
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import psycopg

from headwater.cli.main import run

from ..waiting import eventually
from .postgres_server import Postgres
from .test_evidence import closing, hosts, primary, standby_of, started
from .test_servers import SERVE, Member

__all__ = ["closing", "primary"]


def waits(member: Member, why: str) -> bool:
    """Whether it runs, and is not ready for that reason."""
    return member.says("no host of the home accepts writes: ") and why in member.unready()


def test_a_server_starts_when_the_database_does(closing: ExitStack, primary: Postgres, tmp_path: Path) -> None:
    primary.stop()
    member = started(closing, primary.url, tmp_path / "a")
    eventually(lambda: waits(member, f"127.0.0.1:{primary.port} does not answer"))
    with urllib.request.urlopen(f"{member.url}/health/live", timeout=5) as answer:
        assert answer.status == 200
    primary.start()
    member.comes()
    assert member.append(0) == 1
    log = (tmp_path / "a.log").read_text()
    assert log.count("start the database, promote its standby, or correct the address (--home)") == 1, log
    assert member.end(signal.SIGTERM) == 0


def test_a_server_starts_when_a_standby_is_promoted(closing: ExitStack, primary: Postgres, tmp_path: Path) -> None:
    one = started(closing, primary.url, tmp_path / "a")
    one.comes()
    assert one.append(0) == 1
    standby = standby_of(closing, primary, "db_2")
    assert one.end(signal.SIGTERM) == 0
    primary.stop()
    members = [
        started(closing, hosts(primary, standby), tmp_path / "a"),
        started(closing, standby.url, tmp_path / "b"),
    ]
    for member in members:
        eventually(lambda: waits(member, f"127.0.0.1:{standby.port} accepts no writes"))  # noqa: B023 - called at once
    standby.promote()
    eventually(lambda: any(member.is_primary() for member in members))
    assert next(member for member in members if member.is_primary()).append(1) == 2


def test_a_server_that_waits_for_its_home_can_be_stopped(closing: ExitStack, primary: Postgres, tmp_path: Path) -> None:
    primary.stop()
    member = started(closing, primary.url, tmp_path / "a")
    eventually(lambda: waits(member, "does not answer"))
    assert member.end(signal.SIGTERM) == 0


def test_a_server_that_waits_ends_when_the_database_refuses_it(
    closing: ExitStack, primary: Postgres, tmp_path: Path
) -> None:
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("UPDATE headwater.home SET version = 99")
    primary.stop()
    addresses = [primary.url, primary.url_of("nowhere"), primary.url.replace("headwater@", "nobody@")]
    waiting = [started(closing, url, tmp_path / str(number)) for number, url in enumerate(addresses)]
    for member in waiting:
        eventually(lambda: waits(member, "does not answer"))  # noqa: B023 - called at once
    primary.start()
    said = []
    for number, member in enumerate(waiting):
        assert member.process.wait(60) == 4
        said.append((tmp_path / f"{number}.log").read_text())
    assert "the home has version 99" in said[0]
    assert 'database "nowhere" does not exist' in said[1]
    assert 'role "nobody" does not exist' in said[2]


def test_a_server_that_the_database_refuses_ends_at_once(primary: Postgres, tmp_path: Path, capsys) -> None:
    for url in (primary.url_of("nowhere"), primary.url.replace("headwater@", "nobody@")):
        assert run([*SERVE, "--home", url, "--data", str(tmp_path / "a")]) == 4
        assert "does not exist" in capsys.readouterr().err
