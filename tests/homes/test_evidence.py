"""A home that changed is believed by what copies can prove, not by what is configured."""

from __future__ import annotations

import io
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path

import psycopg
import pytest

from headwater.cli.main import run
from headwater.client import connect
from headwater.core import Event
from headwater.core.errors import EventLogError
from headwater.storage.catalog.directories import RESTORE_JUMP
from tests.server.starting import start

from ..waiting import eventually
from .postgres_server import Postgres, address_of, postgres
from .test_servers import Member, command, reads_ahead, servers, status

LEASE_MS = "4000"
"""Long enough for databases that share two cores with others."""
Database = Callable[..., Postgres]


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def primary(closing: ExitStack) -> Postgres:
    """A database with a home."""
    database = closing.enter_context(postgres())
    command("home", "init", "--home", database.url)
    return database


def started(closing: ExitStack, url: str, directory: Path) -> Member:
    member = Member(url, directory, lease_ms=LEASE_MS)
    closing.callback(member.close)
    return member


def standby_of(closing: ExitStack, database: Postgres, name: str) -> Postgres:
    found = Postgres(standby_of=database, name=name)
    closing.callback(found.close)
    return found


def hosts(*databases: Postgres) -> str:
    """The address of the one among them that takes writes."""
    return address_of(*(each.port for each in databases))


def has_followed(standby: Postgres, database: Postgres) -> bool:
    with psycopg.connect(database.url, autocommit=True) as asked, psycopg.connect(standby.url, autocommit=True) as told:
        [[written]] = asked.execute("SELECT pg_current_wal_lsn()::text").fetchall()
        return told.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)).fetchone() == (True,)


def appended(member: Member, number: int) -> int | None:
    """The number that an event got; None: that server did not take it."""
    try:
        return member.append(number)
    except (EventLogError, OSError):
        return None


