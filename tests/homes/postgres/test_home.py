"""The home in PostgreSQL: what is committed, what is not, and what is said of it when answers are lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import datetime
from itertools import cycle
from typing import Any, NoReturn

import psycopg
import psycopg.sql
import pytest

from headwater.core.errors import NotPrimary, OutcomeUnknown, StorageUnavailable
from headwater.homes.postgres import home as module
from headwater.homes.postgres import schema, statements
from headwater.homes.postgres.connections import Connections
from headwater.homes.postgres.home import PostgresHome
from headwater.homes.postgres.lease import VOUCHES, Granted, LeaseStanding
from headwater.homes.postgres.schema import (
    RIGHTS,
    SCHEMA_VERSION,
    findings,
    initial_sql,
    make_tables,
    pooling,
    set_promotion,
)
from headwater.homes.postgres.servers import ServerReport
from headwater.storage.frames.encoding import Chain, EncodedFrame
from headwater.storage.frames.frame_log import Head, HeadMoved, nobody
from headwater.storage.frames.layout import MAGIC
from headwater.storage.home.port import JOURNAL_KEY

from ...storage.builders import SEED, content, encoded, event
from ...waiting import eventually
from ..postgres_server import Postgres, fresh_home
from ..proxy import Proxy

KEY = "a" * 32
ALL = 2**63 - 1
PATIENCE_S = 60


def frames(after: Head, count: int = 1, *, data: bytes = b"x", nonce: int = 1) -> list[EncodedFrame]:
    """Frames of one event each behind that head."""
    made: list[EncodedFrame] = []
    number, crc = after.number, after.crc
    for index in range(count):
        chain = Chain(SEED, after.term.number, crc, number, nonce + index)
        made.append(encoded([event("E", data=data)], number + 1, chain=chain))
        number, crc = made[-1].last, made[-1].crc
    return made


def is_commit(sent: bytes) -> bool:
    """Whether a message to the server has a frame in it."""
    return MAGIC in sent


class Desk:
    """A home that is reached through a proxy, and one log in it."""

    def __init__(self, **options: float) -> None:
        self.url = fresh_home()
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])
        self.proxy = Proxy(self.port)
        self.home = self.opened(**options)
        self.home.begin_term()
        self.home.create(KEY, 0)
        self.work = ThreadPoolExecutor()

    def opened(self, **options: float) -> PostgresHome:
        return PostgresHome(self.proxy.before(self.url), **options)

    @property
    def head(self) -> Head:
        try:
            found = self.home.head(KEY)
        except StorageUnavailable:  # on a connection that was cut
            found = self.home.head(KEY)
        assert found is not None
        return found

    def commit(self, made: Sequence[EncodedFrame], after: Head, on_overdue: Callable[[], None] = nobody) -> None:
        self.home.commit(KEY, made, after, on_overdue)

    def begin(self, made: Sequence[EncodedFrame], after: Head, on_overdue: Callable[[], None] = nobody) -> Future[None]:
        return self.work.submit(self.commit, made, after, on_overdue)

    def stored(self) -> list[bytes]:
        with psycopg.connect(self.url) as connection:
            query = "SELECT content FROM headwater.frame ORDER BY last"
            return [bytes(row[0]) for row in connection.execute(query, binary=True)]

    def close(self) -> None:
        self.home.close()
        self.proxy.close()
        self.work.shutdown()


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


@pytest.fixture
def hasty() -> Iterator[Desk]:
    """One that soon says that it takes too long."""
    made = Desk(overdue_s=0.3, silence_s=1.0)
    yield made
    made.close()


def test_frames_are_committed_in_order_and_read_by_pages(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_FRAMES", 3)
    begin = desk.head
    made = frames(begin, 7)
    desk.commit(made[:4], begin)
    desk.commit(made[4:], desk.head)
    assert desk.head == Head(7, made[-1].crc, desk.home.term)
    assert [bytes(each) for each in desk.home.frames(KEY, 0, ALL)] == list(map(content, made))
    assert [bytes(each) for each in desk.home.frames(KEY, 5, ALL)] == list(map(content, made[5:]))
    assert list(desk.home.frames(KEY, 7, ALL)) == []


def test_large_frames_are_read_a_page_of_bytes_at_a_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_BYTES", 10_000)
    begin = desk.head
    made = frames(begin, 5, data=b"y" * 9_000)
    desk.commit(made, begin)
    assert [bytes(each) for each in desk.home.frames(KEY, 0, ALL)] == list(map(content, made))


def test_the_log_of_a_home_is_one_chain(desk: Desk) -> None:
    begin = desk.head
    desk.commit(frames(begin), begin)
    for expected in (
        begin,
        desk.head._replace(crc=7),
        desk.head._replace(term=desk.head.term._replace(nonce=7)),
        desk.head._replace(term=desk.head.term._replace(number=7)),
    ):
        with pytest.raises(HeadMoved) as moved:
            desk.commit(frames(expected, data=b"other"), expected)
        assert moved.value.head == desk.head
    assert len(desk.stored()) == 1


def test_several_frames_are_committed_all_or_none(desk: Desk) -> None:
    begin = desk.head
    with psycopg.connect(desk.url, autocommit=True) as connection:  # the second one cannot be inserted
        connection.execute("INSERT INTO headwater.frame SELECT id, 2, '' FROM headwater.log WHERE key = %s", (KEY,))
    with pytest.raises(StorageUnavailable, match="duplicate key"):
        desk.commit(frames(begin, 3), begin)
    assert desk.head == begin
    assert desk.stored() == [b""]


def test_a_lost_answer_is_asked_for_until_it_is_known(desk: Desk) -> None:
    for _ in range(8):  # the statement is prepared by and by
        begin = desk.head
        made = frames(begin, 2)
        desk.proxy.lose_answer_to(is_commit)
        desk.commit(made, begin)
        assert desk.head == Head(made[-1].last, made[-1].crc, desk.home.term)
    assert len(desk.stored()) == 16


def test_a_lost_statement_is_sent_again(desk: Desk) -> None:
    begin = desk.head
    made = frames(begin, 2)
    desk.proxy.lose(is_commit)
    desk.commit(made, begin)
    assert desk.stored() == list(map(content, made))


def test_a_statement_that_another_waits_for_is_executed_once(desk: Desk) -> None:
    """The connection is lost while the statement waits for a lock: it is executed later, after one more try began."""
    begin = desk.head
    made = frames(begin)
    with psycopg.connect(desk.url) as blocking:
        blocking.execute("SELECT FROM headwater.log WHERE key = %s FOR UPDATE", (KEY,))
        committing = desk.begin(made, begin)
        with psycopg.connect(desk.url, autocommit=True) as looking:
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            eventually(lambda: looking.execute(waits).fetchone() == (1,))
            desk.proxy.cut()
            eventually(lambda: looking.execute(waits).fetchone() == (2,))
        blocking.rollback()
    committing.result(PATIENCE_S)
    assert desk.stored() == list(map(content, made))


def test_who_lost_the_term_cannot_append_nor_make_a_log(desk: Desk) -> None:
    begin = desk.head
    other = desk.opened()
    try:
        term = other.begin_term()
        assert term.number == desk.home.term.number + 1
        with pytest.raises(HeadMoved) as moved:
            desk.commit(frames(begin), begin)
        assert moved.value.head.term == term
        with pytest.raises(NotPrimary):
            desk.home.create("b" * 32, 0)
        desk.home.delete(KEY)
        assert set(other.heads()) == {JOURNAL_KEY, KEY}
        other.commit(KEY, made := frames(other.head(KEY) or begin), other.head(KEY) or begin, nobody)
        desk.home.forget(KEY, 100)
        assert desk.stored() == list(map(content, made))
    finally:
        other.close()


def test_a_forgotten_frame_does_not_come_back(desk: Desk) -> None:
    begin = desk.head
    made = frames(begin, 3)
    desk.commit(made, begin)
    desk.home.forget(KEY, 3)
    assert [bytes(each) for each in desk.home.frames(KEY, 0, ALL)] == [content(made[2])]
    with pytest.raises(HeadMoved):  # as somebody who slept since the beginning would
        desk.commit(frames(begin, nonce=99), begin)
    assert desk.stored() == [content(made[2])]


def test_a_log_is_made_once_and_deleted_with_its_frames(desk: Desk) -> None:
    begin = desk.head
    desk.commit(frames(begin, 3), begin)
    desk.home.create(KEY, 0)
    assert desk.head.number == 3
    desk.home.create("b" * 32, 41)
    assert desk.home.heads()["b" * 32] == Head(41, 0, desk.home.term)
    desk.home.delete(KEY)
    assert desk.home.head(KEY) is None
    assert desk.stored() == []
    with pytest.raises(ValueError, match="expected the key of a log, got that of the journal"):
        desk.home.delete(JOURNAL_KEY)


def test_what_was_never_sent_is_refused_and_a_home_that_comes_back_is_noticed(hasty: Desk) -> None:
    begin = hasty.head
    hasty.proxy.is_refusing = True
    hasty.proxy.cut()
    with pytest.raises(StorageUnavailable):  # on the connection that was there; from now on there is none
        hasty.home.heads()
    with pytest.raises(StorageUnavailable) as refused:
        hasty.commit(frames(begin), begin)
    assert "PostgreSQL at 127.0.0.1" in str(refused.value)
    assert "127.0.0.1" not in refused.value.reason
    eventually(lambda: hasty.home.unavailable is not None)
    hasty.proxy.is_refusing = False
    eventually(lambda: hasty.home.unavailable is None)
    hasty.commit(frames(begin), begin)


def test_a_full_disk_of_the_database_is_told_as_such(hasty: Desk) -> None:
    full = "BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END"
    with psycopg.connect(hasty.url, autocommit=True) as connection:
        connection.execute(f"CREATE FUNCTION headwater.full() RETURNS trigger LANGUAGE plpgsql AS $$ {full} $$")
        trigger = "CREATE TRIGGER is_full BEFORE INSERT ON headwater.frame EXECUTE FUNCTION headwater.full()"
        connection.execute(trigger)
    begin = hasty.head
    with pytest.raises(StorageUnavailable, match="no space left on device") as refused:
        hasty.commit(frames(begin), begin)
    assert refused.value.reason.startswith("the disk of the database is full")


def test_who_waits_for_an_unknown_outcome_is_told_and_it_is_known_later(hasty: Desk) -> None:
    begin = hasty.head
    told = threading.Event()
    hasty.proxy.lose_answer_to(is_commit)
    hasty.proxy.is_refusing = True  # so nobody can be asked
    committing = hasty.begin(frames(begin), begin, told.set)
    assert told.wait(PATIENCE_S)
    assert not committing.done()
    hasty.proxy.is_refusing = False
    committing.result(PATIENCE_S)
    assert len(hasty.stored()) == 1


def test_a_silent_connection_is_severed_and_another_one_tried(hasty: Desk) -> None:
    begin = hasty.head
    hasty.proxy.stop()
    committing = hasty.begin(frames(begin), begin)
    eventually(lambda: hasty.home.unavailable is not None)
    assert "no answer for" in str(hasty.home.unavailable)
    hasty.proxy.go_on()
    committing.result(PATIENCE_S)
    assert len(hasty.stored()) == 1


def test_who_waits_when_the_home_is_closed_is_told(hasty: Desk) -> None:
    begin = hasty.head
    told = threading.Event()
    hasty.proxy.lose_answer_to(is_commit)
    hasty.proxy.is_refusing = True
    committing = hasty.begin(frames(begin), begin, told.set)
    assert told.wait(PATIENCE_S)
    hasty.home.close()
    with pytest.raises(OutcomeUnknown):
        committing.result(PATIENCE_S)
    with pytest.raises(StorageUnavailable, match="closed"):
        hasty.home.heads()


def test_a_lease_is_one_servers_at_a_time_by_the_clock_of_the_home(desk: Desk) -> None:
    home, other = desk.home, desk.opened()
    try:
        mine = home.try_lease("one", {"http": "http://one:8080"}, 11, 60)
        assert mine is not None
        assert other.try_lease("two", {}, 22, 60) is None
        standing = other.standing()
        assert (standing.holder, standing.addresses, standing.term) == ("one", {"http": "http://one:8080"}, mine.term)
        assert 50 < standing.remaining_s <= 60
        assert home.try_lease("one", {}, 11, 120) == mine  # an answer that was lost
        assert home.renew_lease(mine.term, 200).is_given
        assert not home.renew_lease(mine.term._replace(nonce=12), 200).is_given
        assert home.standing().remaining_s > 150
        other.release_lease(mine.term._replace(number=1))
        assert home.standing().remaining_s > 150
        home.release_lease(mine.term)
        assert home.standing().remaining_s == 0
        theirs = other.try_lease("two", {}, 22, 60)
        assert theirs is not None
        assert theirs.term == (mine.term.number + 1, 22)
        assert not home.renew_lease(mine.term, 60).is_given
        assert home.try_lease("one", {}, 11, 30) is not None  # theirs would last longer than any does
    finally:
        other.close()


def test_fences_only_go_up(desk: Desk) -> None:
    other = desk.opened()
    try:
        old = desk.home.try_lease("one", {}, 11, 0)
        new = other.try_lease("two", {}, 22, 60)
        assert old is not None
        assert new is not None
        assert other.fence_journal(new)
        assert not desk.home.fence_journal(old)
        assert not desk.home.fence_logs(old)
        assert other.fence_logs(new)
        assert other.fence_logs(new)  # again
        assert {head.term for head in other.heads().values()} == {new.term}
    finally:
        other.close()


def test_a_home_that_is_marked_gives_no_lease_until_it_is_accepted(desk: Desk) -> None:
    granted = desk.home.try_lease("one", {}, 11, 60)
    assert granted is not None
    desk.home.mark("log orders: a copy has 5, the home 3")
    desk.home.mark("something else")
    assert desk.home.standing().went_back == "log orders: a copy has 5, the home 3"
    assert not desk.home.standing().is_vouched
    assert not desk.home.renew_lease(granted.term, 60).is_given
    desk.home.release_lease(granted.term)
    assert desk.home.try_lease("one", {}, 12, 60) is None
    with pytest.raises(StorageUnavailable, match="grants no lease: log orders: a copy has 5"):
        desk.home.begin_term()
    desk.home.accept(30)
    assert desk.home.try_lease("one", {}, 12, 60) is None  # who had it counts on it still
    desk.home.accept(0)
    assert desk.home.try_lease("one", {}, 12, 60) is not None


def test_a_cancelled_wait_for_a_standby_is_waited_for_again() -> None:
    with psycopg.connect(fresh_home()):  # PostgreSQL answers "committed" to who is not waited for any more
        primary = Postgres("synchronous_standby_names = 'standby'\n")
    standby: Postgres | None = None
    try:
        primary.configure("")
        primary.reload()
        standby = Postgres(standby_of=primary)
        with psycopg.connect(primary.url, autocommit=True) as connection:
            make_tables(connection)
            home = PostgresHome(primary.url)
            before = home.try_lease("one", {}, 1, 60)
            assert before is not None
            primary.configure("synchronous_standby_names = 'standby'")
            primary.reload()
            eventually(lambda: connection.execute("SHOW synchronous_standby_names").fetchone() == ("standby",))
            waited_for = "SELECT is_waited_for FROM headwater.lease"
            assert connection.execute(waited_for).fetchone() == (False,)
            for _ in range(2):  # the second one knows that the first one waited
                assert home.renew_lease(before.term, 60).is_given
            assert connection.execute(waited_for).fetchone() == (True,)
            home.begin_term()
            home.create(KEY, 0)
            begin = home.head(KEY)
            assert begin is not None
            standby.pause()
            with ThreadPoolExecutor() as work:
                committing = work.submit(home.commit, KEY, frames(begin), begin, nobody)
                waits = "SELECT pid, query_start FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                cancelled: set[tuple[int, datetime]] = set()
                for _ in range(3):
                    eventually(lambda: set(connection.execute(waits)) - cancelled)
                    [wait] = set(connection.execute(waits)) - cancelled
                    connection.execute("SELECT pg_cancel_backend(%s)", wait[:1])
                    cancelled.add(wait)
                    assert not committing.done()
                standby.go_on()
                committing.result(PATIENCE_S)
            assert len({pid for pid, _ in cancelled}) == 1
            primary.kill()
            standby.promote()
            home.close()
            after = PostgresHome(standby.url)
            assert [len(bytes(each)) for each in after.frames(KEY, 0, ALL)] == [len(content(frames(begin)[0]))]
            after.close()
    finally:
        primary.close()
        if standby is not None:
            standby.close()


def test_a_host_that_does_not_answer_costs_its_time_once() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent, ExitStack() as closing:
        dead = silent.getsockname()[1]
        user_and_place, _, database = fresh_home().rpartition("/")
        user, _, place = user_and_place.rpartition("@")
        home = PostgresHome(f"{user}@127.0.0.1:{dead},{place}/{database}?connect_timeout=2")
        closing.callback(home.close)
        silent.settimeout(PATIENCE_S)
        silent.accept()[0].close()
        home._statements.connections.drop_idle()
        assert home.head(JOURNAL_KEY) is not None
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize(
    ("address", "longest", "expected"),
    [("postgresql://a/x", None, 5), ("postgresql://a/x?connect_timeout=20", None, 20),
     ("postgresql://a/x?connect_timeout=20", 2, 2), ("host=a,b connect_timeout=1", 2, 1)],
)  # fmt: skip
def test_the_connect_timeout_of_an_address_counts(
    address: str, longest: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tried(Exception):
        """What it was tried with."""

    def connect(*_: object, **given: object) -> NoReturn:
        raise Tried(given["connect_timeout"])

    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    with pytest.raises(Tried, match=f"^{expected}$"), Connections(address, "a", connect_s_max=longest).one(print):
        pass


@pytest.mark.parametrize(
    ("names", "vouches"),
    [
        ("", False),
        ("db_1", True),
        ("2", True),
        ('"a b"', True),
        ('"a,b"', True),
        ('"2 (a, b)"', True),
        ("1 (db_1)", True),
        ("2(db_1,db_2)", True),
        (" any  2\t( db_1 ,db_2 ) ", True),
        ("First 02 (db_1, db_2)", True),
        ('ANY 2 ("a)", "ANY")', True),
        ('ANY 2 ("a""", a)', True),
        ("ANY 1 (db_1, db_2)", False),
        ("FIRST 1 (db_1, db_2)", False),
        ("db_1, db_2", False),
        ("1 (db_1, db_2)", False),
        ("3 (db_1, db_2)", False),
        ("*", False),
        ('"*"', False),
        ("ANY 1 (*)", False),
        ("ANY 2 (db_1, *)", False),
        ("ANY 2 (db_1, DB_1)", False),
        ('ANY 2 (db_1, "db_1")', False),
        ('"größe"', False),
    ],
)
def test_only_a_wait_for_all_standbys_that_are_named_vouches(names: str, vouches: bool) -> None:
    with psycopg.connect(fresh_home(), autocommit=True) as connection:
        try:
            connection.execute(psycopg.sql.SQL("ALTER SYSTEM SET synchronous_standby_names = {}").format(names))
            connection.execute("SELECT pg_reload_conf()")
            eventually(lambda: connection.execute("SHOW synchronous_standby_names").fetchone() == (names,))
            assert connection.execute(f"SELECT {VOUCHES}").fetchone() == (vouches,)
            for commit in ("local", "off"):
                connection.execute(f"SET synchronous_commit = {commit}")
                assert connection.execute(f"SELECT {VOUCHES}").fetchone() == (False,)
        finally:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
            eventually(lambda: connection.execute("SHOW synchronous_standby_names").fetchone() == ("",))


