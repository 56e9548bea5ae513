"""From one server to several and back: everything keeps its numbers, and at most one of the two can ever append."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from headwater.client import Server as RemoteServer
from headwater.client import connect
from headwater.core import Event, LogSettings
from headwater.core.errors import EventLogError, NotPrimary, StorageCorrupted, StorageUnavailable
from headwater.core.mark import Mark
from headwater.homes.migration import MovedIn, move_in, move_out, origin_of
from headwater.homes.postgres.foundation import found
from headwater.homes.postgres.home import PostgresHome
from headwater.homes.postgres.marks import ENDED, MOVING
from headwater.homes.postgres.schema import make_tables
from headwater.homes.refill import refill
from headwater.storage import Engine, StoredLog, accept_loss, backup, restore
from headwater.storage.catalog.directories import RESTORE_JUMP
from headwater.storage.home.copy_file import COPY_NAME
from headwater.storage.maintenance.worker import IndexWorker, do
from headwater.storage.segments import segment_log
from headwater.storage.state import journal_snapshot
from tests.ports import free_ports
from tests.server.starting import start
from tests.waiting import eventually

from ..storage.builders import change, columns, event, newest
from .postgres_server import drop_home, fresh_home, shared_server
from .test_engine import Server, add, contents
from .test_following import Replica
from .test_history import check_exact
from .test_servers import Member, command

KILLED = [
    sys.executable,
    "-c",
    "import os, signal, sys; at = int(sys.argv.pop(1)); "
    "from headwater.storage.home import surplus; surplus.FETCHED_BYTES = 1; "
    "from headwater.homes.postgres.home import PostgresHome as home; "
    "from headwater.storage.home import copy_file; "
    "calls = [0]\n"
    "def counting(act):\n"
    "    def step(*given, **named):\n"
    "        calls[0] += 1\n"
    "        if calls[0] == at: os.kill(os.getpid(), signal.SIGKILL)\n"
    "        return act(*given, **named)\n"
    "    return step\n"
    "for name in ('begin_marked', 'fence', 'create', 'commit', 'keep_batch', 'enter_member', 'end_marked'):\n"
    "    setattr(home, name, counting(getattr(home, name)))\n"
    "from headwater.homes import migration\n"
    "migration.remove_mark = counting(migration.remove_mark)\n"
    "from headwater.cli.main import main; main()",
]
"""The command, which kills itself before its step of the number that comes first."""


@pytest.fixture(autouse=True)
def in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of the index are done at once, in this process."""
    monkeypatch.setattr(IndexWorker, "run", lambda self, job: do(job).problem)


@pytest.fixture
def url() -> str:
    """A database without a home."""
    fresh_home()
    return emptied()


def emptied() -> str:
    """The database is lost, and there is a new one."""
    drop_home(shared_server().url)
    return shared_server().url


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """The data directory of a single server: orders with a consumer, a log of four partitions, and an empty one."""
    with Engine(tmp_path / "single", maintains=False, reserve_bytes=0) as engine:
        orders = engine.create("orders")
        orders.register_consumer("who", "it")
        add(orders, 5)
        orders.acknowledge("who", "it", 4)
        add(engine.create("bills", LogSettings(partitions=4)), 4)
        engine.create("empty")
        engine.create("gone").append([event()])
        engine.delete("gone")
    return tmp_path / "single"


def moved(url: str, directory: Path) -> MovedIn:
    """What `home init --from` does."""
    origin = origin_of(directory)
    with psycopg.connect(url, autocommit=True) as owned:
        found(owned, origin.identity, None, is_copy=origin.is_copy)
    home = PostgresHome(url)
    try:
        return move_in(home, directory, "it")
    finally:
        home.close()


def left(url: str, directory: Path) -> list[str]:
    """The names of the logs with which a copy left its home."""
    home = PostgresHome(url)
    try:
        return [each.name for each in move_out(home, directory, "it")]
    finally:
        home.close()