def accept_loss(url: str) -> str:
    """What the command says; it accepts nothing while a server has not compared its copy lately."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        run(("home", "accept-loss", "--yes", "--home", url, "--home-lease-ms", LEASE_MS))
    return printed.getvalue()


def with_five(closing: ExitStack, url: str, folder: Path) -> tuple[Member, Member]:
    """A primary and a replica, members both, which have five events."""
    one = started(closing, url, folder / "a")
    one.comes()
    two = started(closing, url, folder / "b")
    assert [one.append(number) for number in range(5)] == [1, 2, 3, 4, 5]
    eventually(lambda: servers(url).get(two.url, {}).get("lag_events") == 0)
    eventually(lambda: len(status(url)["members"]) == 2)
    return one, two


def wait_for(database: Postgres, name: str) -> None:
    """Have each commit wait for that standby, and the home know it."""
    database.configure(f"synchronous_standby_names = '{name}'")
    with psycopg.connect(database.url, autocommit=True) as connection:
        streams = "SELECT state FROM pg_stat_replication WHERE application_name = %s"
        eventually(lambda: connection.execute(streams, (name,)).fetchone() == ("streaming",))
    database.reload()
    with psycopg.connect(database.url, autocommit=True) as connection:
        flag = "SELECT (to_jsonb(lease) ->> 'is_waited_for')::boolean FROM headwater.lease"
        if "is_synchronous" in str(connection.execute("SELECT to_jsonb(lease) FROM headwater.lease").fetchone()):
            flag = "SELECT is_synchronous FROM headwater.lease"  # of version 1
        eventually(lambda: connection.execute(flag).fetchone() == (True,))


def test_a_promoted_standby_that_no_setting_named_is_not_believed_while_a_copy_is_missing(
    closing: ExitStack, primary: Postgres, tmp_path: Path
) -> None:
    named, unlisted = standby_of(closing, primary, "db_2"), standby_of(closing, primary, "db_3")
    url = hosts(primary, named, unlisted)
    one = started(closing, url, tmp_path / "a")
    one.comes()
    wait_for(primary, "db_2")
    two = started(closing, url, tmp_path / "b")
    assert [one.append(number) for number in range(5)] == [1, 2, 3, 4, 5]
    eventually(lambda: servers(url).get(two.url, {}).get("lag_events") == 0)
    assert two.end(signal.SIGTERM) == 0
    eventually(lambda: has_followed(unlisted, primary))
    unlisted.stop()
    assert [one.append(number) for number in range(5, 10)] == [6, 7, 8, 9, 10]
    one.end(signal.SIGKILL)  # with its database, and the standby that has all
    primary.kill()
    named.kill()
    unlisted.start()
    unlisted.promote()
    two = started(closing, url, tmp_path / "b")
    eventually(lambda: two.is_primary() or two.says("has not compared its copy"))
    assert not two.is_primary(), "events 6 to 10 were acknowledged, and their numbers would be given again"
    one = started(closing, url, tmp_path / "a")
    eventually(lambda: "ends with 10, but the home ends with 5" in status(url)["obstacle"])
    assert not two.is_primary()
    eventually(lambda: len(reads_ahead(one)) == 10)  # they may be nowhere else
    assert one.process.poll() is None


def test_a_promoted_standby_is_believed_when_every_copy_was_compared_whatever_was_set(
    closing: ExitStack, primary: Postgres, tmp_path: Path
) -> None:
    standby = standby_of(closing, primary, "any")
    url = hosts(primary, standby)
    one, two = with_five(closing, url, tmp_path)
    eventually(lambda: has_followed(standby, primary))
    primary.kill()
    standby.promote()
    eventually(lambda: appended(one, 5) == 6 or appended(two, 5) == 6)
    assert all(each["compared"]["timeline"] == 2 for each in status(url)["members"])


def test_appends_go_on_with_fewer_standbys_only_by_a_command_and_a_promotion_shows_it(
    closing: ExitStack, primary: Postgres, tmp_path: Path
) -> None:
    standby = standby_of(closing, primary, "db_2")
    url = hosts(primary, standby)
    command("home", "promotion", "waited-for", "--home", url)
    one = started(closing, url, tmp_path / "a")
    one.comes()
    wait_for(primary, "db_2")
    eventually(lambda: appended(one, 0) == 1)  # the term that waits for nobody ended
    eventually(lambda: has_followed(standby, primary))
    standby.kill()
    primary.configure("")
    primary.reload()
    assert appended(one, 1) is None
    eventually(lambda: one.says("synchronous_standby_names is now ''"))
    assert appended(one, 1) is None
    refused = command("home", "accept-loss", "--yes", "--home", url, expected=1)
    assert "headwater home promotion ask" in refused and "nothing was accepted" in refused
    assert "no server may append: commits no longer wait" in command("home", "status", "--home", url)
    two = started(closing, url, tmp_path / "b")  # it waits, and fetches nothing that a standby may lack
    eventually(lambda: two.says("commits no longer wait"))
    assert appended(two, 1) is None
    command("home", "promotion", "ask", "--home", url)
    eventually(lambda: any((appended(each, 2) or 0) > 1 for each in (one, two)))
    eventually(lambda: servers(url).get(two.url, {}).get("lag_events") == 0)
    assert b"0" in two.contents()
    assert two.end(signal.SIGTERM) == 0
    eventually(one.is_primary)
    primary.kill()
    eventually(lambda: not one.is_primary())
    standby.start()
    standby.promote()  # it knows that it was waited for, and no more
    eventually(lambda: one.is_primary() or any(map(one.says, ("is ahead", "has seen term", "ends with"))))
    assert not one.is_primary(), "it lacks an event that was acknowledged"


def test_two_databases_that_take_writes_stop_all_servers(closing: ExitStack, primary: Postgres, tmp_path: Path) -> None:
    standby = standby_of(closing, primary, "db_2")
    url = hosts(primary, standby)
    one = started(closing, url, tmp_path / "a")
    one.comes()
    assert one.append(0) == 1
    eventually(lambda: has_followed(standby, primary))
    standby.promote()
    both = f"127.0.0.1:{primary.port} and 127.0.0.1:{standby.port} accept writes"
    eventually(lambda: one.says(both))
    assert appended(one, 1) is None
    found = command("home", "check", "--home", url, expected=1)
    assert f"problem: {both}: stop the database that should not be the primary" in found
    assert both in command("home", "status", "--home", url)
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("UPDATE headwater.lease SET went_back = 'something is missing'")
    assert both in command("home", "accept-loss", "--yes", "--home", url, expected=1)
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("UPDATE headwater.lease SET went_back = ''")
    standby.kill()
    eventually(lambda: (appended(one, 2) or 0) > 1)


@pytest.mark.parametrize("is_same_cluster", [False, True])
def test_a_home_that_was_dumped_before_its_end_is_not(
    closing: ExitStack, primary: Postgres, tmp_path: Path, is_same_cluster: bool
) -> None:
    one = started(closing, primary.url, tmp_path / "a")
    one.comes()
    assert one.append(0) == 1
    if is_same_cluster:
        elsewhere = primary.copied("restored")
    else:
        other = closing.enter_context(postgres())
        primary.copy_to(other)
        elsewhere = other.url
    assert one.append(1) == 2
    assert one.end(signal.SIGTERM) == 0
    two = started(closing, elsewhere, tmp_path / "b")
    eventually(lambda: two.is_primary() or two.says("has not compared its copy with this database"))
    assert not two.is_primary()
    eventually(lambda: len(status(elsewhere)["members"]) == 2)
    of_one, of_two = f"{socket.gethostname()}:{one.port}", f"{socket.gethostname()}:{two.port}"
    assert f"the server {of_two} is running" in command("home", "forget", of_two, "--home", elsewhere, expected=4)
    assert "members are: " in command("home", "forget", "nobody", "--home", elsewhere, expected=4)
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        connection.execute("DELETE FROM headwater.server WHERE name = %s", (of_one,))  # the dump has that it ran
    assert "its copy is ignored" in command("home", "forget", of_one, "--home", elsewhere)
    eventually(lambda: two.says("no known copy contains all of term"))  # it was the last primary
    assert not two.is_primary()
    eventually(lambda: servers(elsewhere)[two.url]["lag_s"] is not None)
    eventually(lambda: "accepted; a server takes over" in accept_loss(elsewhere))
    eventually(two.is_primary)
    assert two.append(1) > RESTORE_JUMP


@pytest.fixture
def lacking(closing: ExitStack, primary: Postgres, tmp_path: Path) -> str:
    """The address of a promoted standby that lacks what the copy a has: orders 6 to 10, and the log bills."""
    standby = standby_of(closing, primary, "async")
    url = hosts(primary, standby)
    one, two = with_five(closing, url, tmp_path)
    eventually(lambda: has_followed(standby, primary))
    standby.stop()
    assert [one.append(number) for number in range(5, 10)] == [6, 7, 8, 9, 10]
    with connect(one.url) as server:
        assert server.create("bills").append([Event("E", b"a bill")]).first == 1
    for each in (two, one):
        each.end(signal.SIGKILL)
    primary.kill()
    standby.start()
    standby.promote()
    return url


def refill(url: str, directory: Path, expected: int = 0) -> str:
    return command("home", "refill", "--data", str(directory), "--home", url, expected=expected)


def has_all_again(closing: ExitStack, url: str, tmp_path: Path) -> None:
    """The servers go on with what was acknowledged, and the numbers behind it."""
    members = [started(closing, url, tmp_path / name) for name in ("a", "b")]
    eventually(lambda: any(appended(each, 10) == 11 for each in members), lambda: status(url))
    for each in members:
        eventually(lambda each=each: servers(url).get(each.url, {}).get("lag_events") == 0)
        with connect(each.url) as server:
            eventually(lambda server=server: server.log("orders").head() == 11)
            assert [event.data for event in server.log("orders").read()] == [b"%d" % number for number in range(11)]
            assert [event.data for event in server.log("bills").read()] == [b"a bill"]


def test_a_promoted_standby_gets_what_only_a_copy_has_and_servers_go_on(
    closing: ExitStack, lacking: str, tmp_path: Path
) -> None:
    incarnation = next((tmp_path / "a" / "logs").glob("orders.*")).name
    told = refill(lacking, tmp_path / "a")
    assert "bills: 1 event, numbered 1 to 1: restored to the home\n" in told
    assert "orders: 5 events, numbered 6 to 10: restored to the home\n" in told
    assert "the home contains all events of this copy" in told
    assert "no server may append yet: " in told and "has not compared its copy with this database" in told
    assert refill(lacking, tmp_path / "a").startswith("the home contains all events of this copy")
    has_all_again(closing, lacking, tmp_path)
    assert [each.name for each in (tmp_path / "b" / "logs").glob("orders.*")] == [incarnation]


@pytest.mark.parametrize("where", ["key <> '$state'", "key = '$state'"])
def test_a_refill_that_was_killed_is_repeated(closing: ExitStack, lacking: str, tmp_path: Path, where: str) -> None:
    blocking = closing.enter_context(psycopg.connect(lacking, autocommit=True))
    [[log]] = blocking.execute(f"SELECT id FROM headwater.log WHERE {where} ORDER BY head DESC LIMIT 1").fetchall()
    blocking.execute(_BLOCK.format(log=log))
    blocking.execute("SELECT pg_advisory_lock(42)")
    with (tmp_path / "refill.log").open("wb") as out:
        process = start(["home", "refill", "--data", str(tmp_path / "a"), "--home", lacking], stdout=out, stderr=out)
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    eventually(
        lambda: blocking.execute(waits).fetchone() == (1,) or process.poll() is not None,
        lambda: (tmp_path / "refill.log").read_text(),
    )
    process.kill()
    assert process.wait(60) == -signal.SIGKILL, (tmp_path / "refill.log").read_text()
    assert "has not ended: repeat headwater home refill there" in status(lacking)["obstacle"]
    blocking.execute("SELECT pg_advisory_unlock(42)")
    blocking.execute("DROP TRIGGER block ON headwater.frame")
    assert "the home contains all events of this copy" in refill(lacking, tmp_path / "a")
    has_all_again(closing, lacking, tmp_path)


_BLOCK = """
CREATE FUNCTION headwater.block() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END';
CREATE TRIGGER block BEFORE INSERT ON headwater.frame FOR EACH ROW WHEN (NEW.log = {log})
    EXECUTE FUNCTION headwater.block();