@pytest.fixture
def quorum() -> Iterator[tuple[Postgres, Postgres, Postgres]]:
    """A database with a home, and its standbys db_1 and db_2."""
    with ExitStack() as closing:
        databases: list[Postgres] = [Postgres()]
        closing.callback(databases[0].close)
        with psycopg.connect(databases[0].url, autocommit=True) as connection:
            make_tables(connection)
        for name in ("db_1", "db_2"):
            databases.append(Postgres(standby_of=databases[0], name=name))
            closing.callback(databases[-1].close)
        yield databases[0], databases[1], databases[2]


def wait_for(database: Postgres, names: str, home: PostgresHome, granted: Granted) -> None:
    """Have each commit wait for those standbys, and have the home know it."""
    database.configure(f"synchronous_standby_names = '{names}'")
    database.reload()
    with psycopg.connect(database.url, autocommit=True) as connection:
        eventually(lambda: connection.execute("SHOW synchronous_standby_names").fetchone() == (names,))
    for _ in range(2):
        assert home.renew_lease(granted.term, 0.1).is_given


def gives_lease(database: Postgres) -> bool:
    """Whether a server that comes to that database gets the lease of the last primary, when that has ended."""
    home = PostgresHome(database.url)
    try:
        eventually(lambda: not home.standing().remaining_s)
        assert home.standing().is_vouched == (home.try_lease("two", {}, 2, 60) is not None)
        return home.standing().term.nonce == 2
    finally:
        home.close()


