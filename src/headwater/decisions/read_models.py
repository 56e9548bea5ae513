"""Read models: tables that follow a log, in a database of the caller's, each event in them exactly once.

The number up to which everything is in a model is kept in the same database and moved in the same transaction. Tables
carry the version of their model, so that a new version is built beside the one that is in use; views have their names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ..core.errors import InvalidInput
from ..core.event import SequencedEvent
from ..core.log import EventLog
from ..core.query import Query
from .folding import Plan, States
from .projection import Projection, Unreadable
from .sql import Transaction, check_transactions, checked_name, lock_tables, paramstyle_of
from .tags import TagValue

E = TypeVar("E")
T = TypeVar("T")

POSITIONS = "headwater_read_models"
"""The table of positions: a row for each version of each model."""
BATCH_EVENTS = 1000
"""Events of one transaction."""


class ReadModel:
    """What events do to tables: `ReadModel("seats", {"seat": "course TEXT, student TEXT"}).on(SeatTaken, handler)`.

    It is a value, as a projection is; which events it needs is derived in the same way.
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
        """`tables`: their columns, by their names. The table `seat` of version 2 is `seat_2`, in statements `{seat}`.

        `tags` and `unreadable` are as those of a `Projection`: with "skip", an event that does not fit its class is
        logged, and the model goes on behind it.
        Raises InvalidInput for names that are no identifiers of SQL, and for a version below 1.
        """
        if version < 1:
            raise InvalidInput(f"{version} given, 1 or more is allowed", "version")
        self.name, self.version = checked_name(name, "name"), version
        self.columns = dict(tables)
        self.tables = {table: f"{checked_name(table, 'tables')}_{version}" for table in tables}
        """What the tables of this version are called, by the names that were given."""
        self._projection: Projection[Transaction | None] = Projection(None, tags=tags, unreadable=unreadable)

    def on(self, kind: type[E], handler: Callable[[Transaction, E], object]) -> ReadModel:
        """With what events of that class do. Raises InvalidDefinition, as `Projection.on`."""
        return self.on_stored(kind, lambda transaction, event, _: handler(transaction, event))

    def on_stored(self, kind: type[E], handler: Callable[[Transaction, E, SequencedEvent], object]) -> ReadModel:
        """As `on`; the handler gets the event as it is stored, too."""

        def apply(transaction: Transaction | None, event: E, stored: SequencedEvent) -> Transaction | None:
            assert transaction is not None, "events are applied in a transaction"
            handler(transaction, event, stored)
            return transaction

        made = object.__new__(ReadModel)
        made.__dict__.update(self.__dict__, _projection=self._projection.on_stored(kind, apply))
        return made

    @property
    def query(self) -> Query:
        """Which events it needs. Raises InvalidDefinition if nothing is handled."""
        return self._projection.query

    def plan(self) -> Plan:
        """How events find their handlers."""
        return Plan([self._projection])


class Lag(NamedTuple):
    """How far a read model has come."""

    position: int
    """Everything up to this number is in it."""
    head: int
    """The number of the log's last event."""

    @property
    def behind(self) -> int:
        """How many numbers are left; 0 when it is up to date. Not all of them are of events that it needs."""
        return max(self.head - self.position, 0)


