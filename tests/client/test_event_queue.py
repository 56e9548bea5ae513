"""The tables of FutoIn's own implementation, as it makes them: relayed, and moved with all consumers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.client.databases import DATABASES, address_of, execute
from tests.server.running import RunningServer, headwater

from headwater.client import connect
from headwater.client.event_queue import QueueRelay, move
from headwater.client.outbox import connect_database
from headwater.core.errors import InvalidInput
from headwater.storage.memory import MemoryLog

pytestmark = pytest.mark.timeout(200)

ID = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGSERIAL NOT NULL PRIMARY KEY",
    "mysql": "BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY",
}
DATA = {"sqlite": "TEXT", "postgresql": "JSON", "mysql": "TEXT"}
TIME = {"sqlite": "DATETIME", "postgresql": "TIMESTAMP", "mysql": "DATETIME"}


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database with the tables of the reference, empty."""
    address, kind = address_of(request, tmp_path), request.param
    with closing(connect_database(address)) as connection:
        for table in ("evt_queue", "evt_consumers"):
            execute(connection, f"DROP TABLE IF EXISTS {table}")
        execute(
            connection,
            f"CREATE TABLE evt_queue (id {ID[kind]}, type VARCHAR(16) NOT NULL, data {DATA[kind]} NOT NULL, "
            f"ts {TIME[kind]} NOT NULL)",
        )
        execute(
            connection,
            f"CREATE TABLE evt_consumers (id {ID[kind]}, last_evt_id BIGINT NOT NULL DEFAULT 0, "
            f"reg_time {TIME[kind]} NOT NULL, last_time {TIME[kind]} NOT NULL, ident VARCHAR(64) NOT NULL UNIQUE)",
        )
        connection.commit()
    yield address


@pytest.fixture
def connection(database: str) -> Iterator[Any]:
    with closing(connect_database(database)) as connection:
        yield connection


def add(connection: Any, *numbers: int) -> None:
    """Rows as an application adds them in its transaction."""
    for number in numbers:
        statement = (
            f"INSERT INTO evt_queue (type, data, ts) VALUES ('ORDER_NEW', '{{\"n\": {number}}}', '2026-11-22 20:47:03')"
        )
        execute(connection, statement)
    connection.commit()


def consumer(connection: Any, ident: str, last: int) -> None:
    now = "'2026-11-22 20:47:03'"
    execute(
        connection,
        f"INSERT INTO evt_consumers (last_evt_id, reg_time, last_time, ident) VALUES ({last}, {now}, {now}, '{ident}')",
    )
    connection.commit()


def numbers(log: Any) -> list[int]:
    return [json.loads(event.data)["n"] for event in log.read()]


def test_rows_are_appended_once_and_deleted(connection: Any, database: str) -> None:
    log = MemoryLog()
    add(connection, 1, 2)
    with closing(connect_database(database)) as own:
        relay = QueueRelay(own, log)
        assert relay.run_once() == 2
        assert relay.run_once() == 0
        add(connection, 3)
        assert relay.run_once() == 1
    assert execute(connection, "SELECT COUNT(*) FROM evt_queue") == [(0,)]
    assert numbers(log) == [1, 2, 3]
    (event, *_) = log.read()
    assert (event.type, event.id, event.source) == ("ORDER_NEW", "1", relay.source)
    assert event.attributes == {"time": "2026-11-22T20:47:03Z"}


def test_a_move_brings_the_consumers_to_where_they_stood_and_may_be_repeated(connection: Any, database: str) -> None:
    log = MemoryLog()
    add(connection, *range(1, 1101))
    execute(connection, "DELETE FROM evt_queue WHERE id <= 50")  # discarded: all have read it
    connection.commit()
    for ident, last in (("1:Billing", 50), ("1:Stock", 1000), ("2:Billing", 1100)):
        consumer(connection, ident, last)
    with closing(connect_database(database)) as own:
        relay = QueueRelay(own, log)
        for _ in range(2):
            events, positions = move(relay, log, {"1": "alice"})
            assert events == 1050
            assert positions == [("alice", "Billing", 0), ("alice", "Stock", 950), ("2", "Billing", 1050)]
            assert {(each.owner, each.component): each.acknowledged for each in log.consumers()} == {
                ("alice", "Billing"): 0, ("alice", "Stock"): 950, ("2", "Billing"): 1050,
            }  # fmt: skip
        assert execute(connection, "SELECT COUNT(*) FROM evt_queue") == [(1050,)]
        connection.rollback()
        log.acknowledge("alice", "Billing", 7)
        move(relay, log, {"1": "alice"})
        assert log.consumer("alice", "Billing").acknowledged == 7, "one that went on keeps its position"
        while relay.run_once():
            pass
    assert numbers(log) == list(range(51, 1101)), "what was moved is recognised when it is relayed"


def test_the_command_moves_and_relays(connection: Any, database: str, tmp_path: Path) -> None:
    add(connection, 1, 2, 3)
    consumer(connection, "1:Billing", 2)
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        command = ["relay", database, "default", "--futoin", "--url", server.url]
        moved = headwater(*command, "--move", "--owner", "1=alice", cwd=tmp_path)
        assert moved.returncode == 0, moved.stderr
        assert moved.stdout.splitlines()[1:] == ["consumer alice Billing after 2"]
        assert moved.stdout.startswith("3 events of /futoin/")
        headwater(*command, "--once", cwd=tmp_path).check_returncode()
        with connect(server.url) as client:
            assert numbers(client.log("default")) == [1, 2, 3]
    assert execute(connection, "SELECT COUNT(*) FROM evt_queue") == [(0,)]


@pytest.mark.parametrize(
    ("address", "module", "extra"),
    [("postgresql://db/app", "psycopg", "postgres"), ("mysql://db/app", "pymysql", "mysql")],
)
def test_a_driver_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, address: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidInput, match=rf"\[{extra}\]"):
        connect_database(address)


@pytest.mark.parametrize("address", ["mysql://db", "mysql://db/", "mysql://db:port/app"])
def test_an_address_of_mysql_that_names_no_database_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="expected mysql://USER:PASSWORD@HOST:PORT/DATABASE"):
        connect_database(address)