def test_a_standby_of_a_quorum_is_not_believed_when_it_is_promoted(quorum: tuple[Postgres, Postgres, Postgres]) -> None:
    primary, ahead, behind = quorum
    home = PostgresHome(primary.url)
    try:
        granted = home.try_lease("one", {}, 1, 0.1)
        assert granted is not None
        wait_for(primary, "ANY 1 (db_1, db_2)", home, granted)
        home.begin_term()
        home.create(KEY, 0)
        behind.stop()
        begin = home.head(KEY)
        assert begin is not None
        home.commit(KEY, frames(begin, 20), begin, nobody)  # the other one suffices
        ahead.promote()
        assert not gives_lease(ahead), "the old primary lives, and another standby suffices for its commits"
        primary.kill()
        behind.start()
        behind.promote()
        assert not gives_lease(behind), "it lacks 20 frames that were acknowledged"
    finally:
        home.close()


def begin_term(home: PostgresHome, granted: Granted) -> None:
    """Put that term into the heads."""
    assert home.fence_journal(granted)
    assert home.fence_logs(granted)


def test_a_standby_is_believed_if_all_that_are_named_were_waited_for_and_the_owner_says_so(
    quorum: tuple[Postgres, Postgres, Postgres],
) -> None:
    primary, promoted, _ = quorum
    home = PostgresHome(primary.url)
    try:
        granted = home.try_lease("one", {}, 1, 0.1)
        assert granted is not None
        wait_for(primary, "ANY 2 (db_1, db_2)", home, granted)
        begin_term(home, granted)
    finally:
        home.close()
    primary.kill()
    promoted.promote()
    assert not gives_lease(promoted), "a setting shows nothing by itself"
    with psycopg.connect(promoted.url, autocommit=True) as connection:
        set_promotion(connection, "waited-for")
    assert gives_lease(promoted)