def incarnation(directory: Path) -> str:
    with Engine(directory, maintains=False, reserve_bytes=0) as engine:
        return engine.incarnation_of("orders")


def check_whole(log: StoredLog, of: str) -> None:
    """The log of five orders, as it was and where it was."""
    assert contents(log) == [b"0", b"1", b"2", b"3", b"4"]
    assert [each.acknowledged for each in log.consumers()] == [4]
    assert log.meta.incarnation == of


def test_a_data_directory_moves_into_a_home_with_all_that_it_has(url: str, single: Path, tmp_path: Path) -> None:
    known = incarnation(single)
    told = command("home", "init", "--from", str(single), "--home", url)
    assert "orders: 5 events up to number 5, in 5 frames, identical in both" in told
    assert "bills: 4 events up to number 4, in 4 frames, identical in both" in told
    assert "empty: 0 events up to number 0" in told
    assert "users, consumers, positions and settings: " in told
    assert "start servers with this --home" in told and "no server may append" not in told
    for directory in (single, tmp_path / "b"):
        server = Server(url, directory)
        assert server.engine.names() == ["bills", "empty", "orders"]
        check_whole(server.orders, known)
        assert server.engine.settings_of("bills").partitions == 4
        server.close()
    server = Server(url, single)
    assert server.orders.append([event()]).first == 6
    server.close()


def test_a_directory_that_moved_does_not_start_alone(url: str, single: Path) -> None:
    moved(url, single)
    with pytest.raises(StorageUnavailable, match="is the copy of a home and can only change through it"):
        Engine(single)


def test_all_of_a_directory_is_counted_in_the_home(url: str, single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: PostgresHome, key: str, after: int) -> object:
        return extent(self, key, after + 1)

    extent = PostgresHome.extent
    differs = r"contains 4 events .* but its home contains 3 events"
    with monkeypatch.context() as broken, pytest.raises(StorageUnavailable, match=differs):
        broken.setattr(PostgresHome, "extent", forgetful)
        moved(url, single)
    home = PostgresHome(url)
    assert home.standing().went_back.startswith(MOVING) and not home.standing().is_vouched
    home.close()
    assert moved(url, single).obstacle == ""


@pytest.mark.parametrize("at", [1, 2, 3, 6, 9, 14, 20])
def test_a_move_that_is_killed_anywhere_is_repeated(url: str, single: Path, tmp_path: Path, at: int) -> None:
    known = incarnation(single)
    killed("init", "--from", str(single), url=url, at=at)
    with pytest.raises(StorageUnavailable):
        Engine(single)
    home = PostgresHome(url)
    assert not home.standing().is_vouched
    with pytest.raises(StorageUnavailable, match="grants no lease"):
        home.begin_term()
    home.close()
    assert moved(url, single).obstacle == ""
    for directory in (tmp_path / "b", single):
        server = Server(url, directory)
        check_whole(server.orders, known)
        assert server.engine.open("bills").head() == 4
        server.close()


def killed(*arguments: str, url: str, at: int) -> None:
    """A command of `headwater home` that is killed before its step of that number."""
    process = start(["home", *arguments, "--home", url], program=[*KILLED, str(at)])
    with process:
        assert process.wait(60) == -signal.SIGKILL


def test_a_home_that_is_not_empty_is_left_alone(url: str, single: Path, tmp_path: Path) -> None:
    with psycopg.connect(url, autocommit=True) as owned:
        make_tables(owned)
    other = Server(url, tmp_path / "other")
    add(other.orders, 1)
    other.close()
    told = command("home", "init", "--from", str(single), "--home", url, expected=4)
    assert "already contains the home" in told and "which is not empty; use another database" in told
    assert not (single / COPY_NAME).exists()
    with Engine(single) as engine:
        assert engine.open("orders").head() == 5


