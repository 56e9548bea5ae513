"""Faults of single servers of a home: each ends what it must, is told, and leaves the other servers alone."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from headwater.client import connect
from headwater.core.errors import DiskFull
from headwater.homes.driver import COPY_RETRY_S
from tests.ports import free_ports

from ..waiting import eventually
from .postgres_server import Postgres
from .test_replicas import answer, metrics, reads
from .test_servers import LEASE_MS, Member, command, database, status, url

__all__ = ["database", "url"]

Start = Callable[..., Member]
MAIN = "from headwater.cli.main import main; main()"
AN_HOUR_AHEAD = r"this clock is \+(3599|360\d)"
"""A slow answer of the home makes some of the difference."""


def on_a_disk_that_fills(full_while: Path, retry_s: float = COPY_RETRY_S) -> Sequence[str]:
    """A server whose disk is full for as long as that file is there."""
    text = (
        "from pathlib import Path; from headwater.storage import engine; from tests.storage.disks import FillingDisk; "
        f"engine.Disk = lambda: FillingDisk(Path({str(full_while)!r})); from headwater.homes import driver; "
        f"driver.COPY_RETRY_S = {retry_s}; {MAIN}"
    )
    return [sys.executable, "-c", text]


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[Start]:
    members: list[Member] = []

    def started(name: str, *settings: str, program: Sequence[str] | None = None, lease_ms: str = LEASE_MS) -> Member:
        members.append(Member(url, tmp_path / name, *settings, program=program, lease_ms=lease_ms))
        return members[-1]

    yield started
    for member in members:
        member.close()


def head(member: Member) -> int:
    return int(answer(member, "/logs/orders/head")[1].get("head", -1))


def test_a_replica_whose_disk_is_full_stops_to_serve_and_says_so_and_the_primary_goes_on(
    start: Start, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    first = start("a", lease_ms="10000")  # on a busy machine too it is the primary to the end
    eventually(first.is_primary)
    second = start("b", "--replica-stale-ms-max", "4000", program=on_a_disk_that_fills(full), lease_ms="10000")
    eventually(lambda: reads(second))
    assert first.append(0) == 1
    eventually(lambda: head(second) == 1)
    full.touch()
    assert first.append(1) == 2
    eventually(lambda: not reads(second))
    status, problem = answer(second, "/logs/orders/head")
    assert status == 503
    assert (
        "has not caught up with its home" in problem["detail"]
        and "the disk is full: 0 bytes are free" in problem["detail"]
    )
    eventually(lambda: "this server cannot be the primary: the disk is full" in second.unready(), second.unready)
    assert first.append(2) == 3 and first.is_primary()
    full.unlink()
    eventually(lambda: reads(second) and head(second) == 3)


def test_a_primary_whose_disk_is_full_gives_its_place_to_a_replica_if_there_is_one(
    start: Start, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    first = start("a", program=on_a_disk_that_fills(full))
    eventually(first.is_primary)
    assert first.append(0) == 1
    full.touch()
    with pytest.raises(DiskFull):  # there is nobody else: what it can do without room, it goes on to do
        first.append(1)
    with connect(first.url) as server:
        server.log("orders").trim(1)
    full.unlink()
    second = start("b")
    eventually(lambda: reads(second) and "headwater_replica_is_told 1.0" in metrics(second))
    full.touch()
    eventually(second.is_primary)
    assert second.append(1) == 2
    eventually(lambda: answers(first, "this server cannot be the primary: the disk is full"))
    append = {"events": [{"type": "E"}]}

    def appended() -> tuple[int, object]:
        return answer(first, "/logs/orders/append", method="POST", body=append)

    eventually(lambda: appended()[0] == 200, appended)


def test_where_no_server_has_room_one_is_the_primary_until_another_has(start: Start, url: str, tmp_path: Path) -> None:
    full = tmp_path / "full"
    program = on_a_disk_that_fills(full, 1.0)
    first = start("a", program=program)
    eventually(first.is_primary)
    assert first.append(0) == 1 and first.append(1) == 2
    full.touch()
    assert first.end(signal.SIGTERM) == 0
    first = start("a", program=program)
    eventually(lambda: status(url)["primary"] is not None)
    with connect(first.url) as server:
        assert server.log("orders").trim(2) == 2
    with pytest.raises(DiskFull):
        first.append(2)
    second = start("b")
    eventually(second.is_primary)
    assert second.append(2) == 3


def test_who_has_no_room_for_what_it_lacks_waits_until_it_has(start: Start, tmp_path: Path) -> None:
    full = tmp_path / "full"
    first = start("a")
    eventually(first.is_primary)
    second = start("b", program=on_a_disk_that_fills(full, 1.0))
    eventually(lambda: reads(second))
    full.touch()
    assert first.append(0) == 1
    first.end(signal.SIGKILL)
    eventually(lambda: "this server could not start" in (tmp_path / "b.log").read_text())
    full.unlink()
    eventually(second.is_primary)
    assert second.append(1) == 2


def test_a_server_whose_clock_is_an_hour_ahead_follows_and_takes_no_lease(start: Start, url: str) -> None:
    ahead = [sys.executable, "-c", f"import time; now = time.time; time.time = lambda: now() + 3600; {MAIN}"]
    second = start("b", program=ahead)
    eventually(lambda: answers(second, "this server cannot be the primary: " + AN_HOUR_AHEAD))
    assert "at most 2 s are allowed" in second.unready()
    assert status(url)["primary"] is None
    first = start("a")
    eventually(first.is_primary)
    assert first.append(0) == 1
    eventually(lambda: reads(second) and head(second) == 1)


def test_a_primary_without_room_keeps_its_place_where_who_is_there_takes_no_lease(start: Start, tmp_path: Path) -> None:
    full = tmp_path / "full"
    first = start("a", program=on_a_disk_that_fills(full))
    eventually(first.is_primary)
    assert first.append(0) == 1
    ahead = [sys.executable, "-c", f"import time; now = time.time; time.time = lambda: now() + 3600; {MAIN}"]
    second = start("b", program=ahead)
    eventually(lambda: reads(second) and head(second) == 1)
    eventually(lambda: any(re.search(AN_HOUR_AHEAD, each) for each in troubles(second)))
    full.touch()
    with pytest.raises(DiskFull):
        first.append(1)
    with connect(first.url) as server:
        assert server.log("orders").trim(1) == 1
    assert "headwater_replica_is_told 0.0" in metrics(second)
    told = tmp_path / "b.log"
    assert "no primary" not in told.read_text()
    first.end(signal.SIGKILL)  # and no other follows
    eventually(lambda: re.search("no primary.*" + AN_HOUR_AHEAD, told.read_text()), told.read_text)


def troubles(member: Member) -> Sequence[str]:
    """What a replica tells its operator."""
    return list(answer(member, "/health/ready?role=replica")[1].get("troubles", ()))


def answers(member: Member, pattern: str) -> bool:
    """Whether a server that is not ready says so."""
    try:
        return re.search(pattern, member.unready()) is not None
    except OSError:
        return False


def test_a_server_that_fills_its_copy_can_be_stopped(start: Start, tmp_path: Path) -> None:
    first = start("a")
    eventually(first.is_primary)
    assert first.append(0) == 1
    endless = f"""
