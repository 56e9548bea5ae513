"""The outbox: with the caller's transaction or not at all, in three databases; and a relay that may be killed."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.client.databases import DATABASES, address_of, execute
from tests.night import IS_NIGHT
from tests.server.running import RunningServer, environment, headwater
from tests.server.starting import PROGRAM, Process, start
from tests.waiting import eventually

from headwater.client import connect
from headwater.client.outbox import Relay, add_xfer_event, connect_database, create_table
from headwater.core.errors import InvalidInput, Overloaded
from headwater.storage.memory import MemoryLog

pytestmark = pytest.mark.timeout(400)
KILLS = 6 if IS_NIGHT else 3


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database with an empty outbox and a table of the caller's."""
    address = address_of(request, tmp_path)
    with closing(connect_database(address)) as connection:
        for table in ("headwater_outbox", "orders"):
            execute(connection, f"DROP TABLE IF EXISTS {table}")
        create_table(connection)
        execute(connection, "CREATE TABLE orders (n INTEGER)")
        connection.commit()
    yield address


@pytest.fixture
def connection(database: str) -> Iterator[Any]:
    with closing(connect_database(database)) as connection:
        yield connection


def test_an_event_happens_with_its_transaction_or_not_at_all(connection: Any, database: str) -> None:
    log = MemoryLog()
    relay = Relay(connect_database(database), log)
    add_xfer_event(connection, "ORDER_NEW", {"n": 1})
    assert relay.run_once() == 0, "not before the transaction commits"
    connection.rollback()
    assert relay.run_once() == 0, "nor when it is rolled back"
    execute(connection, "INSERT INTO orders VALUES (2)")
    id = add_xfer_event(connection, "ORDER_NEW", {"n": 2})
    add_xfer_event(connection.cursor(), "ORDER_PAID", None)
    connection.commit()
    assert relay.run_once() == 2
    first, second = log.read()
    assert (first.type, first.data, first.id, first.source) == ("ORDER_NEW", b'{"n":2}', id, "/outbox")
    assert (second.type, second.data) == ("ORDER_PAID", b"null")
    assert relay.run_once() == 0
    relay._connection.close()


def test_a_transaction_that_commits_late_is_not_missed(database: str) -> None:
    """Its rows have lower positions than some that were relayed before."""
    if not database.startswith(("postgresql", "mysql")):
        pytest.skip("SQLite has one writer at a time")
    log = MemoryLog()
    with (
        closing(connect_database(database)) as early,
        closing(connect_database(database)) as late,
        closing(connect_database(database)) as third,
    ):
        add_xfer_event(late, "LATE", 1)
        add_xfer_event(early, "EARLY", 1)
        early.commit()
        relay = Relay(third, log)
        assert relay.run_once() == 1
        late.commit()
        assert relay.run_once() == 1
    assert [event.type for event in log.read()] == ["EARLY", "LATE"]