"""


def test_a_home_that_went_on_is_not_refilled_and_what_is_given_up_can_be_imported(
    closing: ExitStack, lacking: str, tmp_path: Path
) -> None:
    command("home", "promotion", "managed", "--home", lacking)  # which is not true of an asynchronous standby
    three = started(closing, lacking, tmp_path / "c")
    three.comes()
    assert three.append(50) == 6
    assert "holds the lease of this home" in refill(lacking, tmp_path / "a", expected=4)
    one = started(closing, lacking, tmp_path / "a")
    eventually(lambda: any(each["ahead"] for each in status(lacking)["members"]))
    assert "another process" in refill(lacking, tmp_path / "a", expected=4)
    for each in (one, three):
        assert each.end(signal.SIGTERM) == 0
    refused = refill(lacking, tmp_path / "a", expected=4)
    assert "log orders ends with 6 in the home, and only the copy contains the 5 entries after 5, up to 10" in refused
    accept = ("home", "accept-loss", "--yes", "--home", lacking, "--home-lease-ms", LEASE_MS)
    assert "run this there, with --data" in command(*accept, expected=1)
    target = tmp_path / "given-up"
    told = command(*accept, "--data", str(tmp_path / "a"), "--export", str(target))
    assert f"orders: 5 events, numbered 6 to 10: discarded; exported to {target}/orders.ndjson" in told
    assert f"bills: 1 event, numbered 1 to 1: discarded; exported to {target}/bills.ndjson" in told
    (tmp_path / "a").rename(tmp_path / "aside")
    one = started(closing, lacking, tmp_path / "a")
    one.comes()
    assert one.contents() == [b"0", b"1", b"2", b"3", b"4", b"50"]
    imported = command("import", str(target / "orders.ndjson"), "orders", "--url", one.url)
    assert "5 events: 5 appended" in imported
    assert one.contents() == [b"0", b"1", b"2", b"3", b"4", b"50", b"5", b"6", b"7", b"8", b"9"]