from itertools import cycle
from headwater.homes.postgres.home import PostgresHome
from pathlib import Path
frames = PostgresHome.frames
def fetched_again_and_again(self, *given):
    Path({str(tmp_path / "fetches")!r}).touch()
    for _ in cycle([None]):
        list(frames(self, *given))
PostgresHome.frames = fetched_again_and_again
{MAIN}"""
    second = start("b", program=[sys.executable, "-c", endless])
    eventually((tmp_path / "fetches").exists)
    assert second.end(signal.SIGTERM) == 0


def test_an_advertised_address_that_nobody_reaches_is_told_and_costs_a_second(start: Start, tmp_path: Path) -> None:
    [nobody] = free_ports(1)
    first = start("a", "--advertise", f"http=http://127.0.0.1:{nobody}")
    eventually(first.is_primary)
    second = start("b")
    eventually(lambda: reads(second))
    assert first.append(0) == 1
    eventually(lambda: head(second) == 1)
    assert "headwater_replica_is_told 0.0" in metrics(second)
    trouble = f"cannot reach the primary at http://127.0.0.1:{nobody}"

    eventually(lambda: any(trouble in each for each in troubles(second)))
    used = command("serve", "--home", second.home, "--data", str(tmp_path / "b"), "--http-port", "0",
                   "--amqp-port", "0", "--flight-port", "0", expected=4)  # fmt: skip
    assert f"{tmp_path / 'b'}: in use by another process (pid {second.process.pid})" in used
    assert reads(second) and first.append(1) == 2


def test_a_role_without_rights_is_told_which_ones_it_needs(url: str, database: Postgres) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS stranger")
        connection.execute("CREATE ROLE stranger LOGIN")
    stranger = url.replace("//headwater@", "//stranger@")
    for arguments in (("home", "status"), ("serve", "--data", "unused", "--http-port", "0", "--amqp-port", "0")):
        told = command(*arguments, "--home", stranger, expected=4)
        assert "permission denied" in told and "home init --role" in told, told