def test_a_role_with_the_rights_that_are_printed_can_do_it_all() -> None:
    url = fresh_home()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS writer")
        connection.execute("CREATE ROLE writer LOGIN")
        connection.execute(RIGHTS.format(role="writer"))
    try:
        home = PostgresHome(url.replace("headwater@", "writer@"))
        home.begin_term()
        home.create(KEY, 0)
        begin = home.head(KEY)
        assert begin is not None
        home.commit(KEY, frames(begin, 3), begin, nobody)
        home.forget(KEY, 2)
        home.delete(KEY)
        assert home.try_lease("one", {}, 11, 5) is not None
        home.mark("something")
        home.accept(0)
        home.tell_of(ServerReport("one", {}, "primary", 1, 0, 0.0, "", "1.0", SCHEMA_VERSION))
        assert [each.name for each in home.servers()] == ["one"]
        home.leave()
        home.keep_batch(KEY, "w/1", b"manifest", {"0-0": iter([b"a", b"b"]), "1-0": iter([b"c"])})
        assert (found := home.batch(KEY, "w/1")) is not None and found.manifest == b"manifest"
        assert {name: [*pieces] for name, pieces in found.parts()} == {"0-0": [b"a", b"b"], "1-0": [b"c"]}
        assert home.batches(KEY, "w/") == ["w/1"]
        with pytest.raises(StorageUnavailable, match="a commit of w/1 has already begun"):
            home.keep_batch(KEY, "w/1", b"another", {})
        home.forget_batch(KEY, "w/1")
        assert home.batch(KEY, "w/1") is None
        assert not [each for each in home.findings() if each.is_problem]
        home.close()
        with psycopg.connect(url.replace("headwater@", "writer@"), autocommit=True) as connection:
            for statement in ("DROP TABLE headwater.frame", "UPDATE headwater.home SET version = 9"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP OWNED BY writer")
            connection.execute("DROP ROLE writer")


def test_the_statements_that_are_printed_make_a_home() -> None:
    url = fresh_home()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA headwater CASCADE")
        connection.execute(initial_sql("headwater"))
        made = make_tables(connection)
    home = PostgresHome(url)
    assert (home.incarnation, home.seed) == made
    home.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://nobody@127.0.0.1:1/x", "PostgreSQL at 127.0.0.1, database x: .*refused"),
        ("nonsense", "the address of the home"),
        ("postgresql://{}/x?conect_timeout=3", r"unknown option \(did you mean connect_timeout\?\)"),
        ("postgresql://u:pass?word=x@db/x?conect=3", "cannot parse the address of the home; expected postgresql://"),
        ("postgresql://u:pass?hunter2=x", "cannot parse the address of the home; expected postgresql://"),
        ("postgresql://u@{}/x?password=a&hunter2=x", "cannot parse the address of the home; expected postgresql://"),
        ("host=db password=a?hunter2=x user", "cannot parse the address of the home; expected postgresql://"),
        ("postgresql://{}/none", 'database "none" does not exist'),
        ("postgresql://{}/template1", "this database contains no home; create one with headwater home init"),
    ],
)
def test_what_is_no_home_is_told(url: str, problem: str) -> None:
    place = fresh_home().removeprefix("postgresql://").partition("/")[0]
    with pytest.raises(StorageUnavailable, match=problem):
        PostgresHome(url.format(place))


