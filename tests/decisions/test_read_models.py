"""Read models in SQLite, PostgreSQL and MySQL: each event in them exactly once, whatever fails and whoever runs."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.databases import DATABASES, address_of, execute
from tests.waiting import eventually

from headwater.client.outbox import connect_database
from headwater.core import Event
from headwater.core.errors import InvalidInput, PositionOfOtherIncarnation, PositionTrimmed
from headwater.decisions import InvalidDefinition, Lag, ReadModel, Runner, Transaction, UnreadableEvent, write
from headwater.decisions.read_models import LOGS, POSITIONS
from headwater.decisions.sql import lock_tables
from headwater.decisions.testing import memory_log
from headwater.storage.memory import MemoryLog, MemoryStore

from .conftest import Asked
from .courses import CourseDefined, SeatLeft, SeatTaken


def add(transaction: Transaction, taken: SeatTaken) -> None:
    transaction.execute("INSERT INTO {seat} VALUES (?, ?)", (taken.course, taken.student))


def drop(transaction: Transaction, left: SeatLeft) -> None:
    transaction.execute("DELETE FROM {seat} WHERE course = ? AND student = ?", (left.course, left.student))


def seats(version: int = 1) -> ReadModel:
    columns = "course VARCHAR(20) NOT NULL, student VARCHAR(20) NOT NULL"
    return ReadModel("seats", {"seat": columns}, version=version).on(SeatTaken, add).on(SeatLeft, drop)


@pytest.fixture(params=DATABASES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind, without read models."""
    address = address_of(request, tmp_path)
    with closing(connect_database(address)) as connection:
        for statement in ("DROP VIEW IF EXISTS seat", *[f"DROP TABLE IF EXISTS {each}" for each in ALL]):
            execute(connection, statement)
        connection.commit()
    return address


ALL = ("seat_1", "seat_2", POSITIONS, LOGS)


@pytest.fixture
def connection(address: str) -> Iterator[Any]:
    with closing(connect_database(address)) as connection:
        yield connection


def rows(connection: Any, table: str = "seat_1") -> list[tuple[Any, ...]]:
    found = execute(connection, f"SELECT course, student FROM {table} ORDER BY course, student")
    connection.rollback()
    return found


def test_a_model_follows_the_log(connection: Any) -> None:
    log = memory_log(CourseDefined("go", 2), SeatTaken("go", "ann"), SeatTaken("go", "bob"))
    runner = Runner(log, connection, seats())
    assert runner.lag() == Lag(0, 3) and runner.lag().behind == 3
    assert [runner.run_once() for _ in range(2)] == [2, 0]
    assert rows(connection) == [("go", "ann"), ("go", "bob")]
    assert runner.lag() == (3, 3) and runner.lag().behind == 0
    log.append([write(SeatLeft("go", "ann")), write(CourseDefined("chess", 1))])
    assert Runner(log, connection, seats()).catch_up() == 1
    assert rows(connection) == [("go", "bob")] and runner.position() == 5


def test_any_kind_of_log_is_followed(asked: Asked, tmp_path: Path) -> None:
    asked.log.append([write(SeatTaken("go", f"s{number:04}")) for number in range(1500)])
    with closing(sqlite3.connect(tmp_path / "model.sqlite")) as connection:
        runner = Runner(asked.log, connection, seats())
        assert [runner.run_once() for _ in range(3)] == [1000, 500, 0]
        assert len(rows(connection)) == 1500


def test_a_model_of_some_tags_only(connection: Any) -> None:
    log = memory_log(SeatTaken("go", "ann"), SeatTaken("chess", "ann"))
    of_go = ReadModel("seats", {"seat": "course VARCHAR(9), student VARCHAR(9)"}, tags={"course": "go"}).on(
        SeatTaken, add
    )
    runner = Runner(log, connection, of_go)
    assert runner.catch_up() == 1 and rows(connection) == [("go", "ann")]
    assert runner.lag().behind == 0


def test_handlers_may_see_events_as_they_are_stored(connection: Any) -> None:
    def number(transaction: Transaction, taken: SeatTaken, stored: Any) -> None:
        transaction.execute("INSERT INTO {seat} VALUES (?, ?)", (taken.course, str(stored.sequence_number)))

    model = ReadModel("seats", {"seat": "course VARCHAR(9), student VARCHAR(9)"}).on_stored(SeatTaken, number)
    assert Runner(memory_log(SeatTaken("go", "ann")), connection, model).catch_up() == 1
    assert rows(connection) == [("go", "1")]


