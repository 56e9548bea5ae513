"""FutoIn's own tables: its `evt_queue` as an outbox, and a migration from there with all consumers.

The reference (futoin-eventstream) keeps events in `evt_queue` (id, type, data, ts) and its reliable consumers in
`evt_consumers` (ident, last_evt_id), in PostgreSQL, MySQL or SQLite; an application adds events there in its own
transactions. A row's id, with a source that names its database and table, is the event's id in the log. This identifies
events already taken, whether they were relayed or moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

from ..core.event import Event
from ..core.log import EventLog
from .bulk import append_all
from .outbox import Relay, checked_table

QUEUE, CONSUMERS = "evt_queue", "evt_consumers"


class QueueRelay(Relay):
    """Appends the rows of an `evt_queue` to a log, and deletes them: see Relay. The reference's own services must no
    longer serve that table.
    """

    POSITION: ClassVar[str] = "id"

    def __init__(self, connection: Any, log: EventLog, table: str = QUEUE, source: str = "") -> None:
        """`source` is the source of the events, by default `/futoin/{database}/{table}`; it must be unique per
        database.
        """
        super().__init__(connection, log, table)
        self.source = source or f"/futoin/{quote(self._database(), safe='')}/{table}"

    def copy(self) -> int:
        """Append all rows, and delete none. Returns how many there are. Raises as `run_once`."""
        return append_all(self._log, self._all()).events

    def positions(self, table: str = CONSUMERS) -> list[Position]:
        """The positions of the reference's consumers in the log, once their events are there. Raises as `run_once`."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(f"SELECT ident, last_evt_id FROM {checked_table(table)} ORDER BY ident")
            idents = [(str(ident), int(last)) for ident, last in cursor.fetchall()]
        finally:
            cursor.close()
            self._connection.rollback()
        waiting, found, last_number = dict(idents), dict[str, int](), 0
        for event in self._log.read():
            if event.source != self.source:
                continue
            for ident in [ident for ident, last in waiting.items() if int(event.id) > last]:
                del waiting[ident]
                found[ident] = event.sequence_number - 1
            last_number = event.sequence_number
            if not waiting:
                break
        return [Position(*_of_ident(ident), found.get(ident, last_number)) for ident, _ in idents]

    def _all(self) -> Iterator[Event]:
        after = 0
        while rows := self._rows(after):
            yield from map(self._event, rows)
            after = rows[-1][0]

    def _columns(self) -> str:
        return f"id, type, {self._dialect.as_text.format('data')}, {self._dialect.as_text.format('ts')}"

    def _event(self, row: tuple[Any, ...]) -> Event:
        id, type, data, ts = row
        text = data.decode() if isinstance(data, bytes) else data
        return Event(type, text.encode(), id=str(id), source=self.source, attributes={"time": _time(ts)})

    def _database(self) -> str:
        cursor = self._connection.cursor()
        try:
            cursor.execute(f"SELECT {self._dialect.database}")
            (name,) = cursor.fetchone()
        finally:
            cursor.close()
            self._connection.rollback()
        return str(name)


class Position(NamedTuple):
    """The position of a consumer of the reference in the log."""

    user: str
    """The reference's local user id."""
    component: str
    after: int


def move(
    relay: QueueRelay, log: EventLog, users: Mapping[str, str], consumers: str = CONSUMERS
) -> tuple[int, list[Position]]:
    """Copy the events, and register the consumers at their positions; one already registered keeps its position.

    `users` maps the reference's local user ids to names of users here; others keep theirs. May be repeated. Returns the
    number of events, and the consumers. Raises as `EventLog.append`, and what the database raises.
    """
    events = relay.copy()
    known = {(consumer.owner, consumer.component) for consumer in log.consumers()}
    positions = [each._replace(user=users.get(each.user, each.user)) for each in relay.positions(consumers)]
    for each in positions:
        if (each.user, each.component) not in known:
            log.register_consumer(each.user, each.component, after=each.after)
    return events, positions


def _of_ident(ident: str) -> tuple[str, str]:
    """`{local user id}:{component}`."""
    user, _, component = ident.rpartition(":")
    return user, component


def _time(text: object) -> str:
    """A UTC timestamp of the database, in CloudEvents form."""
    moment = datetime.fromisoformat(text.decode() if isinstance(text, bytes) else str(text))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
