"""Read models: tables in the caller's database that follow a log, with each event applied exactly once.

The position of a model is kept in the same database and moved in the same transaction, with the incarnation of the log
that it belongs to: the same number is another event in a recreated log. Tables carry the version of their model, so a
new version is built next to the one in use. Views have the names without a version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ..core.errors import InvalidInput, PositionOfOtherIncarnation
from ..core.event import SequencedEvent
from ..core.log import EventLog, LogInfo
from ..core.query import Query
from .folding import Plan, States
from .projection import Projection, Unreadable
from .sql import Transaction, check_transactions, checked_name, lock_tables, paramstyle_of
from .tags import TagValue

E = TypeVar("E")
T = TypeVar("T")

POSITIONS = "headwater_read_models"
"""The table of positions, with a row for each version of each model."""
LOGS = "headwater_read_model_logs"
"""The table of the incarnations of the logs that these positions belong to. 0.1 had none: its positions are taken to
belong to the log from which the next events are applied."""
BATCH_EVENTS = 1000
"""The number of events per transaction."""


class ReadModel:
    """How events change tables: `ReadModel("seats", {"seat": "course TEXT, student TEXT"}).on(SeatTaken, handler)`.

    It is a value, like a projection; the events that it needs are derived in the same way.
    """

    def __init__(
        self,
        name: str,
        tables: Mapping[str, str],
        *,
        version: int = 1,
        tags: Mapping[str, TagValue] | None = None,
        unreadable: Unreadable = "fail",
    ) -> None:
        """`tables`: their columns, by name. The table `seat` of version 2 is `seat_2`; statements call it `{seat}`.

        `tags` and `unreadable` work as in a `Projection`: with "skip", an event that does not match its class is logged
        and skipped. Raises InvalidInput for names that are not SQL identifiers, and for a version below 1.
        """
        if version < 1:
            raise InvalidInput(f"expected 1 or more, got {version}", "version")
        self.name, self.version = checked_name(name, "name"), version
        self.columns = dict(tables)
        self.tables = {table: f"{checked_name(table, 'tables')}_{version}" for table in tables}
        """The names of this version's tables, by the names that were given."""
        self._projection: Projection[Transaction | None] = Projection(None, tags=tags, unreadable=unreadable)

    def on(self, kind: type[E], handler: Callable[[Transaction, E], object]) -> ReadModel:
        """Add the handler for events of that class. Raises InvalidDefinition, like `Projection.on`."""
        return self.on_stored(kind, lambda transaction, event, _: handler(transaction, event))

    def on_stored(self, kind: type[E], handler: Callable[[Transaction, E, SequencedEvent], object]) -> ReadModel:
        """Like `on`; the handler also gets the event as stored."""

        def apply(transaction: Transaction | None, event: E, stored: SequencedEvent) -> Transaction | None:
            assert transaction is not None, "events are applied in a transaction"
            handler(transaction, event, stored)
            return transaction

        made = object.__new__(ReadModel)
        made.__dict__.update(self.__dict__, _projection=self._projection.on_stored(kind, apply))
        return made

    @property
    def query(self) -> Query:
        """The query for the events it needs. Raises InvalidDefinition if it has no handler."""
        return self._projection.query

    def plan(self) -> Plan:
        """Maps events to their handlers."""
        return Plan([self._projection])


class Lag(NamedTuple):
    """The progress of a read model."""

    position: int
    """The model includes all events up to this number."""
    head: int
    """The number of the log's last event."""

    @property
    def behind(self) -> int:
        """The count of numbers that are left; 0 when it is up to date.

        Some may belong to events that it does not need.
        """
        return max(self.head - self.position, 0)