def test_a_new_version_is_built_beside_the_one_in_use_and_then_shown(connection: Any) -> None:
    log = memory_log(SeatTaken("go", "ann"))
    old = Runner(log, connection, seats())
    old.catch_up()
    old.publish()

    def shout(transaction: Transaction, taken: SeatTaken) -> None:
        transaction.execute("INSERT INTO {seat} VALUES (?, ?)", (taken.course, taken.student.upper()))

    columns = {"seat": "course VARCHAR(9), student VARCHAR(9)"}
    new = Runner(log, connection, ReadModel("seats", columns, version=2).on(SeatTaken, shout))
    log.append([write(SeatTaken("go", "bob"))])
    old.run_once()
    assert rows(connection, "seat") == [("go", "ann"), ("go", "bob")]
    assert new.lag().behind == 2 and rows(connection, "seat_2") == []
    new.catch_up()
    new.publish()
    old.remove()
    assert rows(connection, "seat") == [("go", "ANN"), ("go", "BOB")]
    assert execute(connection, f"SELECT version, position FROM {POSITIONS}") == [(2, 2)]


def test_two_who_run_one_model_apply_each_event_once(address: str) -> None:
    log = memory_log()
    with closing(connect_database(address)) as first:
        Runner(log, first, seats())
    log.append([write(SeatTaken("go", f"s{number:03}")) for number in range(40)])
    barrier = threading.Barrier(3)

    def work(_: int) -> int:
        count = 0
        with closing(connect_database(address)) as connection:
            runner = Runner(log, connection, seats())
            for number in range(20):
                barrier.wait(60)
                log.append([write(SeatTaken("chess", f"{threading.get_ident() % 9973}-{number}"))])
                count += runner.run_once()
            return count + runner.catch_up()

    with ThreadPoolExecutor(3) as pool:
        counted = sum(pool.map(work, range(3)))
    with closing(connect_database(address)) as connection:
        found = rows(connection)
    assert counted == len(found) == len(set(found)) == log.head() == 100


def test_runners_that_start_together_make_their_tables_once(address: str) -> None:
    log, together, rounds = memory_log(SeatTaken("go", "ann")), threading.Barrier(4), 4

    def start(_: int) -> list[int]:
        with closing(connect_database(address)) as connection:
            found = []
            for version in range(1, rounds + 1):
                together.wait(60)
                found.append(Runner(log, connection, seats(version)).position())
            return found

    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(start, range(4))) == [[0] * rounds] * 4
        with closing(connect_database(address)) as connection:
            versions = execute(connection, f"SELECT version FROM {POSITIONS} ORDER BY version")
            assert [version for (version,) in versions] == [1, 2, 3, 4]
    finally:
        with closing(connect_database(address)) as connection:
            for version in range(3, rounds + 1):
                execute(connection, f"DROP TABLE IF EXISTS seat_{version}")
            connection.commit()


def test_a_rollback_that_fails_does_not_hide_what_the_handler_raised() -> None:
    """The database went away while the handler ran, say."""

    class Lost(sqlite3.Connection):
        def rollback(self) -> None:
            raise sqlite3.OperationalError("the connection is lost")

    def fail(_: Transaction, taken: SeatTaken) -> None:
        raise LookupError(taken.student)

    with closing(sqlite3.connect(":memory:", factory=Lost)) as connection:
        model = ReadModel("seats", seats().columns).on(SeatTaken, fail)
        runner = Runner(memory_log(SeatTaken("go", "ann")), connection, model)
        with pytest.raises(LookupError, match="ann") as caught:
            runner.run_once()
    assert caught.value.__notes__[1] == "The rollback also failed: OperationalError: the connection is lost"


def test_tables_are_locked_over_a_connection_of_a_class_of_ones_own(postgresql: str) -> None:
    psycopg = pytest.importorskip("psycopg")

    class Own(psycopg.Connection):  # type: ignore[misc]
        pass

    with Own.connect(postgresql) as connection:
        lock_tables(Transaction(connection, "pyformat", {}))
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        assert execute(connection, held) == [(1,)]


class Failing:
    """A connection whose calls fail, one of them before it is done, or after it."""

    def __init__(self, connection: sqlite3.Connection, call: int, *, is_done: bool) -> None:
        self._connection, self._left, self._is_done = connection, call, is_done
        self.autocommit = False

    def _count(self) -> bool:
        self._left -= 1
        return self._left == 0

    def commit(self) -> None:
        fails = self._count()
        if not fails or self._is_done:
            self._connection.commit()
        if fails:
            raise OSError("commit")

    def rollback(self) -> None:
        self._connection.rollback()

    def cursor(self) -> Any:
        if self._count():
            raise OSError("cursor")
        return self._connection.cursor()