def test_an_empty_home_that_somebody_made_before_is_taken(url: str, single: Path) -> None:
    command("home", "init", "--home", url)
    moved(url, single)
    again = ("home", "init", "--from", str(single), "--home", url)
    assert f"already contains the logs of {single}; start servers with it" in command(*again)
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS later")
        owner.execute("CREATE ROLE later")
        command(*again, "--role", "later")
        [[may_append]] = owner.execute("SELECT has_table_privilege('later', 'headwater.frame', 'INSERT')").fetchall()
        owner.execute("DROP OWNED BY later")
        owner.execute("DROP ROLE later")
    assert may_append


def test_a_directory_that_a_server_has_or_that_has_none_does_not_move(url: str, single: Path, tmp_path: Path) -> None:
    with Engine(single), pytest.raises(StorageUnavailable, match=r"another process|in use"):
        origin_of(single)
    with pytest.raises(StorageUnavailable, match="is not a data directory"):
        origin_of(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_damaged_log_does_not_move_and_one_with_a_hole_neither(single: Path) -> None:
    with Engine(single, maintains=False) as engine:
        path = newest(engine.open("orders"))
    change(path, path.read_bytes().index(b"id-2"), b"XX")
    with pytest.raises(StorageCorrupted):
        origin_of(single)
    accept_loss(single, "orders")
    with pytest.raises(StorageUnavailable, match=r"of log orders were discarded .*: export it"):
        origin_of(single)


def test_a_restored_directory_goes_on_above_its_jump(url: str, single: Path, tmp_path: Path) -> None:
    backup(single, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert moved(url, tmp_path / "restored").obstacle == ""
    for directory in (tmp_path / "b", tmp_path / "restored"):
        server = Server(url, directory)
        assert contents(server.orders)[:5] == [b"0", b"1", b"2", b"3", b"4"]
        number = server.orders.append([event()]).first
        assert number > RESTORE_JUMP
        server.close()


def test_what_frames_no_longer_have_moves_too(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_log, "SEGMENT_EVENTS_MAX", 5)
    with Engine(tmp_path / "single", maintains=False, reserve_bytes=0) as engine:
        log = engine.create("orders")
        log.append_columns(columns([event()]), mark=Mark("w", 7, 1, is_last=True))
        add(log, 29)
        engine.maintain()
        log.trim(21)
        engine.maintain()
        assert log.frames.segments[0].first > 1
    assert moved(url, tmp_path / "single").obstacle == ""
    server = Server(url, tmp_path / "b")
    assert [each.sequence_number for each in server.orders.read()] == list(range(21, 31))
    writer = server.orders.writer("w")
    assert writer is not None and writer.batch == 7
    check_exact(server.orders)
    server.close()


def test_a_journal_that_forgot_its_beginning_moves(
    url: str, single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_snapshot, "GROWTH_BYTES_MIN", 1000)
    with Engine(single, maintains=False, reserve_bytes=0) as engine:
        for index in range(2000):
            engine.state.put("kind", f"key-{index % 10}", b"v" * 1000, is_durable=index % 100 == 0)
        for _ in range(5):
            engine.maintain()
        assert engine.state.journal.first > 1000
    assert moved(url, single).obstacle == ""
    server = Server(url, tmp_path / "b")
    assert contents(server.orders) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(list(server.engine.state.items("kind"))) == 10
    server.close()


def shared(url: str, directory: Path) -> None:
    """A home whose last primary has the copy a, with five orders, where b followed until the third."""
    with psycopg.connect(url, autocommit=True) as owned:
        make_tables(owned)
    first = Server(url, directory / "a")
    first.orders.register_consumer("who", "it")
    add(first.orders, 3)
    replica = Replica(url, directory / "b")
    replica.close()
    add(first.orders, 2, begin=3)
    first.orders.acknowledge("who", "it", 4)
    first.close()


def test_a_lost_home_is_made_anew_from_the_copy_of_its_last_primary(url: str, tmp_path: Path) -> None:
    shared(url, tmp_path)
    home = PostgresHome(url)
    term, identity = home.standing().term, home.incarnation
    home.close()
    emptied()
    assert moved(url, tmp_path / "a").obstacle == ""
    home = PostgresHome(url)
    assert home.incarnation == identity and home.standing().term.number > term.number
    home.close()
    for name in ("b", "a"):
        server = Server(url, tmp_path / name)
        assert contents(server.orders) == [b"0", b"1", b"2", b"3", b"4"]
        assert [each.acknowledged for each in server.orders.consumers()] == [4]
        server.close()


def test_a_home_from_a_copy_that_proves_nothing_waits_for_the_others(url: str, tmp_path: Path) -> None:
    shared(url, tmp_path)
    emptied()
    assert "another copy may have more" in moved(url, tmp_path / "b").obstacle
    home = PostgresHome(url)
    with pytest.raises(StorageUnavailable, match="another copy may have more"):
        home.begin_term()
    assert {each.name for each in refill(home, tmp_path / "a", "a").added} >= {"orders"}
    home.close()
    command("home", "forget", "it", "--home", url)
    server = Server(url, tmp_path / "b")
    assert contents(server.orders) == [b"0", b"1", b"2", b"3", b"4"]
    server.close()


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_copy_leaves_its_home_with_all_of_it(url: str, tmp_path: Path, name: str) -> None:
    shared(url, tmp_path)
    told = command("home", "leave", "--data", str(tmp_path / name), "--home", url)
    assert "orders: 5 events up to number 5, in 5 frames, identical in both" in told
    assert f"has been closed; start one server on {tmp_path / name}, without --home" in told
    with Engine(tmp_path / name, maintains=False) as engine:
        orders = engine.open("orders")
        assert contents(orders) == [b"0", b"1", b"2", b"3", b"4"]
        assert [each.acknowledged for each in orders.consumers()] == [4]
        assert orders.append([event()]).first == 6


def test_nobody_appends_in_a_home_that_has_ended(url: str, tmp_path: Path) -> None:
    shared(url, tmp_path)
    stale = PostgresHome(url)
    stale.begin_term()
    left(url, tmp_path / "a")
    home = PostgresHome(url)
    with pytest.raises(StorageUnavailable, match=f"grants no lease: {ENDED}"):
        home.begin_term()
    with pytest.raises(StorageUnavailable, match=ENDED):
        refill(home, tmp_path / "b", "b")
    with pytest.raises(StorageUnavailable, match="is not a copy of this home: it has its own logs"):
        Replica(url, tmp_path / "a")
    with pytest.raises(NotPrimary):
        stale.create("more", 0)
    assert not home.members()
    assert left(url, tmp_path / "a") == []
    home.close()
    stale.close()


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_leaving_that_is_killed_anywhere_is_repeated(url: str, tmp_path: Path, at: int) -> None:
    shared(url, tmp_path)
    killed("leave", "--data", str(tmp_path / "b"), url=url, at=at)
    home = PostgresHome(url)
    assert home.standing().is_vouched == (at == 1)
    home.close()
    with pytest.raises(StorageUnavailable):
        Engine(tmp_path / "b")
    assert left(url, tmp_path / "b") == ["orders", "$state"]
    with Engine(tmp_path / "b", maintains=False) as engine:
        assert contents(engine.open("orders")) == [b"0", b"1", b"2", b"3", b"4"]


def test_who_began_to_leave_may_stay(url: str, tmp_path: Path) -> None:
    shared(url, tmp_path)
    killed("leave", "--data", str(tmp_path / "a"), url=url, at=3)
    home = PostgresHome(url)
    assert "headwater home refill" in home.standing().obstacle
    assert refill(home, tmp_path / "a", "a").obstacle == ""
    home.close()
    server = Server(url, tmp_path / "b")
    assert contents(server.orders) == [b"0", b"1", b"2", b"3", b"4"]
    server.close()


def test_no_copy_leaves_while_a_server_runs_or_the_home_lacks_something(url: str, tmp_path: Path) -> None:
    shared(url, tmp_path)
    home = PostgresHome(url)
    home.mark("a copy is ahead")
    with pytest.raises(StorageUnavailable, match="the home grants no lease: a copy is ahead"):
        left(url, tmp_path / "a")
    home.accept(0)
    granted = home.try_lease("b", {}, 1, 60.0)
    assert granted is not None
    held = r"b holds the lease of this home for another .* s: stop it, or wait that long if it is st"
    with pytest.raises(StorageUnavailable, match=held):
        left(url, tmp_path / "a")
    home.close()


def test_a_copy_that_lacks_what_the_home_has_does_not_leave(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(url, tmp_path)
    with psycopg.connect(url, autocommit=True) as connection:  # damaged there, so that b cannot fetch it
        connection.execute(
            "UPDATE headwater.frame SET content = set_byte(content, 100, get_byte(content, 100) # 1) WHERE last = 5 "
            "AND log = (SELECT id FROM headwater.log WHERE key <> '$state')"
        )
    with pytest.raises(StorageUnavailable, match="this copy is missing events of log orders"):
        left(url, tmp_path / "b")
    home = PostgresHome(url)
    assert home.standing().is_vouched
    home.close()


def test_another_copy_does_not_revive_a_home_that_has_ended(url: str, tmp_path: Path) -> None:
    shared(url, tmp_path)
    left(url, tmp_path / "a")
    with pytest.raises(StorageUnavailable, match=f"{ENDED}.*; this is a different copy"):
        moved(url, tmp_path / "b")


def test_a_home_that_is_made_from_an_old_copy_elsewhere_tells_of_the_copy_that_left(url: str, tmp_path: Path) -> None:
    shared(url, tmp_path)
    command("home", "leave", "--data", str(tmp_path / "b"), "--home", url)
    emptied()  # as another database is
    told = command("home", "init", "--from", str(tmp_path / "a"), "--home", url)  # it held the newest term: believed
    assert "no server may append yet" not in told
    assert "another copy has left it (headwater home leave), the logs continue there" in told
    assert "do not start a server with this home" in told


def test_one_server_becomes_three_again_in_the_same_database(url: str, tmp_path: Path) -> None:
    shared(url, tmp_path)
    left(url, tmp_path / "a")
    with Engine(tmp_path / "a", maintains=False) as engine:
        add(engine.open("orders"), 1, begin=5)
    assert moved(url, tmp_path / "a").obstacle == ""
    server = Server(url, tmp_path / "b")
    assert contents(server.orders) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    server.close()


def test_servers_go_on_where_another_one_ended_from_one_to_two_and_back(url: str, single: Path, tmp_path: Path) -> None:
    with ExitStack() as closing:

        def joined(directory: Path, *settings: str) -> Member:
            closing.callback((member := Member(url, directory, *settings)).close)
            return member

        token = command("user", "add", "ann", "--token", "--grant", "all:*", "--data", str(single))
        token = token.partition("token: ")[2].split()[0]
        moved(url, single)
        members = [joined(single), joined(tmp_path / "b")]
        eventually(members[0].answers)
        eventually(members[1].answers)
        eventually(lambda: any(each.is_primary() for each in members))
        with connect(members[1].url, token=token) as server:
            assert server.log("orders").append([Event("E", b"5", id="n-5")]).first == 6
        for member in members:
            assert member.end(signal.SIGTERM) == 0
        assert "orders" in left(url, tmp_path / "b")
        [port] = free_ports(1)
        served = ("serve", "--amqp-port", "0", "--flight-enabled", "false", "--http-port", str(port))
        alone = start([*served, "--data", str(tmp_path / "b")])
        closing.callback(alone.terminate)
        with connect(f"http://127.0.0.1:{port}", token=token) as server, alone:
            eventually(lambda: answers(server))
            log = server.log("orders")
            assert [each.data for each in log.read()] == [b"0", b"1", b"2", b"3", b"4", b"5"]
            assert log.append([Event("E", b"6", id="n-6")]).first == 7
            alone.terminate()
            assert alone.wait(60) == 0


def answers(server: RemoteServer) -> bool:
    try:
        return bool(server.log("orders").head())
    except EventLogError:
        return False
