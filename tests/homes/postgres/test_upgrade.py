"""The format of a home becomes the next one by a command alone, and only when nobody is there who does not know it."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.core.errors import StorageUnavailable
from headwater.homes.postgres import servers
from headwater.homes.postgres.home import PostgresHome
from headwater.homes.postgres.members import Member
from headwater.homes.postgres.schema import SCHEMA_VERSION, findings, identity_of
from headwater.homes.postgres.servers import ServerReport
from headwater.homes.postgres.upgrade import STEPS, upgrade
from headwater.storage.home.port import JOURNAL_KEY
from headwater.storage.home.witness import Evidence
from tests.waiting import eventually

from ..postgres_server import fresh_home
from ..test_servers import SERVE, command
from ..test_servers import Member as Process

Connection = psycopg.Connection[tuple[Any, ...]]

NEXT = SCHEMA_VERSION + 1


@pytest.fixture
def url() -> str:
    return fresh_home()


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with psycopg.connect(url, autocommit=True) as connected:
        yield connected


@pytest.fixture
def is_next(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this is the next version of Headwater, which makes one more table."""
    monkeypatch.setattr("headwater.homes.postgres.schema.SCHEMA_VERSION", NEXT)
    steps = {SCHEMA_VERSION: "CREATE TABLE headwater.more (x integer); INSERT INTO headwater.more VALUES (1);"}
    monkeypatch.setattr("headwater.homes.postgres.upgrade.STEPS", steps)


def version_of(connection: Connection) -> int:
    [[version]] = connection.execute("SELECT version FROM headwater.home").fetchall()
    return int(version)


def server(name: str, format: int) -> ServerReport:
    return ServerReport(name, {}, "following", 0, 0, 0.1, "", "0.1.0", format)


def test_a_home_of_this_version_is_left_as_it_is(connection: Connection, url: str) -> None:
    assert upgrade(connection) == (SCHEMA_VERSION, SCHEMA_VERSION)
    assert f"nothing to do: the home has version {SCHEMA_VERSION}" in command("home", "upgrade", "--home", url)


def test_a_home_that_is_too_old_or_newer_is_refused_by_servers_and_left_alone(connection: Connection, url: str) -> None:
    for version, remedy in (
        (SCHEMA_VERSION - 2, "with an intermediate version of headwater"),
        (NEXT, "use a newer version"),
    ):
        connection.execute("UPDATE headwater.home SET version = %s", (version,))
        for refused in (
            command(*SERVE, "--home", url, "--data", "unused", expected=4),
            command("home", "upgrade", "--home", url, expected=4),
        ):
            assert f"the home has version {version}, but " in refused
            assert remedy in refused
        assert version_of(connection) == version


@pytest.mark.usefixtures("is_next")
def test_this_version_and_the_one_before_share_a_home_until_it_is_upgraded(connection: Connection, url: str) -> None:
    home = PostgresHome(url)
    assert home.incarnation == identity_of(connection).incarnation
    home.close()
    assert any("run headwater home upgrade when all servers are upgraded" in each.text for each in findings(connection))
    eventually(lambda: not servers.connected(connection))
    assert f"from version {SCHEMA_VERSION} to {NEXT}" in command("home", "upgrade", "--home", url)
    assert version_of(connection) == NEXT
    assert connection.execute("SELECT x FROM headwater.more").fetchall() == [(1,)]
    assert not any("home upgrade" in each.text for each in findings(connection))


@pytest.mark.usefixtures("is_next")
def test_nothing_is_changed_while_a_server_is_connected_that_does_not_know_the_new_version(
    connection: Connection, url: str
) -> None:
    servers.tell(connection, 1, server("new:1", NEXT))
    servers.tell(connection, 2, server("old:2", SCHEMA_VERSION))
    refused = command("home", "upgrade", "--home", url, expected=4)
    assert f"these servers do not support version {NEXT} of the home: old:2 (headwater 0.1.0)" in refused
    assert version_of(connection) == SCHEMA_VERSION
    # It sleeps: nothing is heard of it, and its connections are there.
    connection.execute("UPDATE headwater.server SET heard_at = heard_at - interval '1 minute' WHERE process = 2")
    with psycopg.connect(url, application_name="headwater replica 2", autocommit=True):
        assert "old:2" in command("home", "upgrade", "--home", url, expected=4)
    eventually(lambda: not servers.connected(connection))  # its session ends a moment after its connection
    with psycopg.connect(url, application_name="headwater primary abc", autocommit=True):
        assert "1 connected processes do not report" in command("home", "upgrade", "--home", url, expected=4)
    eventually(lambda: not servers.connected(connection))
    assert version_of(connection) == SCHEMA_VERSION
    with psycopg.connect(url, application_name="headwater primary 1", autocommit=True):
        upgrade(connection)
    assert version_of(connection) == NEXT


@pytest.mark.usefixtures("is_next")
def test_a_primary_that_slept_through_an_upgrade_is_fenced_off(connection: Connection, url: str) -> None:
    home = PostgresHome(url)
    term = home.begin_term()
    home.tell_of(server("it", NEXT))
    upgrade(connection)
    assert (head := home.head(JOURNAL_KEY)) is not None
    assert head.term.number == term.number + 1
    assert not home.renew_lease(term, 5).is_given
    assert home.begin_term().number == term.number + 2
    home.close()


