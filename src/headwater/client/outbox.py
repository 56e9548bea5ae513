"""The transactional outbox: an event is written in the caller's own database transaction, and reaches the log once.

`add_xfer_event` (FTN18, 3.2.1) inserts a row into a table of the caller's SQLite, PostgreSQL or MySQL database, so that
the event happens if and only if the transaction does. A `Relay` appends the rows to a log and deletes them. Each row
has its own id, by which the log recognises a repeated append. So killing a relay or a server in between neither loses
nor repeats an event, as long as the log keeps the ids (see its settings) of the events in question.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from ..core.errors import InvalidInput
from ..core.event import Event
from ..core.identifier import uuid7s
from ..core.limits import show
from ..core.log import EventLog
from ..formats.installing import how_to_install
from ..formats.settings.local_paths import scheme_of
from .bulk import append_all

TABLE = "headwater_outbox"
SOURCE = "/outbox"
"""The source of the events; their ids are unique within it."""
BATCH_EVENTS = 1000
EVENT_TYPE = re.compile(r"[A-Z_]{1,16}", re.ASCII)
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?", re.ASCII)


class Dialect(NamedTuple):
    """The SQL differences of one kind of database."""

    placeholder: str
    position: str
    """The column that orders the rows."""
    id: str = "TEXT"
    text: str = "TEXT"
    as_text: str = "CAST({} AS TEXT)"
    """For a column that may be JSON."""
    database: str = "'main'"
    """The name of the database."""


SQLITE = Dialect("?", "INTEGER PRIMARY KEY AUTOINCREMENT")
POSTGRESQL = Dialect("%s", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", database="current_database()")
MYSQL = Dialect("%s", "BIGINT AUTO_INCREMENT PRIMARY KEY", "VARCHAR(36)", "LONGTEXT", "CAST({} AS CHAR)", "DATABASE()")

_AT_ONE_TIME = """DO $once$ BEGIN
    IF to_regclass('{table}') IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('headwater outbox'));
        {statement};
    END IF;