class Runner:
    """Keeps one read model up to date. Several runners can share a model: each event is applied by one of them."""

    def __init__(self, log: EventLog, connection: Any, model: ReadModel, *, paramstyle: str | None = None) -> None:
        """Create the missing tables; runners that start together create them once.

        `connection` belongs to the runner, which commits on it. `paramstyle` is for a library that does not declare it.
        Raises InvalidInput for a connection in autocommit mode, InvalidDefinition for a model without handlers, and the
        errors of the database.
        """
        check_transactions(connection)
        self._log, self._connection, self._model = log, connection, model
        self._query, self._plan = model.query, model.plan()
        self._transaction = Transaction(connection, paramstyle or paramstyle_of(connection), model.tables)
        self._identity = (model.name, model.version)
        self._prepare()

    def run_once(self) -> int:
        """Apply the next events, at most 1,000, in one transaction. Returns their number; 0 when it is up to date.

        Raises UnreadableEvent, the errors of handlers and the database (with a note that names the event), and the
        errors of `EventLog.read`. Run it again to resume. PositionTrimmed and PositionOfOtherIncarnation mean that the
        model must be rebuilt.
        """
        position = self.position()
        reading = self._log.read(self._query, after=position, limit=BATCH_EVENTS)
        events = list(reading)
        upto = events[-1].sequence_number if len(events) == BATCH_EVENTS else max(reading.head, position)
        if upto == position:
            self._check_log(position, self._log.info())
            return 0
        return len(events) if self._apply(events, position, upto) else 0

    def catch_up(self) -> int:
        """Run until it is up to date. Returns how many events were applied. Raises the same errors as `run_once`."""
        log, count = self._log.info(), 0
        self._check_log(self.position(), log)
        while self.position() < log.head:
            count += self.run_once()
        return count

    def run(self, stopped: threading.Event, *, poll_s: float = 1.0) -> None:
        """Run until `stopped` is set, which is checked every `poll_s` seconds. Raises the same errors as `run_once`."""
        while not stopped.is_set():
            position = self.position()
            with self._log.subscribe(self._query, after=position) as subscription:
                self._check_log(position, self._log.info())
                while not stopped.is_set():
                    events = subscription.poll(poll_s)
                    if subscription.cursor > position and not self._apply(events, position, subscription.cursor):
                        break  # another runner was faster: resume at its position
                    position = subscription.cursor

    def position(self) -> int:
        """The model includes all events up to this number."""
        ((position,),) = self._in_transaction(self._positions)
        return int(position)

    def lag(self) -> Lag:
        """Its progress. A new version that is not `behind` can be published.

        Numbers that the log never assigned do not count. Raises the same errors as `run_once` if events after its
        position are gone, or the position belongs to another incarnation of the log.
        """
        position, log = self.position(), self._log.info()
        self._check_log(position, log)
        if position + 1 < log.first_retained:
            next(iter(self._log.read(self._query, after=position, limit=1)), None)  # raises if events are missing
        return Lag(max(position, log.first_retained - 1), log.head)

    def publish(self) -> None:
        """Point the views, which have the names of the tables without a version, to this version.

        Atomic if the database supports it: SQLite and PostgreSQL do, MySQL does not.
        """

        def show() -> None:
            self._begin()
            for name, table in self._model.tables.items():
                self._transaction.execute(f"DROP VIEW IF EXISTS {name}")
                self._transaction.execute(f"CREATE VIEW {name} AS SELECT * FROM {table}")

        self._in_transaction(show)

    def remove(self) -> None:
        """Drop the tables of this version and its position, once another version is published."""

        def drop() -> None:
            self._begin()
            for table in self._model.tables.values():
                self._transaction.execute(f"DROP TABLE IF EXISTS {table}")
            for table in (POSITIONS, LOGS):
                self._transaction.execute(f"DELETE FROM {table} WHERE model = ? AND version = ?", self._identity)

        self._in_transaction(drop)

    def _prepare(self) -> None:
        def make() -> None:
            lock_tables(self._transaction)
            self._transaction.execute(
                f"CREATE TABLE IF NOT EXISTS {POSITIONS} (model VARCHAR(64) NOT NULL, version INTEGER NOT NULL, "
                "position BIGINT NOT NULL, PRIMARY KEY (model, version))"
            )
            self._transaction.execute(
                f"CREATE TABLE IF NOT EXISTS {LOGS} (model VARCHAR(64) NOT NULL, version INTEGER NOT NULL, "
                "incarnation VARCHAR(64) NOT NULL, PRIMARY KEY (model, version))"
            )
            for name, table in self._model.tables.items():
                self._transaction.execute(f"CREATE TABLE IF NOT EXISTS {table} ({self._model.columns[name]})")

        def begin_at_zero() -> None:
            if not self._positions():
                self._transaction.execute(f"INSERT INTO {POSITIONS} VALUES (?, ?, 0)", self._identity)

        self._in_transaction(make)
        try:
            self._in_transaction(begin_at_zero)
        except Exception:
            if not self._in_transaction(self._positions):  # otherwise a runner started at the same time was faster
                raise

    def _positions(self) -> list[tuple[Any, ...]]:
        where = f"SELECT position FROM {POSITIONS} WHERE model = ? AND version = ?"
        return self._transaction.execute(where, self._identity)

    def _check_log(self, position: int, log: LogInfo) -> bool:
        """Whether the log of the position is known. Raises PositionOfOtherIncarnation if it is not this one.

        Position 0 belongs to every log.
        """
        found = self._in_transaction(self._incarnations) if position else []
        if found and found != [(log.incarnation,)]:
            raise PositionOfOtherIncarnation(position, log.incarnation, log.first_retained)
        return bool(found)

    def _incarnations(self) -> list[tuple[Any, ...]]:
        where = f"SELECT incarnation FROM {LOGS} WHERE model = ? AND version = ?"
        return [tuple(row) for row in self._transaction.execute(where, self._identity)]

    def _apply(self, events: Sequence[SequencedEvent], position: int, upto: int) -> bool:
        """Apply the events and move the position in one transaction; False if another runner has moved it.

        The position is moved first: runners wait for its row. The incarnation is requested after the events were read:
        events of another one are never applied.
        """
        log = self._log.info()
        is_known = self._check_log(position, log)

        def apply() -> bool:
            moved = self._transaction.change(
                f"UPDATE {POSITIONS} SET position = ? WHERE model = ? AND version = ? AND position = ?",
                (upto, *self._identity, position),
            )
            if moved:
                if not is_known:
                    self._transaction.execute(f"DELETE FROM {LOGS} WHERE model = ? AND version = ?", self._identity)
                    row = (*self._identity, log.incarnation)
                    self._transaction.execute(f"INSERT INTO {LOGS} VALUES (?, ?, ?)", row)
                states = States(self._plan)
                states.values[0] = self._transaction
                states.take(events, self._plan.table((0,)))
            return bool(moved)

        return self._in_transaction(apply)

    def _begin(self) -> None:
        """Begin a transaction for tables by changing a row: sqlite3 begins none for the other statements."""
        lock_tables(self._transaction)
        statement = f"UPDATE {POSITIONS} SET position = position WHERE model = ? AND version = ?"
        self._transaction.change(statement, self._identity)

    def _in_transaction(self, work: Callable[[], T]) -> T:
        try:
            done = work()
            self._connection.commit()
        except BaseException as error:
            try:
                self._connection.rollback()
            except Exception as failure:  # such as a lost connection: the first error gives the reason
                error.add_note(f"The rollback also failed: {type(failure).__name__}: {failure}")
            raise
        return done