def test_no_home_is_made_in_a_postgresql_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    url = fresh_home()
    monkeypatch.setattr(schema, "POSTGRES_MIN", 99)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA headwater CASCADE")
        with pytest.raises(StorageUnavailable, match=r"expected PostgreSQL 99 to \d+, got \d+"):
            make_tables(connection)
        assert connection.execute("SELECT to_regclass('headwater.home')").fetchone() == (None,)


def test_a_home_of_a_newer_version_is_refused() -> None:
    url = fresh_home()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE headwater.home SET version = version + 1")
    with pytest.raises(StorageUnavailable, match=f"version {SCHEMA_VERSION + 1}.*use a newer version of headwater"):
        PostgresHome(url)


@pytest.mark.parametrize(
    ("setting", "is_problem"),
    [("synchronous_commit = local", False),
     ("default_transaction_isolation = 'serializable'", True), ("default_transaction_read_only = on", True)],
)  # fmt: skip
def test_a_database_that_does_not_keep_its_promises_is_told(setting: str, is_problem: bool) -> None:
    with psycopg.connect(fresh_home(), autocommit=True) as connection:
        connection.execute(f"SET {setting}")
        name = setting.partition(" ")[0]
        found = [each for each in findings(connection) if each.text.startswith(name)]
        assert [each.is_problem for each in found] == [is_problem]


