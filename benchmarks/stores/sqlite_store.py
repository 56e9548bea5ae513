"""SQLite from the standard library, as well as one can use it for this: the yardstick in process.

WAL, synchronous=FULL, one writer thread. The same index as Headwater's: unique ids, postings by type and by tag. With
`is_grouping`, the writer puts whatever is queued into one transaction, which is the group commit that Headwater has;
without it, every append is a transaction of its own. Nothing is validated here, so Headwater pays for its checks alone.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from headwater.core import AppendCondition, Event

from .store import AppendAsync, Conflict, Extent, Store

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, tags TEXT NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS events_by_type ON events (type);
CREATE TABLE IF NOT EXISTS postings (
    tag TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (tag, number)) WITHOUT ROWID;
"""
_CACHE_KIB = 256 * 1024
_GROUP_EVENTS_MAX = 10_000
_TAG_MATCHES = """
SELECT e.type, e.data, e.tags, e.id FROM postings p CROSS JOIN events e ON e.number = p.number
WHERE p.tag = ? ORDER BY p.number"""
_TYPE_MATCHES = "SELECT type, data, tags, id FROM events WHERE type = ? ORDER BY number DESC LIMIT ?"


class _Append:
    __slots__ = ("condition", "deliver", "error", "events", "last")

    def __init__(
        self, events: Sequence[Event], condition: AppendCondition | None, deliver: Callable[[list[_Append]], None]
    ) -> None:
        self.events, self.condition, self.deliver = events, condition, deliver
        self.last = 0
        self.error: Exception | None = None

    def result(self) -> int:
        if self.error is not None:
            raise self.error
        return self.last


class SqliteStore(Store):
    """One database file, one writer thread, and a connection for reading."""

    def __init__(self, directory: Path, *, is_grouping: bool = True) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.is_grouping = is_grouping
        self._path = directory / "events.sqlite"
        self._queue: SimpleQueue[_Append | Callable[[sqlite3.Connection], None] | None] = SimpleQueue()
        self._reader = self._connect()
        self._reader.executescript(_SCHEMA)
        self._thread = threading.Thread(target=self._write, name="sqlite-writer")
        self._thread.start()

    def append(self, events: Sequence[Event], condition: AppendCondition | None = None) -> int:
        """See Store."""
        done = threading.Lock()
        done.acquire()
        append = _Append(events, condition, lambda _: done.release())
        self._queue.put(append)
        done.acquire()
        return append.result()

    def append_all(self, batches: Sequence[Sequence[Event]], in_flight: int) -> int:
        """See Store."""
        free = threading.Semaphore(in_flight)
        appends: list[_Append] = []
        for events in batches:
            free.acquire()
            appends.append(_Append(events, None, lambda done: free.release(len(done))))
            self._queue.put(appends[-1])
        for _ in range(in_flight):
            free.acquire()
        return max(append.result() for append in appends)

    async def serve(self, clients: Callable[[AppendAsync], Awaitable[None]]) -> None:
        """See Store. As Headwater does it: one wake of the loop per commit."""
        loop = asyncio.get_running_loop()
        waiting: dict[_Append, asyncio.Future[int]] = {}

        def resolve(done: list[_Append]) -> None:
            for append in done:
                future = waiting.pop(append)
                future.set_exception(append.error) if append.error else future.set_result(append.last)

        def deliver(done: list[_Append]) -> None:
            loop.call_soon_threadsafe(resolve, done)

        async def append(events: Sequence[Event], condition: AppendCondition | None) -> int:
            request = _Append(events, condition, deliver)
            future: asyncio.Future[int] = loop.create_future()
            waiting[request] = future
            self._queue.put(request)
            return await future

        await clients(append)

    def read_tag(self, tag: str) -> Sequence[Event]:
        """See Store."""
        return [_event(row) for row in self._reader.execute(_TAG_MATCHES, (tag,))]

    def read_type(self, type: str, limit: int) -> Sequence[Event]:
        """See Store."""
        return [_event(row) for row in self._reader.execute(_TYPE_MATCHES, (type, limit))]

    def scan(self) -> Extent:
        """See Store."""
        events = size = last = 0
        for number, *row in self._reader.execute("SELECT number, type, data, tags, id FROM events ORDER BY number"):
            events += 1
            size += len(_event(row).data)
            last = number
        return Extent(events, size, last)

    def trim(self, below: int) -> int:
        """See Store. Postings go too; the file keeps its size."""
        done = threading.Event()

        def delete(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM postings WHERE number < ?", (below,))
            connection.execute("DELETE FROM events WHERE number < ?", (below,))
            connection.execute("COMMIT")
            done.set()

        self._queue.put(delete)
        done.wait()
        return int(self._reader.execute("SELECT min(number) FROM events").fetchone()[0])

    def head(self) -> int:
        """See Store."""
        return int(self._reader.execute("SELECT coalesce(max(number), 0) FROM events").fetchone()[0])

    def close(self) -> None:
        """See Store."""
        self._queue.put(None)
        self._thread.join()
        self._reader.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"cache_size=-{_CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    def _write(self) -> None:
        connection = self._connect()
        head = self.head()
        while (first := self._queue.get()) is not None:
            if isinstance(first, _Append):
                group, action = self._group(first)
                head = _commit(connection, group, head)
                _answer(group)
            else:
                action = first
            if action is not None:
                action(connection)
        connection.close()

    def _group(self, first: _Append) -> tuple[list[_Append], Callable[[sqlite3.Connection], None] | None]:
        """What is committed together, and what is to be done after it."""
        group, events = [first], len(first.events)
        while self.is_grouping and events < _GROUP_EVENTS_MAX:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if not isinstance(item, _Append):
                return group, item
            group.append(item)
            events += len(item.events)
        return group, None


def _commit(connection: sqlite3.Connection, group: list[_Append], head: int) -> int:
    connection.execute("BEGIN IMMEDIATE")
    pending: list[Event] = []
    for append in group:
        if append.condition is not None:
            head = _insert(connection, pending, head)
            pending = []
            if _conflicts(connection, append.condition):
                append.error = Conflict()
                continue
        pending.extend(append.events)
        append.last = head + len(pending)
    head = _insert(connection, pending, head)
    connection.execute("COMMIT")
    return head


def _insert(connection: sqlite3.Connection, events: Sequence[Event], head: int) -> int:
    if not events:
        return head
    connection.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
        [(n, e.id, e.type, "\n".join(e.tags), e.data) for n, e in enumerate(events, head + 1)],
    )
    connection.executemany("INSERT INTO postings VALUES (?, ?)", _postings(events, head))
    return head + len(events)