END $once$"""
"""PostgreSQL's IF NOT EXISTS does not see a table that another transaction is creating, and fails when that commits.
One statement, so that the lock also holds on an autocommit connection.
"""


def create_table(connection: Any, table: str = TABLE) -> None:
    """Create the outbox table if it does not exist. Commits nothing. Raises InvalidInput. Programs that start together
    may all call it: the others wait for the transaction of the first.
    """
    dialect = dialect_of(connection)
    statement = (
        f"CREATE TABLE IF NOT EXISTS {checked_table(table)} (position {dialect.position}, "
        f"id {dialect.id} NOT NULL UNIQUE, type {dialect.id} NOT NULL, data {dialect.text} NOT NULL)"
    )
    _execute(connection, _AT_ONE_TIME.format(table=table, statement=statement) if dialect is POSTGRESQL else statement)


def add_xfer_event(transaction: Any, type: str, data: object, table: str = TABLE) -> str:
    """Add an event to the transaction: it is appended if that commits. Returns the event's id.

    `transaction` is a connection or cursor of sqlite3, of psycopg (2 or 3), or of PyMySQL, with an open transaction, or
    one that the statement opens. `type` is a FutoIn event type (1 to 16 capitals or underscores), `data` anything that
    JSON can represent. The event gets its number when a relay appends it, not before. Raises InvalidInput.
    """
    if not isinstance(type, str) or not EVENT_TYPE.fullmatch(type):
        raise InvalidInput(f"expected ^{EVENT_TYPE.pattern}$, got {show(type)}", "type")
    try:
        text = msgspec.json.encode(data).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON-encodable: {error}", "data") from None
    _check_open(transaction)
    (id,) = uuid7s(1)
    mark = dialect_of(transaction).placeholder
    statement = f"INSERT INTO {checked_table(table)} (id, type, data) VALUES ({mark}, {mark}, {mark})"
    _execute(transaction, statement, (id, type, text))
    return id


class Relay:
    """Appends the rows of an outbox to a log, in order, and deletes them. Several may run; one at a time is enough.

    Rows are taken when they become visible, whatever their positions: a transaction that commits late is not missed.
    """

    POSITION: ClassVar[str] = "position"
    """The column that orders the rows."""

    def __init__(self, connection: Any, log: EventLog, table: str = TABLE) -> None:
        """`connection` belongs to the relay, which commits on it."""
        self._connection, self._log, self._table = connection, log, checked_table(table)
        self._dialect = dialect_of(connection)

    def run_once(self) -> int:
        """Append and delete the existing rows, at most a batch. Returns how many.

        Raises as `EventLog.append`, and what the database raises; run it again to resume.
        """
        rows = self._rows()
        if rows:
            append_all(self._log, [self._event(row) for row in rows])
            self._delete([row[0] for row in rows])
        return len(rows)

    def run(self, stopped: threading.Event, interval_s: float = 0.2) -> None:
        """Run until `stopped` is set, checking for new rows every `interval_s` seconds. Raises as `run_once`."""
        while not stopped.is_set():
            if self.run_once() < BATCH_EVENTS:
                stopped.wait(interval_s)

    def _columns(self) -> str:
        """The selected columns; the position comes first."""
        return "position, id, type, data"

    def _event(self, row: tuple[Any, ...]) -> Event:
        """The event of a row."""
        _, id, type, data = row
        return Event(type, data.encode(), id=id, source=SOURCE)

    def _rows(self, after: int | None = None) -> Sequence[tuple[Any, ...]]:
        """The first rows, at most a batch; or those after that position."""
        where = "" if after is None else f"WHERE {self.POSITION} > {after:d} "
        cursor = self._connection.cursor()
        try:
            cursor.execute(
                f"SELECT {self._columns()} FROM {self._table} {where}ORDER BY {self.POSITION} LIMIT {BATCH_EVENTS}"
            )
            rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
        finally:
            cursor.close()
            self._connection.rollback()  # hold no locks while writing to the log
        return rows

    def _delete(self, positions: Sequence[int]) -> None:
        cursor = self._connection.cursor()
        try:
            cursor.executemany(
                f"DELETE FROM {self._table} WHERE {self.POSITION} = {self._dialect.placeholder}",
                [(position,) for position in positions],
            )
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            cursor.close()


def connect_database(address: str) -> Any:
    """A connection to a SQLite file, to `postgresql://...`, or to `mysql://USER:PASSWORD@HOST:PORT/DATABASE`; the
    latter two need their own packages. Raises InvalidInput, which names the package to install.
    """
    if address.startswith(("postgresql://", "postgres://")):
        try:
            import psycopg
        except ImportError:
            raise _lacking("PostgreSQL", "psycopg", "postgres") from None
        return psycopg.connect(address)
    if address.startswith(("mysql://", "mariadb://")):
        try:
            import pymysql
        except ImportError:
            raise _lacking("MySQL", "PyMySQL", "mysql") from None
        return pymysql.connect(**_of_address(address), charset="utf8mb4")
    if (scheme := scheme_of(address)) is not None:
        problem = "expected a SQLite file, postgresql://... or mysql://..."
        raise InvalidInput(f"{problem}; {scheme}:// is not supported", "database")
    return sqlite3.connect(os.path.abspath(address), timeout=30, check_same_thread=False)  # `file:x` is a path too


def _lacking(database: str, package: str, extra: str) -> InvalidInput:
    return InvalidInput(f"{database} needs the package {package}: {how_to_install(extra)}", "database")


def _of_address(address: str) -> dict[str, Any]:
    """The connection parameters for PyMySQL. A host that begins with a slash (as %2F) is a Unix socket."""
    parts = urlsplit(address)
    try:
        host, port = unquote(parts.hostname or "localhost"), parts.port or 3306
    except ValueError:
        raise InvalidInput(
            "the port is not a number; expected mysql://USER:PASSWORD@HOST:PORT/DATABASE", "database"
        ) from None
    if len(parts.path) < 2:
        raise InvalidInput("the database is missing; expected mysql://USER:PASSWORD@HOST:PORT/DATABASE", "database")
    place = {"unix_socket": host} if host.startswith("/") else {"host": host, "port": port}
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return {**place, "user": user, "password": password, "database": unquote(parts.path[1:])}


def dialect_of(connection: Any) -> Dialect:
    """The dialect for the database of a connection or cursor."""
    if isinstance(connection, sqlite3.Connection | sqlite3.Cursor):
        return SQLITE
    return MYSQL if type(connection).__module__.startswith(("pymysql", "MySQLdb")) else POSTGRESQL


def _execute(transaction: Any, statement: str, values: Sequence[object] = ()) -> None:
    """Execute on a connection or a cursor; a connection of PyMySQL has no `execute`."""
    if hasattr(transaction, "execute"):
        transaction.execute(statement, values)
        return
    cursor = transaction.cursor()
    try:
        cursor.execute(statement, values)
    finally:
        cursor.close()


def _check_open(transaction: Any) -> None:
    """Raises InvalidInput if the statement would commit by itself, outside any transaction of the caller."""
    connection = getattr(transaction, "connection", transaction)
    if isinstance(connection, sqlite3.Connection):
        commits_at_once = connection.isolation_level is None and not connection.in_transaction
    elif dialect_of(transaction) is MYSQL:
        in_transaction = bool(connection.server_status & 1)  # SERVER_STATUS_IN_TRANS
        commits_at_once = connection.get_autocommit() and not in_transaction
    else:
        info = getattr(connection, "info", None)
        commits_at_once = bool(getattr(connection, "autocommit", False)) and getattr(info, "transaction_status", 0) == 0
    if commits_at_once:
        raise InvalidInput("the connection is in autocommit mode; begin a transaction", "transaction")


def checked_table(table: str) -> str:
    """A table name that cannot inject SQL. Raises InvalidInput."""
    if not _TABLE_NAME.fullmatch(table):
        raise InvalidInput(f"expected {_TABLE_NAME.pattern}, got {show(table)}", "table")
    return table