happened = st.lists(
    st.builds(SeatTaken, st.sampled_from(["go", "chess"]), st.sampled_from("abc"))
    | st.builds(SeatLeft, st.sampled_from(["go", "chess"]), st.sampled_from("abc"))
    | st.builds(CourseDefined, st.just("go"), st.integers(0, 3)),
    max_size=8,
)


@given(rounds=st.lists(happened, min_size=1, max_size=3), call=st.integers(1, 40), is_done=st.booleans())
def test_each_event_counts_once_wherever_the_database_fails(
    rounds: list[list[object]], call: int, is_done: bool
) -> None:
    log = memory_log()
    with closing(sqlite3.connect(":memory:")) as connection:
        failing = Failing(connection, call, is_done=is_done)
        for events in rounds:
            if events:
                log.append([write(each) for each in events])
            for _ in range(2):  # one call fails: the second time all is well
                try:
                    Runner(log, failing, seats(), paramstyle="qmark").catch_up()
                except OSError:
                    continue
        expected: list[tuple[str, str]] = []
        for each in [each for events in rounds for each in events]:
            if isinstance(each, SeatTaken):
                expected.append((each.course, each.student))
            elif isinstance(each, SeatLeft):
                expected = [seat for seat in expected if seat != (each.course, each.student)]
        assert rows(connection) == sorted(expected)


def test_a_handler_that_fails_leaves_nothing_behind(connection: Any) -> None:
    log = memory_log(SeatTaken("go", "ann"), SeatTaken("go", "bob"))

    def fail_once(transaction: Transaction, taken: SeatTaken) -> None:
        add(transaction, taken)
        if taken.student == "bob" and failures:
            raise failures.pop()

    failures = [LookupError("bob")]
    runner = Runner(log, connection, ReadModel("seats", seats().columns).on(SeatTaken, fail_once))
    with pytest.raises(LookupError, match="bob") as caught:
        runner.run_once()
    assert caught.value.__notes__ == ["It was raised while handling event 2 of type 'SeatTaken'."]
    assert rows(connection) == [] and runner.position() == 0
    assert runner.run_once() == 2 and rows(connection) == [("go", "ann"), ("go", "bob")]


def test_an_event_that_cannot_be_read_stops_the_model(connection: Any) -> None:
    log = memory_log(SeatTaken("go", "ann"))
    log.append([Event("SeatTaken", b"?")])
    runner = Runner(log, connection, seats())
    with pytest.raises(UnreadableEvent, match="event 2 of type 'SeatTaken'"):
        runner.run_once()
    assert runner.lag().behind == 2