@pytest.mark.usefixtures("is_next")
def test_an_upgrade_that_fails_changes_nothing(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {SCHEMA_VERSION: "CREATE TABLE headwater.more (x integer); DROP TABLE headwater.none;"}
    monkeypatch.setattr("headwater.homes.postgres.upgrade.STEPS", steps)
    with pytest.raises(psycopg.errors.UndefinedTable):
        upgrade(connection)
    assert version_of(connection) == SCHEMA_VERSION
    assert connection.execute("SELECT to_regclass('headwater.more')").fetchone() == (None,)
    connection.execute("DROP SCHEMA headwater CASCADE")
    with pytest.raises(StorageUnavailable, match="this database contains no home"):
        upgrade(connection)


def make_first(connection: Connection) -> None:
    """Bring the home to what it was in version 1."""
    connection.execute(
        """
DROP TABLE headwater.member;
DROP INDEX headwater.log_by_key;
ALTER TABLE headwater.log ADD PRIMARY KEY (id), ADD UNIQUE (key);
ALTER TABLE headwater.home DROP COLUMN promotion;
ALTER TABLE headwater.lease RENAME COLUMN is_waited_for TO is_synchronous;
ALTER TABLE headwater.lease DROP COLUMN identifier, DROP COLUMN since, DROP COLUMN why;
UPDATE headwater.home SET version = 1;
"""
    )


def test_a_home_of_version_1_is_served_until_it_is_upgraded_under_its_servers(connection: Connection, url: str) -> None:
    make_first(connection)
    home = PostgresHome(url)
    try:
        assert "run headwater home upgrade first" in command("home", "promotion", "managed", "--home", url, expected=4)
        granted = home.try_lease("one", {}, 1, 60, member="a copy")
        assert granted is not None and home.renew_lease(granted.term, 60).is_given
        assert home.standing().is_vouched and not home.knows_cluster()
        home.know_cluster()
        member = Member("one", Evidence("a copy", 1, 2, "boot", granted.term, granted.term))
        home.enter_member(member)
        assert home.members() == [] and not home.forget_member("one")
        connection.execute("UPDATE headwater.lease SET timeline = 99")
        assert home.standing().obstacle.startswith("a standby of the database was promoted")
        assert home.accept(0) == [] and home.standing().is_vouched
        home.tell_of(server("one", SCHEMA_VERSION))
        assert upgrade(connection) == (1, SCHEMA_VERSION)
        assert not home.renew_lease(granted.term, 60).is_given
        assert home.standing().is_vouched and not home.knows_cluster()
        assert home.try_lease("one", {}, 2, 60, member="a copy") is None
        home.enter_member(member)
        assert home.members() == [member]
        assert home.try_lease("one", {}, 2, 60, member="a copy") is not None
        home.know_cluster()
        assert home.knows_cluster() and home.standing().is_vouched
    finally:
        home.close()


OLDER = [
    sys.executable,
    "-c",
    "from headwater.homes.postgres import lease, schema; del lease._VERSIONS[2]; schema.SCHEMA_VERSION = 1; "
    "from headwater.server.replicas import membership; membership.SCHEMA_VERSION = 1; "
    "from headwater.cli.main import main; main()",
]
"""A server that knows version 1 of a home, and nothing newer."""


def test_an_older_primary_that_slept_through_an_upgrade_writes_nothing_afterwards(
    connection: Connection, url: str, tmp_path: Path
) -> None:
    make_first(connection)
    upgrading = ("home", "upgrade", "--home", url)
    members = [Process(url, tmp_path / "old", program=OLDER)]
    [older] = members
    try:
        older.comes()
        assert older.append(0) == 1
        older.process.send_signal(signal.SIGSTOP)
        connection.execute("UPDATE headwater.server SET heard_at = heard_at - interval '1 minute'")
        assert f"do not support version {SCHEMA_VERSION} of the home: " in command(*upgrading, expected=4)
        assert version_of(connection) == 1, "it sleeps, and is connected"
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'headwater %'"
        )
        eventually(lambda: not servers.connected(connection))
        assert "from version 1" in command(*upgrading)
        members.append(newer := Process(url, tmp_path / "new"))
        newer.comes()
        assert newer.append(1) == 2
        term = "SELECT DISTINCT term, nonce FROM headwater.log"
        [before] = connection.execute(term).fetchall()
        body = b'{"events": [{"type": "E", "data": "old"}]}'
        fields = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        head = f"POST /logs/orders/append HTTP/1.1\r\n{fields}\r\n"
        with socket.create_connection(("127.0.0.1", older.port), 60) as asked:
            asked.sendall(head.encode() + body)
            older.process.send_signal(signal.SIGCONT)
            assert asked.recv(65536).split()[1] in (b"421", b"503")
        eventually(lambda: older.says("the home does not answer"), older.unready)
        assert newer.append(2) == 3
        assert newer.contents() == [b"0", b"1", b"2"]
        assert connection.execute(term).fetchall() == [before]
        assert version_of(connection) == SCHEMA_VERSION
    finally:
        for each in members:
            each.close()


@pytest.mark.parametrize(
    "names, expected",
    [("", "ask"), ("db_2", "waited-for"), ("ANY 1 (db_1, db_2)", "ask"), ("ANY 2 (a, b)", "waited-for")],
)
def test_an_upgrade_declares_what_the_setting_of_that_moment_vouched_for(
    connection: Connection, names: str, expected: str
) -> None:
    make_first(connection)
    # no standby is there that a commit could wait for
    connection.execute(STEPS[1].replace("current_setting('synchronous_standby_names')", f"'{names}'"))
    assert connection.execute("SELECT promotion FROM headwater.home").fetchone() == (expected,)
