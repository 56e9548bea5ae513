"""Staged batches over a fail-over: a commit that has begun is finished by whoever is the primary, once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from headwater.client import connect
from headwater.core.errors import DuplicateEventId, EventLogError, InvalidInput, NotPrimary
from headwater.core.limits import APPEND_EVENTS_MAX
from headwater.core.mark import Committed
from headwater.flight.client import BulkClient
from headwater.formats.arrow import events
from headwater.formats.clients.retry import ServerUnreachable
from headwater.storage import Engine
from headwater.storage.log import StoredLog
from headwater.storage.staging.batches import Staging, batch_directory
from headwater.storage.staging.commit import commit_staged, discard_staged
from tests.ports import free_ports

from ...storage.staging.test_batches import rows
from ...storage.staging.test_batches import stage as staged_part
from ...waiting import eventually
from ..test_engine import Serve, contents, serve
from ..test_following import Replica
from ..test_servers import PATIENCE_S, Member, command, database, url

__all__ = ["database", "serve", "url"]
ROWS = APPEND_EVENTS_MAX * 3 // 4
"""Twice as many are more than one append takes."""


class Killed(Exception):
    """The server ends here."""


def ending_at(name: str, times: int = 1) -> Callable[[str], None]:
    """Ends a commit at that step, when it comes for that time."""
    left = [times]

    def step(done: str) -> None:
        if done == name:
            left[0] -= 1
            if not left[0]:
                raise Killed

    return step


def staged(log: StoredLog, count: int, *, batch: int = 1, first: int = 0) -> list[str]:
    staging = Staging(log.directory)
    return [staged_part(staging, batch, part, first + part * count // 2, count // 2) for part in (0, 1)]


def commit(log: StoredLog, stages: list[str], batch: int = 1, step: Callable[[str], None] = print) -> Committed:
    return commit_staged(log, log.directory, "w", batch, stages, step=step)


def kept(url: str) -> tuple[int, int]:
    """How many begun batches the home has, and how many pieces of parts."""
    with psycopg.connect(url, autocommit=True) as connection:
        [[batches]] = connection.execute("SELECT count(*) FROM headwater.batch").fetchall()
        [[pieces]] = connection.execute("SELECT count(*) FROM headwater.staged").fetchall()
        return batches, pieces


@pytest.fixture(autouse=True)
def _small_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "APPEND_EVENTS_MAX", 100)


def home_of(log: StoredLog) -> str:
    return str(log.frames.home.url)  # type: ignore[attr-defined]


@pytest.mark.parametrize("at", [("kept", 1), ("appended", 1), ("appended", 2), ("appended", 3)])
def test_a_commit_that_has_begun_is_finished_by_another_server_once(serve: Serve, at: tuple[str, int]) -> None:
    first = serve("a")
    log, url = first.orders, home_of(first.orders)
    stages = staged(log, 300)
    with pytest.raises(Killed):
        commit(log, stages, step=ending_at(*at))
    assert kept(url) == (1, 2)
    second = serve("b")  # nothing of the first one's disk is there
    log = second.orders
    staged(log, 10)  # a job that tries again; its rows are decided
    assert commit(log, stages) == Committed(1, 300, 300, 0, was_applied=at == ("appended", 3))  # the last of them
    assert commit(log, stages) == Committed(1, 300, 300, 0, True)
    assert contents(log) == [str(number).encode() for number in range(300)]
    assert kept(url) == (0, 0)
    if at != ("appended", 3):
        with pytest.raises(NotPrimary):  # who slept goes on with it, and is told that it is over
            commit(first.orders, stages)
    assert log.head() == 300


def test_an_older_batch_that_another_server_began_is_finished_before_the_next(serve: Serve) -> None:
    first = serve("a")
    with pytest.raises(Killed):
        commit(first.orders, staged(first.orders, 300), step=ending_at("appended"))
    url = home_of(first.orders)
    log = serve("b").orders
    assert commit(log, staged(log, 20, batch=2, first=1000), 2) == Committed(301, 320, 20, 0, False)
    assert contents(log) == [str(number).encode() for number in (*range(300), *range(1000, 1020))]
    assert kept(url) == (0, 0)


def test_a_batch_that_is_lost_with_its_server_is_told_to_be_gone_and_staged_again(serve: Serve) -> None:
    first = serve("a")
    small = staged(first.orders, 20)
    url = home_of(first.orders)
    large = staged(first.orders, 300, batch=2)
    with pytest.raises(Killed):
        commit(first.orders, large, 2, step=ending_at("manifest"))  # nothing of it is in the home, or in the log
    assert kept(url) == (0, 0)
    log = serve("b").orders
    for stages, batch in ((small, 1), (large, 2)):
        with pytest.raises(InvalidInput, match="that batch has no stage '0-0'"):
            commit(log, stages, batch)
    assert commit(log, staged(log, 300, batch=2), 2).events == 300


def test_a_commit_that_was_given_up_elsewhere_does_not_come_back(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    first = serve("a")
    log, url = first.orders, home_of(first.orders)
    with pytest.raises(Killed):
        commit(log, staged(log, 300), step=ending_at("kept"))
    second = serve("b")
    discard_staged(second.orders, second.orders.directory, "w", 1)
    assert kept(url) == (0, 0)
    first.close()
    third = serve("a")  # its manifest is on its disk still
    assert (batch_directory(third.orders.directory, "w", 1) / "MANIFEST.json").exists()
    assert commit(third.orders, ["0-0"]).events == 150  # of what is staged there, as the caller says
    with pytest.raises(DuplicateEventId):
        commit(third.orders, staged(third.orders, 300, batch=2), 2)
    assert kept(url) == (0, 0)


def test_what_was_left_in_the_middle_is_found_by_nobody_and_goes_with_time(serve: Serve) -> None:
    server = serve("a")
    log, url = server.orders, home_of(server.orders)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO headwater.staged VALUES (7, '0-0', 0, 'x', now() - interval '2 days')")
        connection.execute("INSERT INTO headwater.staged VALUES (8, '0-0', 0, 'x', now())")
    commit(log, staged(log, 300))
    assert kept(url) == (0, 1)
    with pytest.raises(Killed):
        commit(log, staged(log, 300, batch=2, first=300), 2, step=ending_at("kept"))
    assert kept(url) == (1, 3)
    server.engine.delete("orders")
    assert kept(url) == (0, 1)


def test_a_batch_of_a_flight_client_is_committed_once_though_its_server_is_killed_in_the_middle(
    url: str, tmp_path: Path
) -> None:
    flights = free_ports(2)
    members = [
        Member(url, tmp_path / name, "--flight-port", str(port), "--flight-start", "at_once")
        for name, port in zip("ab", flights, strict=True)
    ]
    first, second = members
    try:
        eventually(lambda: any(member.is_primary() for member in members))
        if second.is_primary():
            first, second = second, first
            flights.reverse()
        with BulkClient(f"grpc://127.0.0.1:{flights[0]}", retries=0) as bulk:
            stages = [bulk.stage("orders", "w", 1, part, 0, [rows(part * ROWS, ROWS)]).stage for part in (0, 1)]

            def begin() -> None:
                with suppress(EventLogError, ServerUnreachable):
                    bulk.commit("orders", "w", 1, stages)

            with psycopg.connect(url) as holding:  # the head of the log: the commit begins, and gets no further
                holding.execute("SELECT FROM headwater.log WHERE key <> '$state' FOR UPDATE")
                committing = threading.Thread(target=begin)
                committing.start()
                eventually(lambda: kept(url)[0] == 1)
                first.end(signal.SIGKILL)
            committing.join(PATIENCE_S)
        eventually(second.is_primary)
        with BulkClient(f"grpc://127.0.0.1:{flights[1]}") as bulk:
            done = bulk.commit("orders", "w", 1, stages)
            assert (done.events, done.was_applied) == (2 * ROWS, False)
            again = bulk.commit("orders", "w", 1, stages)
            assert (again.first, again.last, again.events, again.was_applied) == (1, 2 * ROWS, 2 * ROWS, True)
        with connect(second.url) as client:
            found = [each.id for each in client.log("orders").read()]
        assert found == [str(number) for number in range(2 * ROWS)]
        assert kept(url) == (0, 0)
    finally:
        for member in members:
            member.close()


def test_a_commit_that_began_on_one_server_is_finished_by_any_after_it_moved_into_a_home(
    url: str, serve: Serve, tmp_path: Path
) -> None:
    with Engine(tmp_path / "single", maintains=False, reserve_bytes=0) as engine:
        log = engine.create("orders")
        stages = staged(log, 400)
        with pytest.raises(Killed):
            commit(log, stages, step=ending_at("appended", 2))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA headwater CASCADE")
    command("home", "init", "--from", str(tmp_path / "single"), "--home", url)
    assert kept(url)[0] == 1
    server = serve("b")
    assert commit(server.orders, stages).events == 400
    assert len(contents(server.orders)) == 400 and kept(url)[0] == 0


def test_a_commit_that_began_at_a_home_is_finished_by_the_copy_that_left_it(
    url: str, serve: Serve, tmp_path: Path
) -> None:
    first = serve("a")
    stages = staged(first.orders, 400)
    with pytest.raises(Killed):
        commit(first.orders, stages, step=ending_at("appended", 2))
    first.close()
    command("home", "leave", "--data", str(tmp_path / "b"), "--home", url, expected=4)  # it is no copy yet
    Replica(url, tmp_path / "b").close()
    command("home", "leave", "--data", str(tmp_path / "b"), "--home", url)
    with Engine(tmp_path / "b", maintains=False, reserve_bytes=0) as engine:
        log = engine.open("orders")
        assert commit(log, stages).events == 400
        assert len(contents(log)) == 400