def test_a_model_goes_on_behind_an_event_that_cannot_be_read_where_it_may(
    connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log = memory_log(SeatTaken("go", "ann"))
    log.append([Event("SeatTaken", b"?"), write(SeatTaken("go", "bob"))])
    runner = Runner(log, connection, ReadModel("seats", seats().columns, unreadable="skip").on(SeatTaken, add))
    assert runner.catch_up() == 3 and runner.lag().behind == 0
    assert rows(connection) == [("go", "ann"), ("go", "bob")]
    assert [each.partition(":")[0] for each in caplog.messages] == ["skipped"]


def test_numbers_that_a_log_does_not_have_are_no_lag() -> None:
    store = MemoryStore()
    store.create("courses").append([write(SeatTaken("go", "ann"))] * 50)
    store.delete("courses")
    log = store.create("courses")
    with closing(sqlite3.connect(":memory:")) as connection:
        runner = Runner(log, connection, seats())
        assert runner.lag().behind == 0, "it is empty"
        log.append([write(SeatTaken("go", "bob"))])
        assert runner.lag() == Lag(50, 51) and runner.lag().behind == 1
        assert runner.catch_up() == 1 and runner.lag() == Lag(51, 51)


def test_what_was_trimmed_or_made_anew_is_told() -> None:
    store = MemoryStore()
    log: MemoryLog = store.create("courses")
    log.append([write(SeatTaken("go", "ann")), write(SeatTaken("go", "bob"))])
    with closing(sqlite3.connect(":memory:")) as connection:
        runner = Runner(log, connection, seats())
        log.trim(2)
        with pytest.raises(PositionTrimmed, match="position 1 was trimmed"):
            runner.run_once()
        with pytest.raises(PositionTrimmed, match="position 1 was trimmed"):
            runner.lag()  # what lacks events cannot be published
    with closing(sqlite3.connect(":memory:")) as connection:
        early = memory_log(SeatTaken("go", "ann"))
        runner = Runner(early, connection, seats())
        runner.run_once()
        store.delete("courses")
        anew = Runner(store.create("courses"), connection, seats())
        anew._log.append([write(SeatTaken("go", "cleo"))])
        with pytest.raises(PositionOfOtherIncarnation, match="position 2 was issued by another incarnation"):
            anew.run_once()


@pytest.mark.parametrize("others", [0, 1, 3, 5])
def test_a_position_in_another_log_of_that_name_is_refused(others: int) -> None:
    """Such as a new data directory: the first events of that log would never be applied."""
    ours, theirs = (memory_log(*[SeatTaken("go", name)] * count) for name, count in (("ann", 3), ("bob", others)))
    with closing(sqlite3.connect(":memory:")) as connection:
        assert Runner(ours, connection, seats()).catch_up() == 3
        runner = Runner(theirs, connection, seats())
        for act in (runner.run_once, runner.catch_up, runner.lag, lambda: runner.run(threading.Event())):
            with pytest.raises(PositionOfOtherIncarnation, match="position 3 was issued by another incarnation"):
                act()
        assert Runner(ours, connection, seats()).lag() == Lag(3, 3)
        assert rows(connection) == [("go", "ann")] * 3
        runner.remove()
        assert Runner(theirs, connection, seats()).catch_up() == others
        assert rows(connection) == [("go", "bob")] * others


def test_a_position_of_a_version_without_incarnations_is_kept() -> None:
    log = memory_log(SeatTaken("go", "ann"))
    with closing(sqlite3.connect(":memory:")) as connection:
        Runner(log, connection, seats()).catch_up()
        connection.execute(f"DROP TABLE {LOGS}")
        log.append([write(SeatTaken("go", "bob"))])
        assert Runner(log, connection, seats()).catch_up() == 1
        with pytest.raises(PositionOfOtherIncarnation):
            Runner(memory_log(), connection, seats()).lag()


def test_it_runs_until_it_is_stopped(asked: Asked, tmp_path: Path) -> None:
    path, stopped = tmp_path / "model.sqlite", threading.Event()

    def work() -> None:
        with closing(sqlite3.connect(path)) as connection:
            Runner(asked.log, connection, seats()).run(stopped, poll_s=0.02)

    asked.log.append([write(SeatTaken("go", "ann"))])
    with closing(sqlite3.connect(path)) as connection, ThreadPoolExecutor(1) as pool:
        watching = Runner(asked.log, connection, seats())
        running = pool.submit(work)
        try:
            for number in range(3):
                asked.log.append([write(SeatTaken("go", f"s{number}")), write(CourseDefined("go", number))])
                eventually(lambda: watching.lag().behind == 0)
        finally:
            stopped.set()
        running.result()
        assert len(rows(connection)) == 4


def test_it_goes_on_where_another_runner_has_come(tmp_path: Path) -> None:
    log, path, stopped = (
        memory_log(SeatTaken("go", "ann"), SeatTaken("go", "bob")),
        tmp_path / "model",
        threading.Event(),
    )
    looked: list[int] = []
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(path)) as other:
        faster = Runner(log, other, seats())

        class Overtaken(Runner):
            """The other one is faster, when this one has looked where it is."""

            def position(self) -> int:
                looked.append(super().position())
                if len(looked) == 2:
                    stopped.set()
                faster.catch_up()
                return looked[-1]

        Overtaken(log, connection, seats()).run(stopped, poll_s=0.0)
        assert looked == [0, 2]
        assert rows(connection) == [("go", "ann"), ("go", "bob")]


@pytest.mark.parametrize(
    ("make", "error", "problem"),
    [
        (lambda: ReadModel("a b", {}), InvalidInput, "name: expected"),
        (lambda: ReadModel("a", {"x-y": "n INTEGER"}), InvalidInput, "tables: expected"),
        (lambda: ReadModel("a", {}, version=0), InvalidInput, "version: expected 1 or more, got 0"),
        (
            lambda: ReadModel("a", {}, tags={"student": "ann"}).on(CourseDefined, add),
            InvalidDefinition,
            "no tag student",
        ),
        (lambda: Runner(memory_log(), None, seats()), InvalidInput, "NoneType has no paramstyle"),
        (lambda: Runner(memory_log(), None, ReadModel("a", {})), InvalidDefinition, "handles no event"),
    ],
)
def test_what_cannot_work_is_refused(make: Any, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        make()