def _postings(events: Sequence[Event], head: int) -> Iterator[tuple[str, int]]:
    return ((tag, number) for number, event in enumerate(events, head + 1) for tag in event.tags)


def _conflicts(connection: sqlite3.Connection, condition: AppendCondition) -> bool:
    assert condition.fail_if_events_match.items is not None, "conditions here are about types and tags"
    return any(
        connection.execute(*_first_match(item.types, item.tags, condition.after)).fetchone()
        for item in condition.fail_if_events_match.items
    )


def _first_match(types: Sequence[str], tags: Sequence[str], after: int) -> tuple[str, list[str | int]]:
    """The plan is fixed: the first tag drives (the questions name the rarest first), the others are probed."""
    joins = "".join(
        f" CROSS JOIN postings p{k} ON p{k}.tag = ? AND p{k}.number = p0.number" for k in range(1, len(tags))
    )
    marks = ", ".join("?" * len(types))
    kind = f" CROSS JOIN events e ON e.number = p0.number AND e.type IN ({marks})" if types else ""
    sql = f"SELECT 1 FROM postings p0{joins}{kind} WHERE p0.tag = ? AND p0.number > ? LIMIT 1"
    return sql, [*tags[1:], *types, tags[0], after]


def _answer(group: list[_Append]) -> None:
    """Tell each sender once, with all of its appends: clients of one loop share one callback."""
    by_sender: dict[object, list[_Append]] = {}
    for append in group:
        by_sender.setdefault(append.deliver, []).append(append)
    for appends in by_sender.values():
        appends[0].deliver(appends)


def _event(row: Sequence[object]) -> Event:
    type, data, tags, id = row
    return Event(type, data, tuple(tags.split("\n")), id)  # type: ignore[arg-type,attr-defined]
