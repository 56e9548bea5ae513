"""A backend over any `core.LogStore` in this process, for tests: staged batches and writers are kept in memory.

    with bulk_server(MemoryStore()) as url:
        client = BulkClient(url)

`bulk_server(store, users={"alice": ("secret", [Grant("*", frozenset(Right))])})` asks for a login.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa

from headwater.core import (
    ANYBODY,
    Credentials,
    Forbidden,
    Grant,
    LogStore,
    Query,
    Right,
    Unauthenticated,
    User,
)
from headwater.core.actor import act_as
from headwater.core.errors import InvalidInput, TooLarge
from headwater.core.extent import Extent, SplitSize
from headwater.core.limits import APPEND_EVENTS_MAX
from headwater.core.local import LocalLog
from headwater.core.mark import Committed, Staged, WriterState, check_writer
from headwater.flight.server.backend import Login, LogPlace, Span
from headwater.flight.server.server import BulkServer
from headwater.flight.wire import (
    ACTIONS,
    AppendCommand,
    Appended,
    CommitBody,
    DiscardBody,
    LendBody,
    Lender,
    LogNames,
    Nothing,
    OneWriter,
    StageCommand,
    Ticket,
    WriterBody,
    condition_of,
    decode,
    encode,
)
from headwater.formats.arrow.columns import batch_of
from headwater.formats.arrow.events import columns_of
from headwater.formats.arrow.tables import record_batch
from headwater.server.bulk.calls import HANDLERS, Work

PAGE_EVENTS = 65_536
PAGE_BYTES = 4 * 1024 * 1024

Users = Mapping[str, tuple[str, Sequence[Grant]]]
"""Name -> password (which is his API token, too) and grants."""


@contextmanager
def bulk_server(store: LogStore, *, users: Users | None = None, **options: Any) -> Iterator[str]:
    """A server for the logs of a store on a free port of the loopback interface; its URL."""
    with serving(MemoryBackend(store, users), **options) as server:
        yield f"grpc://127.0.0.1:{server.port}"


@contextmanager
def serving(backend: MemoryBackend, location: str = "grpc://127.0.0.1:0", **options: Any) -> Iterator[BulkServer]:
    """A server for a backend."""
    server = BulkServer(backend, location, **options)
    try:
        yield server
    finally:
        assert server.stop(timeout_s=30.0), "a stream is stuck"


@dataclass
class Writing:
    """What one writer did to one log."""

    state: WriterState | None = None
    staged: dict[tuple[int, int, int], pa.Table] = field(default_factory=dict)
    """(batch, part, attempt) -> what was staged."""


class Unwatched:
    """A stream that nobody wants to end."""

    end_reason = None

    def sent(self, events: int) -> None: ...

    def end(self) -> None: ...

    def forget(self) -> None: ...


class MemoryBackend:
    """See flight.backend.Backend."""

    def __init__(self, store: LogStore, users: Users | None = None) -> None:
        self.store, self.users = store, users
        self.refusals = 0
        self.stages = 0
        """Stages that were ever closed."""
        self.open_stages = 0
        """Stages that were begun, and neither closed nor aborted yet."""
        self._writings: dict[tuple[str, str], Writing] = {}
        self._incarnations: dict[LocalLog, str] = {}
        self._lock = threading.RLock()

    def authenticate(self, credentials: Credentials | None, peer: str) -> Login:
        if self.users is None:
            return Login(ANYBODY, "")
        for name, (secret, _) in self.users.items():
            is_asked = credentials is not None and credentials.name in (name, "")
            if is_asked and hmac.compare_digest(secret.encode(), credentials.secret.encode()):
                return Login(self.user(name, secret, peer), secret)
        raise Unauthenticated(f"nobody has {credentials}")

    def user(self, name: str, seal: str, peer: str) -> User:
        if self.users is None:
            return ANYBODY
        if name not in self.users or self.users[name][0] != seal:
            raise Unauthenticated(f"there is no user {name} with that password")
        return User(name, tuple(self.users[name][1]))

    def authorize(self, user: User, right: Right, log: str) -> None:
        if not user.may(right, log):
            self.refusals += 1
            raise Forbidden(user.name, right, log)

    def place(self, log: str) -> LogPlace:
        opened = self.store.open(log)
        if opened not in self._incarnations:  # what `info` counts takes its time, and this does not change
            self._incarnations[opened] = opened.info().incarnation
        page = opened.read_page(Query.all(), 0, limit=1)
        first_retained = page.events[0].sequence_number if page.events else page.head + 1
        return LogPlace(Extent(page.head, first_retained, self._incarnations[opened]), opened.settings)

    def check_position(self, log: str, position: int) -> None:
        self.store.open(log).check_position(position)

    def count(self, log: str, span: Span) -> int:
        return sum(batch.num_rows for batch in self.scan(log, span, Query.all(), ["sequence_number"]))

    def sending(self, user: User, peer: str, ticket: Ticket) -> Unwatched:
        return Unwatched()

    def splits(self, log: str, span: Span, query: Query, *, split_bytes: int, splits_min: int) -> list[SplitSize]:
        """Of equal length in numbers, as many as the bytes ask for."""
        sizes = [
            (number.as_py(), len(data.as_py()))
            for batch in self.scan(log, span, Query.all(), ["sequence_number", "data"])
            for number, data in zip(batch["sequence_number"], batch["data"], strict=True)
        ]
        if not sizes:
            return []
        count = min(max(splits_min, sum(size for _, size in sizes) // split_bytes, 1), len(sizes))
        borders = [span.after, *(sizes[len(sizes) * index // count - 1][0] for index in range(1, count)), span.upto]
        found = []
        for after, upto in pairwise(borders):
            inside = [size for number, size in sizes if after < number <= upto]
            found.append(SplitSize(after, upto, len(inside), sum(inside)))
        return found

    def scan(
        self, log: str, span: Span, query: Query, columns: Sequence[str], batch_bytes: Callable[[], int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        opened = self.store.open(log)
        return self._scan(opened, span, query, columns)

    def _scan(self, log: LocalLog, span: Span, query: Query, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        cursor = span.after
        while cursor < span.upto:
            page = log.read_page(
                query, cursor, upto=span.upto, partition=span.partition, limit=PAGE_EVENTS, bytes_max=PAGE_BYTES
            )
            if page.events:
                yield record_batch(page.events).select(list(columns))
            if page.is_last:
                return
            cursor = page.cursor

    def lender(self, user: User, body: LendBody) -> Lender:
        return Lender()  # there are no files

    def append(self, command: AppendCommand, batch: pa.RecordBatch) -> Appended:
        opened = self.store.open(command.log)
        columns = columns_of(batch, opened.settings)
        with self._lock:
            if command.on_duplicate == "skip":
                fresh = [number is None for number in opened.stored(columns.sources, columns.ids)]
                if not any(fresh):
                    return Appended(0, 0, False, columns.count)
                columns = columns_of(batch_of(columns).filter(pa.array(fresh)), opened.settings)
            condition = condition_of(command.condition)
            result = opened.append_columns(columns, condition, partition=command.partition)
            return Appended(result.first, result.last, result.was_stored, batch.num_rows - columns.count)

    def stage(self, user: User, command: StageCommand, schema: pa.Schema) -> MemoryStage:
        writing = self._writing(command.log, command.writer)
        self.open_stages += 1
        return MemoryStage(self, writing, (command.batch, command.part, command.attempt), schema)

    def act(self, user: User, name: str, body: bytes) -> bytes:
        shape = ACTIONS[name]
        given = decode(shape.body, body or b"{}", name)
        if shape.right is None:
            return encode(LogNames([log for log in self.store.names() if user.may(Right.READ, log)]))
        self.authorize(user, shape.right, given.log)
        act_as(user.name)
        if name in ("writer", "commit", "discard", "forget_writer"):
            check_writer(given.writer)
            return encode(getattr(self, name)(given))
        handler, work, _ = HANDLERS[name]
        return encode(handler(self.store if work is Work.OPEN else self.store.open(given.log), given))

    def commit(self, body: CommitBody) -> Committed:
        with self._lock:
            writing, condition = self._writing(body.log, body.writer), condition_of(body.condition)
            state = writing.state
            if state is not None and body.batch <= state.batch:
                is_newest = body.batch == state.batch
                numbers = (state.first, state.last, state.events) if is_newest else (0, 0, 0)
                return Committed(*numbers, was_applied=True)
            tables = [self._staged(writing, body.batch, stage, index) for index, stage in enumerate(body.stages)]
            rows = sum(table.num_rows for table in tables)
            if condition is not None and rows > APPEND_EVENTS_MAX:
                raise TooLarge(rows, APPEND_EVENTS_MAX, "events", "stages")
            command = AppendCommand(body.log, body.partition, body.condition, body.on_duplicate)
            numbers, skipped = [], 0
            for table in tables if condition is None else [pa.concat_tables(tables)] if tables else []:
                for piece in table.combine_chunks().to_batches(max_chunksize=APPEND_EVENTS_MAX):
                    if not piece.num_rows:
                        continue
                    done = self.append(command, piece)
                    skipped += done.skipped
                    numbers += [done.first, done.last] if done.last else []
            first, last = (numbers[0], numbers[-1]) if numbers else (0, 0)
            writing.state = WriterState(body.writer, body.batch, rows, first, last, rows - skipped, True)
            writing.staged = {key: table for key, table in writing.staged.items() if key[0] > body.batch}
            return Committed(first, last, rows - skipped, skipped)

    def discard(self, body: DiscardBody) -> Nothing:
        writing = self._writing(body.log, body.writer)
        with self._lock:
            writing.staged = {key: table for key, table in writing.staged.items() if key[0] != body.batch}
        return Nothing()

    def forget_writer(self, body: WriterBody) -> Nothing:
        writing = self._writing(body.log, body.writer)
        with self._lock:
            if writing.state is not None and not writing.state.is_ended:
                raise InvalidInput(f"{body.writer!r} has not ended", "writer")
            writing.state = None
        return Nothing()

    def writer(self, body: WriterBody) -> OneWriter:
        return OneWriter(self._writing(body.log, body.writer).state)

    def staged(self, log: str, writer: str) -> list[tuple[int, int, int]]:
        """The stages that lie there: (batch, part, attempt)."""
        return sorted(self._writing(log, writer).staged)

    def writers(self, log: str) -> list[WriterState]:
        """All that have committed to that log."""
        of_log = [writing.state for (name, _), writing in self._writings.items() if name == log]
        return [state for state in of_log if state is not None]

    def _writing(self, log: str, writer: str) -> Writing:
        self.store.open(log)
        with self._lock:
            return self._writings.setdefault((log, writer), Writing())

    def _staged(self, writing: Writing, batch: int, stage: str, index: int) -> pa.Table:
        for key, table in writing.staged.items():
            if key[0] == batch and stage == _stage_id(key):
                return table
        raise InvalidInput(f"batch {batch} has no stage {stage!r}", f"stages[{index}]")


class MemoryStage:
    """See flight.backend.StageWriter."""

    def __init__(self, backend: MemoryBackend, writing: Writing, key: tuple[int, int, int], schema: pa.Schema) -> None:
        self._backend, self._writing, self._key, self._schema = backend, writing, key, schema
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def close(self) -> Staged:
        table = pa.Table.from_batches(self._batches, self._schema)
        self._writing.staged[self._key] = table
        self._backend.open_stages -= 1
        self._backend.stages += 1
        return Staged(_stage_id(self._key), table.num_rows, table.nbytes)

    def abort(self) -> None:
        self._batches.clear()
        self._backend.open_stages -= 1


def _stage_id(key: tuple[int, int, int]) -> str:
    return "{}/{}-{}".format(*key)