def test_a_role_that_may_only_read_is_told_what_it_lacks() -> None:
    url = fresh_home()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA headwater TO reader")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA headwater TO reader")
    try:
        home = PostgresHome(url.replace("headwater@", "reader@"))
        [problem] = [each.text for each in home.findings() if each.is_problem]
        home.close()
        assert problem.startswith(
            "the role reader lacks these rights: INSERT on headwater.log, UPDATE on headwater.log"
        )
        assert "SELECT" not in problem and "DELETE on headwater.staged" in problem
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP OWNED BY reader")
            connection.execute("DROP ROLE reader")


def test_a_full_disk_of_the_database_is_found_by_a_check() -> None:
    url = fresh_home()
    full = "BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END"
    with closing(PostgresHome(url)) as home, psycopg.connect(url, autocommit=True) as connection:
        assert [each.text for each in home.check(2) if each.is_problem] == []
        connection.execute(f"CREATE FUNCTION headwater.full() RETURNS trigger LANGUAGE plpgsql AS $$ {full} $$")
        trigger = "CREATE TRIGGER is_full BEFORE INSERT ON headwater.staged EXECUTE FUNCTION headwater.full()"
        connection.execute(trigger)
        [problem] = [each.text for each in home.check(2) if each.is_problem]
        assert problem.startswith("the disk of the database is full") and "enlarge it" in problem
        assert connection.execute("SELECT count(*) FROM headwater.staged").fetchone() == (0,)


