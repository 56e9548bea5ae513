"""Where the owner of a home declares that commits wait for standbys, a commit is answered only if they did."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.core.errors import OutcomeUnknown, StorageUnavailable
from headwater.homes.postgres.home import PostgresHome
from headwater.homes.postgres.schema import make_tables, set_promotion
from headwater.homes.postgres.standbys import missing
from headwater.storage.frames.frame_log import Head, HeadMoved, nobody
from headwater.storage.home.port import StandbysChanged

from ...waiting import eventually
from ..postgres_server import Postgres
from ..test_servers import Member, command
from .test_home import KEY, PATIENCE_S, frames

WAITS = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

QUEUES = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'transactionid'"


class Scene:
    """A home whose commits wait for the standby db_1, in a term that began so."""

    def __init__(self, stack: ExitStack) -> None:
        self.database = Postgres()
        stack.callback(self.database.close)
        self.standby = Postgres(standby_of=self.database, name="db_1")
        stack.callback(self.standby.close)
        self.connection = psycopg.connect(self.database.url, autocommit=True)
        stack.callback(self.connection.close)
        make_tables(self.connection)
        self.name("db_1")
        set_promotion(self.connection, "waited-for")
        self.home = PostgresHome(self.database.url)
        stack.callback(self.home.close)
        self.home.begin_term()
        self.home.create(KEY, 0)
        self.work = stack.enter_context(ThreadPoolExecutor())
        self._stack = stack

    def name(self, names: str) -> None:
        """Have commits wait for those standbys, by the configuration that is read again."""
        self.database.configure(f"synchronous_standby_names = '{names}'")
        self.database.reload()
        eventually(lambda: self.value("SHOW synchronous_standby_names") == names)

    def value(self, query: str) -> Any:
        """What the database answers, outside of the home."""
        [[found]] = self.connection.execute(query).fetchall()
        return found

    def replica(self) -> PostgresHome:
        """The same home, as another server has it."""
        return self._stack.enter_context(closing(PostgresHome(self.database.url)))

    def callback(self, end: Callable[[], object]) -> None:
        """Call that at the end of the test."""
        self._stack.callback(end)

    @property
    def head(self) -> Head:
        """Where the log ends."""
        found = self.home.head(KEY)
        assert found is not None
        return found

    def commit(self) -> None:
        """Append one event."""
        self.home.commit(KEY, frames(self.head), self.head, nobody)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def test_a_commit_is_unknown_whose_standbys_changed_while_it_waited(scene: Scene) -> None:
    scene.commit()
    scene.standby.pause()
    committing = scene.work.submit(scene.commit)
    eventually(lambda: scene.value(WAITS))
    scene.name("")  # the database answers who waits as if the standby had it
    with pytest.raises(OutcomeUnknown) as told:
        committing.result(PATIENCE_S)
    assert isinstance(told.value, StandbysChanged)
    assert "waited for the standbys 'db_1' when the term began, and wait for '' now" in told.value.why
    assert "headwater home promotion ask" in told.value.why


def test_a_commit_is_not_made_after_its_standbys_changed(scene: Scene) -> None:
    scene.commit()
    before = scene.head
    for names in ("", "ANY 1 (db_1, db_2)"):
        scene.name(names)
        with pytest.raises(StandbysChanged):
            scene.commit()
        assert scene.head == before
    scene.name("db_1")
    scene.commit()
    assert scene.head.number == 2


def test_a_commit_that_was_cancelled_is_unknown_if_standbys_changed_before_another_covered_it(scene: Scene) -> None:
    scene.commit()
    scene.standby.pause()
    committing = scene.work.submit(scene.commit)
    eventually(lambda: scene.value(WAITS))
    scene.connection.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    eventually(lambda: scene.value(WAITS))  # for the commit that is to cover it
    scene.name("")
    with pytest.raises(StandbysChanged):
        committing.result(PATIENCE_S)


def test_standbys_may_change_where_nothing_is_declared_of_them(scene: Scene) -> None:
    for value in ("ask", "managed"):
        set_promotion(scene.connection, value)
        scene.name("db_1")
        scene.home.begin_term()
        scene.name("")
        scene.commit()
    assert scene.head.number == 2


def test_no_term_begins_weaker_until_the_owner_declares_something_else(scene: Scene) -> None:
    scene.commit()
    granted = scene.home.try_lease("a", {}, 1, 60, is_forced=True)
    assert granted is not None and granted.waited_for == "db_1"
    assert scene.home.renew_lease(granted.term, 60).is_given
    scene.name("")
    assert not scene.home.renew_lease(granted.term, 60).is_given
    scene.home.release_lease(granted.term)
    assert scene.home.try_lease("a", {}, 2, 60) is None
    found = scene.home.standing()
    assert (found.is_vouched, found.may_be_proved, found.waited_for) == (False, False, "")
    assert "synchronous_standby_names is now ''" in found.obstacle
    scene.name("db_2")  # nobody has that name, but what is written waits for it
    assert scene.home.standing().is_vouched
    scene.name("")
    set_promotion(scene.connection, "ask")
    assert scene.home.standing().is_vouched
    after = scene.home.begin_term()
    assert after.number > granted.term.number + 1
    scene.commit()


def test_another_declaration_begins_another_term(scene: Scene) -> None:
    number = scene.head.term.number
    set_promotion(scene.connection, "waited-for")  # that is no news
    scene.commit()
    set_promotion(scene.connection, "managed")
    assert scene.head.term.number == number + 1
    with pytest.raises(HeadMoved):
        scene.home.commit(KEY, frames(scene.head), scene.head._replace(term=scene.home.term), nobody)


def end_of(home: PostgresHome) -> int:
    """Where a replica that follows this home finds the log to end."""
    return home.kept_heads().heads[KEY].number


def test_a_replica_fetches_nothing_that_the_standby_may_lack(scene: Scene) -> None:
    scene.commit()
    replica, another = scene.replica(), scene.replica()
    assert end_of(replica) == 1
    scene.standby.pause()
    committing = scene.work.submit(scene.commit)
    eventually(lambda: scene.value(WAITS))
    scene.name("")
    with pytest.raises(StandbysChanged):
        committing.result(PATIENCE_S)
    assert scene.head.number == 2  # it can be read
    for each in (replica, another):
        with pytest.raises(StorageUnavailable, match="commits no longer wait for every named standby"):
            end_of(each)
    set_promotion(scene.connection, "ask")
    assert [end_of(replica), end_of(another)] == [2, 2]


def test_a_replica_fetches_nothing_whose_wait_was_cut_short_by_a_change_of_standbys(scene: Scene) -> None:
    scene.commit()
    replica = scene.replica()
    assert end_of(replica) == 1
    scene.standby.pause()
    scene.work.submit(scene.commit)
    eventually(lambda: scene.value(WAITS))
    scene.connection.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    eventually(lambda: scene.head.number == 2)
    looking = scene.work.submit(end_of, replica)
    eventually(lambda: scene.value(QUEUES))  # behind the writer, who waits again
    scene.name("")
    with pytest.raises(StorageUnavailable, match="commits no longer wait for every named standby"):
        looking.result(PATIENCE_S)
    scene.standby.go_on()
    scene.name("db_1")
    assert end_of(replica) == 2


@pytest.mark.parametrize(
    ("configured", "connected", "absent"),
    [
        ("", [], None),
        ("db_1", ["db_1"], None),
        ("db_1", ["db_2"], "the standby db_1"),
        ("DB_1, db_2", ["db_2"], None),
        ("db_1, db_2", [], "the standby db_1 and db_2"),
        ('ANY 2 (db_1, "Db 2")', ["db_1"], "the standby db 2"),
        ("first 1 (db_1,db_2)", ["db_2"], None),
        ("2(db_1, db_2)", ["db_1", "db_2"], None),
        ("*", ["anything"], None),
        ("*", [], "any standby"),
    ],
)
def test_the_standbys_that_commits_wait_for_in_vain_are_named(
    configured: str, connected: list[str], absent: str | None
) -> None:
    found = missing(configured, connected)
    if absent is None:
        assert found is None
    else:
        assert found is not None and found.startswith(f"commits wait for {absent}, which is not connected"), found


def test_a_standby_that_is_not_connected_is_named_by_status_check_and_a_server(scene: Scene, tmp_path: Path) -> None:
    url = scene.database.url
    assert scene.home.missing_standbys() is None
    scene.home.release_lease(scene.home.term)
    member = Member(url, tmp_path / "a")
    scene.callback(member.close)
    eventually(member.is_primary)
    scene.standby.kill()
    eventually(lambda: scene.value("SELECT count(*) FROM pg_stat_replication") == 0)
    said = "commits wait for the standby db_1, which is not connected"
    assert f"note: {said}" in command("home", "status", "--home", url)
    assert said in json.loads(command("home", "status", "--home", url, "--json"))["missing_standbys"]
    assert f"note: {said}" in command("home", "check", "--home", url)
    log = tmp_path / "a.log"
    away = f"the home does not answer: .*; {said}"
    eventually(lambda: re.search(away, log.read_text()), log.read_text)
    eventually(lambda: f"database postgres waits for a standby: {said}" in log.read_text(), log.read_text)
    eventually(lambda: member.says(said))
    assert "on a slower network" not in log.read_text()