class Runner:
    """Keeps one read model up to date. Several may run on one model: each event is applied by one of them."""

    def __init__(self, log: EventLog, connection: Any, model: ReadModel, *, paramstyle: str | None = None) -> None:
        """Makes the tables that are not there; runners that start together make them once.

        `connection` is the runner's own: it commits on it. `paramstyle` is for a library that does not say it. Raises
        InvalidInput for a connection that commits each statement by itself, InvalidDefinition for a model that handles
        nothing, and what the database raises.
        """
        check_transactions(connection)
        self._log, self._connection, self._model = log, connection, model
        self._query, self._plan = model.query, model.plan()
        self._transaction = Transaction(connection, paramstyle or paramstyle_of(connection), model.tables)
        self._identity = (model.name, model.version)
        self._prepare()

    def run_once(self) -> int:
        """Apply the next events, at most 1,000, in one transaction; answers how many, 0 when it is up to date.

        Raises UnreadableEvent, what handlers and the database raise (with a note that names the event), and as
        `EventLog.read`; running it again goes on where it ended. PositionTrimmed and PositionOfOtherIncarnation say
        that the model must be built anew.
        """
        position = self.position()
        reading = self._log.read(self._query, after=position, limit=BATCH_EVENTS)
        events = list(reading)
        upto = events[-1].sequence_number if len(events) == BATCH_EVENTS else max(reading.head, position)
        return len(events) if upto > position and self._apply(events, position, upto) else 0

    def catch_up(self) -> int:
        """Run until it is up to date; answers how many events were applied. Raises as `run_once`."""
        head, count = self._log.head(), 0
        while self.position() < head:
            count += self.run_once()
        return count

    def run(self, stopped: threading.Event, *, poll_s: float = 1.0) -> None:
        """Go on until `stopped` is set, which is looked at so often. Raises as `run_once`."""
        while not stopped.is_set():
            position = self.position()
            with self._log.subscribe(self._query, after=position) as subscription:
                while not stopped.is_set():
                    events = subscription.poll(poll_s)
                    if subscription.cursor > position and not self._apply(events, position, subscription.cursor):
                        break  # another runner was faster: begin at its position
                    position = subscription.cursor

    def position(self) -> int:
        """Everything up to this number is in the model."""
        ((position,),) = self._in_transaction(self._positions)
        return int(position)

    def lag(self) -> Lag:
        """How far it has come. A new version that is not `behind` can be published.

        Numbers that the log never gave do not count. Raises as `run_once` does where events after its position are
        gone.
        """
        position, log = self.position(), self._log.info()
        if position + 1 < log.first_retained:
            next(iter(self._log.read(self._query, after=position, limit=1)), None)  # raises unless none is missing
        return Lag(max(position, log.first_retained - 1), log.head)

    def publish(self) -> None:
        """Let the views, which have the names of the tables without a version, show this version.

        All at once, where the database can do that: SQLite and PostgreSQL can, MySQL cannot.
        """

        def show() -> None:
            self._begin()
            for name, table in self._model.tables.items():
                self._transaction.execute(f"DROP VIEW IF EXISTS {name}")
                self._transaction.execute(f"CREATE VIEW {name} AS SELECT * FROM {table}")

        self._in_transaction(show)

    def remove(self) -> None:
        """Drop the tables of this version, and forget its position; when another one is published."""

        def drop() -> None:
            self._begin()
            for table in self._model.tables.values():
                self._transaction.execute(f"DROP TABLE IF EXISTS {table}")
            self._transaction.execute(f"DELETE FROM {POSITIONS} WHERE model = ? AND version = ?", self._identity)

        self._in_transaction(drop)

    def _prepare(self) -> None:
        def make() -> None:
            lock_tables(self._transaction)
            self._transaction.execute(
                f"CREATE TABLE IF NOT EXISTS {POSITIONS} (model VARCHAR(64) NOT NULL, version INTEGER NOT NULL, "
                "position BIGINT NOT NULL, PRIMARY KEY (model, version))"
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
            if not self._in_transaction(self._positions):  # otherwise a runner that started with this one was faster
                raise

    def _positions(self) -> list[tuple[Any, ...]]:
        where = f"SELECT position FROM {POSITIONS} WHERE model = ? AND version = ?"
        return self._transaction.execute(where, self._identity)

    def _apply(self, events: Sequence[SequencedEvent], position: int, upto: int) -> bool:
        """Apply them, and move the position, in one transaction; False if another runner has moved it.

        The position is moved first: its row is what runners wait for.
        """

        def apply() -> bool:
            moved = self._transaction.change(
                f"UPDATE {POSITIONS} SET position = ? WHERE model = ? AND version = ? AND position = ?",
                (upto, *self._identity, position),
            )
            if moved:
                states = States(self._plan)
                states.values[0] = self._transaction
                states.take(events, self._plan.table((0,)))
            return bool(moved)

        return self._in_transaction(apply)

    def _begin(self) -> None:
        """Begin a transaction about tables: with a change of a row, because sqlite3 begins none for the others."""
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
            except Exception as failure:  # of the connection that is lost, say: what was first says why
                error.add_note(f"Rolling back failed, too: {type(failure).__name__}: {failure}")
            raise
        return done