def test_a_clock_that_is_off_the_databases_is_found_by_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    now = schema.time.time
    with closing(PostgresHome(fresh_home())) as home:
        assert not [each for each in home.check(2) if "clock" in each.text]
        monkeypatch.setattr(schema.time, "time", lambda: now() - 60)
        [found] = [each for each in home.check(2) if "clock" in each.text]
    assert "-60.0 s off the database's, but at most 2 s are allowed" in found.text and not found.is_problem


def test_the_lease_says_since_when_and_why_its_holder_has_it(desk: Desk) -> None:
    def taken(server: str, nonce: int) -> LeaseStanding:
        assert desk.home.try_lease(server, {}, nonce, 60) is not None
        return desk.home.standing()

    with psycopg.connect(desk.url, autocommit=True) as connection:
        desk.home.release_lease(desk.home.term)
        first = taken("one", 1)
        assert first.why == "a command ended the previous term" and first.since is not None
        assert abs(first.since - first.clock_s) < PATIENCE_S
        assert (again := taken("one", 1)).since == first.since and again.why == first.why
        desk.home.release_lease(first.term)
        assert taken("two", 2).why == "one released its lease"
        connection.execute("UPDATE headwater.lease SET until = clock_timestamp()")
        assert taken("three", 3).why == "two did not renew its lease"


