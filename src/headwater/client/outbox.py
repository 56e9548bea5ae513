"""The transactional outbox: an event is written in the caller's own database transaction, and reaches the log once.

`add_xfer_event` (FTN18, 3.2.1) inserts a row into a table of the caller's SQLite or PostgreSQL database, so that the
event happens if and only if the transaction does. A `Relay` appends the rows to a log and deletes them. Each row has an
id of its own, by which the log recognises it when it is appended again: so neither a relay nor a server that is killed
in between loses or repeats an event, as long as the log keeps the ids (see its settings) of what a relay was about.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ..core.errors import InvalidInput
from ..core.event import Event
from ..core.identifier import uuid7s
from ..core.limits import show
from ..core.log import EventLog
from ..formats.installing import how_to_install
from .bulk import append_all

TABLE = "headwater_outbox"
SOURCE = "/outbox"
"""The source of the events, beside which their ids are unique."""
BATCH_EVENTS = 1000
EVENT_TYPE = re.compile(r"[A-Z_]{1,16}", re.ASCII)
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?", re.ASCII)


class Dialect(NamedTuple):
    """What one kind of database wants said differently."""

    placeholder: str
    position: str
    """The column that orders the rows."""


SQLITE = Dialect("?", "INTEGER PRIMARY KEY AUTOINCREMENT")
POSTGRESQL = Dialect("%s", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")


def create_table(connection: Any, table: str = TABLE) -> None:
    """Make the outbox table, if it is not there. Commits nothing. Raises InvalidInput."""
    dialect = _dialect(connection)
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {_checked(table)} (position {dialect.position}, "
        "id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, data TEXT NOT NULL)"
    )


def add_xfer_event(transaction: Any, type: str, data: object, table: str = TABLE) -> str:
    """Add an event to the transaction: it happens if that commits. Answers the event's id.

    `transaction` is a connection or cursor of sqlite3, or of psycopg (2 or 3), with a transaction that is open, or that
    the statement opens. `type` is a FutoIn event type (1 to 16 capitals or underscores), `data` anything that JSON can
    say. The event's number is known when a relay has appended it, not before. Raises InvalidInput.
    """
    if not isinstance(type, str) or not EVENT_TYPE.fullmatch(type):
        raise InvalidInput(f"{show(type)} given, ^{EVENT_TYPE.pattern}$ is allowed", "type")
    try:
        text = msgspec.json.encode(data).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON-encodable: {error}", "data") from None
    _check_open(transaction)
    (id,) = uuid7s(1)
    mark = _dialect(transaction).placeholder
    statement = f"INSERT INTO {_checked(table)} (id, type, data) VALUES ({mark}, {mark}, {mark})"
    transaction.execute(statement, (id, type, text))
    return id


class Relay:
    """Appends what an outbox holds to a log, in order, and deletes it. Several may run; one at a time is enough.

    Rows are taken when they become visible, whatever their positions: a transaction that commits late is not missed.
    """

    def __init__(self, connection: Any, log: EventLog, table: str = TABLE) -> None:
        """`connection` is the relay's own: it commits on it."""
        self._connection, self._log, self._table = connection, log, _checked(table)
        self._mark = _dialect(connection).placeholder

    def run_once(self) -> int:
        """Append and delete the rows that are there, at most a batch; answers how many.

        Raises as `EventLog.append`, and what the database raises; running it again goes on where it ended.
        """
        rows = self._rows()
        if rows:
            events = [Event(type, data.encode(), id=id, source=SOURCE) for _, id, type, data in rows]
            append_all(self._log, events)
            self._delete([position for position, *_ in rows])
        return len(rows)

    def run(self, stopped: threading.Event, interval_s: float = 0.2) -> None:
        """Go on until `stopped` is set, looking for new rows so often. Raises as `run_once`."""
        while not stopped.is_set():
            if self.run_once() < BATCH_EVENTS:
                stopped.wait(interval_s)

    def _rows(self) -> Sequence[tuple[int, str, str, str]]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(f"SELECT position, id, type, data FROM {self._table} ORDER BY position LIMIT {BATCH_EVENTS}")
            rows: Sequence[tuple[int, str, str, str]] = cursor.fetchall()
        finally:
            cursor.close()
            self._connection.rollback()  # nothing is held while the log is written
        return rows

    def _delete(self, positions: Sequence[int]) -> None:
        cursor = self._connection.cursor()
        try:
            cursor.executemany(
                f"DELETE FROM {self._table} WHERE position = {self._mark}", [(position,) for position in positions]
            )
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            cursor.close()


def connect_database(address: str) -> Any:
    """A connection to a SQLite file, or to `postgresql://...`, which needs the package psycopg. Raises InvalidInput."""
    if not address.startswith(("postgresql://", "postgres://")):
        return sqlite3.connect(address, timeout=30, check_same_thread=False)
    try:
        import psycopg
    except ImportError:
        raise InvalidInput(f"PostgreSQL needs the package psycopg: {how_to_install('postgres')}", address) from None
    return psycopg.connect(address)


def _dialect(connection: Any) -> Dialect:
    return SQLITE if isinstance(connection, sqlite3.Connection | sqlite3.Cursor) else POSTGRESQL


def _check_open(transaction: Any) -> None:
    """Raises InvalidInput where the statement would commit by itself, which is no transaction of the caller's."""
    connection = getattr(transaction, "connection", transaction)
    if isinstance(connection, sqlite3.Connection):
        commits_at_once = connection.isolation_level is None and not connection.in_transaction
    else:
        info = getattr(connection, "info", None)
        commits_at_once = bool(getattr(connection, "autocommit", False)) and getattr(info, "transaction_status", 0) == 0
    if commits_at_once:
        raise InvalidInput("the connection commits each statement by itself; begin a transaction", "transaction")


def _checked(table: str) -> str:
    if not _TABLE_NAME.fullmatch(table):
        raise InvalidInput(f"{show(table)} given, {_TABLE_NAME.pattern} is allowed", "table")
    return table