class Fragile:
    """A log whose answers are lost, as those of a server that is killed."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.loses = True

    def append(self, events: Any, *args: Any, **more: Any) -> Any:
        result = self._log.append(events, *args, **more)
        if self.loses:
            raise Overloaded(0, 0)
        return result


def test_what_was_appended_but_not_deleted_is_recognised_also_among_newer_rows(connection: Any, database: str) -> None:
    log = MemoryLog()
    fragile = Fragile(log)
    with closing(connect_database(database)) as connection:
        relay = Relay(connection, fragile)  # type: ignore[arg-type]
        for number in range(5):
            add_xfer_event(connection, "A", number)
            connection.commit()
            with pytest.raises(Overloaded):
                relay.run_once()
        fragile.loses = False
        assert relay.run_once() == 5
        assert relay.run_once() == 0
    assert [json.loads(event.data) for event in log.read()] == [0, 1, 2, 3, 4]


def test_more_than_a_batch_goes_in_order(connection: Any, database: str) -> None:
    log = MemoryLog()
    for number in range(2500):
        add_xfer_event(connection, "A", number)
    connection.commit()
    stopped = threading.Event()
    with closing(connect_database(database)) as connection:
        thread = threading.Thread(target=Relay(connection, log).run, args=(stopped, 0.01))
        thread.start()
        eventually(lambda: log.head() >= 2500, log.head)
        stopped.set()
        thread.join()
    assert [json.loads(event.data) for event in log.read()] == list(range(2500))


@pytest.mark.parametrize("type", ["", "order", "A" * 17, "A\n", None, 7])
def test_a_type_that_is_none_of_futoin_is_refused(connection: Any, type: Any) -> None:
    with pytest.raises(InvalidInput):
        add_xfer_event(connection, type, 1)


def test_data_that_json_cannot_say_is_refused(connection: Any) -> None:
    with pytest.raises(InvalidInput):
        add_xfer_event(connection, "A", object())


def test_the_name_of_the_table_is_no_way_into_the_database(connection: Any) -> None:
    for name in ("x; DROP TABLE orders", "", 'a"b', "a.b.c", "a b"):
        with pytest.raises(InvalidInput):
            add_xfer_event(connection, "A", 1, name)
        with pytest.raises(InvalidInput):
            create_table(connection, name)


def test_tables_that_are_made_at_the_same_time_are_made_once(postgresql: str) -> None:
    with closing(connect_database(postgresql)) as first, closing(connect_database(postgresql)) as second:
        create_table(first, "made_together")
        failed: list[Exception | None] = []
        making = threading.Thread(target=lambda: failed.append(_failure(lambda: create_table(second, "made_together"))))
        making.start()
        with closing(connect_database(postgresql)) as looking:
            looking.autocommit = True
            eventually(lambda: execute(looking, "SELECT 1 FROM pg_locks WHERE NOT granted") or failed)
        first.commit()
        making.join()
        assert failed == [None]
        second.commit()
        add_xfer_event(second, "A", 1, "made_together")
        second.rollback()


def _failure(do: Callable[[], object]) -> Exception | None:
    try:
        do()
    except Exception as error:
        return error
    return None


def test_a_connection_that_commits_by_itself_has_no_transaction_to_join(database: str) -> None:
    with closing(connect_database(database)) as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.isolation_level = None
        elif database.startswith("mysql"):
            connection.autocommit(True)
        else:
            connection.autocommit = True
        with pytest.raises(InvalidInput, match="begin a transaction"):
            add_xfer_event(connection, "A", 1)
        execute(connection, "BEGIN")
        add_xfer_event(connection, "A", 1)
        execute(connection, "ROLLBACK")


def test_the_command_empties_the_table(connection: Any, database: str, tmp_path: Path) -> None:
    for number in range(10):
        add_xfer_event(connection, "A", number)
    connection.commit()
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        for rows in (10, 0):
            done = headwater("relay", database, "default", "--once", "--url", server.url, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert done.stdout == f"{rows} rows appended\n"
        with connect(server.url) as client:
            assert [json.loads(event.data) for event in client.log("default").read()] == list(range(10))


def test_kill_9_of_the_relay_and_of_the_server_loses_and_repeats_nothing(database: str, tmp_path: Path) -> None:
    """Transactions go on, some of them rolled back, while either side is killed again and again."""
    chance = random.Random(18)
    committed: list[int] = []
    is_over = threading.Event()

    def transact() -> None:
        with closing(connect_database(database)) as connection:
            number = 0
            while not is_over.is_set():
                numbers = range(number, number + chance.randrange(1, 5))
                for number in numbers:
                    add_xfer_event(connection, "ADDED", number)
                if chance.random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()
                    committed.extend(numbers)
                number += 1
                time.sleep(0.002)

    port = _free_port()
    url = f"http://127.0.0.1:{port}"

    def serve() -> RunningServer:
        program = PROGRAM if database.endswith(".sqlite") else None
        return RunningServer("--data", "data", "--http-port", str(port), cwd=tmp_path, program=program)

    def relay() -> Process:
        # A server takes as long to come back as the machine lets it: by itself, the relay would end after 10 s of that.
        options = ["--interval-s", "0.01", "--retry-s", "120", "--url", url]
        with (tmp_path / "relay.txt").open("ab") as told:
            return start(["relay", database, "default", *options], env=environment(), stderr=told)

    writer = threading.Thread(target=transact)
    writer.start()
    server, running = serve(), relay()
    try:
        for turn in range(KILLS):
            time.sleep(chance.uniform(0.3, 1.2))
            if turn % 2:
                running.send_signal(signal.SIGKILL)
                running.wait()
                running = relay()
            else:
                with server:
                    pass
                server = serve()
        eventually(lambda: len(committed) > 50 or not writer.is_alive())
        is_over.set()
        writer.join()
        running.send_signal(signal.SIGTERM)
        code = running.wait(120)  # in order, or before it could listen to signals
        assert code in (0, -signal.SIGTERM), (tmp_path / "relay.txt").read_text()
        headwater("relay", database, "default", "--once", "--url", url, cwd=tmp_path).check_returncode()
        with connect(url) as client:
            events = list(client.log("default").read())
    finally:
        is_over.set()
        running.kill()
        running.wait()
        with server:
            pass
    assert [json.loads(event.data) for event in events] == committed
    assert len(committed) > 50


def _free_port() -> int:
    """A port that stays free while nobody listens: none of those that the system gives to whoever connects."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