def test_sessions_that_a_pooler_shares_are_told() -> None:
    with psycopg.connect(fresh_home(), autocommit=True) as one, psycopg.connect(one.info.dsn, autocommit=True) as other:
        assert pooling(one, other) == []
        for first, second in ((one, one), (Alternating(one, other), other)):
            [told] = pooling(first, second)  # type: ignore[arg-type]
            assert told.is_problem and "pool_mode" in told.text


class Alternating:
    """A connection of a client whose transactions go to two sessions in turn."""

    def __init__(self, *sessions: psycopg.Connection[Any]) -> None:
        self._sessions = cycle(sessions)

    def execute(self, *given: Any) -> Any:
        return next(self._sessions).execute(*given)


@pytest.mark.parametrize(
    ("configured", "pinned"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
)
def test_a_session_waits_for_its_commits_whatever_is_configured_later(configured: str, pinned: str) -> None:
    url, settings = fresh_home(), "SELECT current_setting('synchronous_commit')"
    with psycopg.connect(url, autocommit=True) as connection:
        home = PostgresHome(url + f"?options=-csynchronous_commit%3D{configured}")
        later = PostgresHome(url)
        try:
            connection.execute("ALTER SYSTEM SET synchronous_commit = off")
            connection.execute("SELECT pg_reload_conf()")
            eventually(lambda: connection.execute(settings).fetchone() == ("off",))
            for opened, expected in ((home, pinned), (later, "on")):
                with opened._statements.asking() as asked:
                    assert asked.psycopg.execute(settings).fetchone() == (expected,)
            [told] = [each for each in later.findings() if each.text.startswith("synchronous_commit is off")]
            assert not told.is_problem
        finally:
            home.close()
            later.close()
            connection.execute("ALTER SYSTEM RESET synchronous_commit")
            connection.execute("SELECT pg_reload_conf()")
            eventually(lambda: connection.execute(settings).fetchone() == ("on",))


def test_who_waits_too_long_is_told_while_it_is_looked_whether_the_home_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = PostgresHome(fresh_home(), overdue_s=0.2)
    looks, is_over, is_told = threading.Event(), threading.Event(), threading.Event()

    def look() -> None:
        looks.set()
        is_over.wait(PATIENCE_S)

    try:
        monkeypatch.setattr(home._statements, "_look", look)
        home._statements._failed(TimeoutError("no answer"))
        assert looks.wait(PATIENCE_S)
        home._statements._under_way.add(statements._Statement(is_told.set))
        assert is_told.wait(PATIENCE_S)
    finally:
        is_over.set()
        home.close()
