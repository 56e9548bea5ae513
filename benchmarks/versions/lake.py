"""Archives and projections, without Spark: files as pyarrow writes them are in the place of Spark's."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.core.query import ALL
from headwater.flight.client import BulkClient
from headwater.spark.archive.archiver import Archiver
from headwater.spark.archive.columns import FILE_SCHEMA
from headwater.spark.archive.compaction import compact
from headwater.spark.archive.slices import archive_slices, read_archived
from headwater.spark.archive.snapshot import Archive
from headwater.spark.columns.schema import COLUMNS
from headwater.spark.projection.buckets import DIRECTORY, bucket_of, write
from headwater.spark.projection.fold import Row
from headwater.spark.projection.snapshot import snapshot
from headwater.spark.projection.table import BucketFile, Definition, StateTable

from ..measure import expect
from .piece import Piece, Step

EVENTS, FILES = 40_000, 2
"""Of a batch."""
WRITES = 3
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ENTITIES, BUCKETS = 5000, 16


class _Log:
    """What an archiver asks a bulk client, about a log that has all numbers."""

    def __init__(self) -> None:
        self._acknowledged = 0

    def head(self, log: str) -> SimpleNamespace:
        return SimpleNamespace(head=10**12)

    def info(self, log: str) -> SimpleNamespace:
        return SimpleNamespace(name=log, incarnation="first", first_retained=1)

    def register_consumer(self, log: str, owner: str, component: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(owner=owner, component=component, epoch=1, registered_at=1, acknowledged=0)

    def plan(self, ticket: object) -> None:
        pass

    def acknowledge(self, log: str, owner: str, component: str, number: int, **_: object) -> SimpleNamespace:
        self._acknowledged = max(self._acknowledged, number)
        return SimpleNamespace(acknowledged=self._acknowledged)


def _archiver(path: Path) -> Archiver:
    return Archiver.open(cast(BulkClient, _Log()), "orders", path)


@cache
def _drawn(count: int) -> pa.Table:
    """So many events that are numbered from 0 on."""
    drawn, each = random.Random(count), range(count)
    data = [
        b'{"order":%d,"by":"%032x","cents":%d}' % (number, drawn.getrandbits(128), drawn.randrange(10**5))
        for number in each
    ]
    columns = {
        "log": ["orders"] * count,
        "sequence_number": list(each),
        "recorded_at": [1000 * number for number in each],
        "partition": [0] * count,
        "type": [drawn.choice(("Placed", "Paid", "Shipped")) for _ in each],
        "data": data,
        "tags": [[f"order:{number // 4}", f"customer:{drawn.randrange(1000)}"] for number in each],
        "id": [f"{drawn.getrandbits(128):032x}" for _ in each],
        "source": ["/shop"] * count,
        "attributes": [[("datacontenttype", "application/json")] for _ in each],
        "group_key": [""] * count,
        "envelope": [b""] * count,
        "encoding": [0] * count,
    }
    return pa.table(columns, schema=FILE_SCHEMA)


def _rows(first: int, count: int) -> pa.Table:
    """Events from that number on, a millisecond apart."""
    drawn, numbers = _drawn(count), pa.array(range(first, first + count), pa.int64())
    begin_us = int(NOON.timestamp() * 1_000_000)
    times = pc.add(pc.multiply(numbers, 1000), begin_us).cast(FILE_SCHEMA.field("recorded_at").type)
    drawn = drawn.set_column(drawn.schema.get_field_index("sequence_number"), "sequence_number", numbers)
    return drawn.set_column(drawn.schema.get_field_index("recorded_at"), "recorded_at", times)


def _parts(batch: int) -> list[pa.Table]:
    first = 1 + batch * EVENTS
    return [_rows(first + at, EVENTS // FILES) for at in range(0, EVENTS, EVENTS // FILES)]


def _stage(archiver: Archiver, parts: Sequence[pa.Table]) -> None:
    target = archiver.directory / f"date={NOON.date()}"
    target.mkdir(parents=True)
    for number, part in enumerate(parts):
        path = target / f"part-{number:05d}.zstd.parquet"
        pq.write_table(part, path, compression="zstd", write_page_checksum=True)


@contextmanager
def _archiving(directory: Path, *, measures_writer: bool) -> Iterator[Step]:
    archiver = _archiver(directory / uuid.uuid4().hex)
    batches = [_parts(batch) for batch in range(WRITES + 1)]

    def stage(number: int) -> None:
        _stage(archiver, batches[number])

    def commit(number: int) -> None:
        archiver.commit()
        expect("events acknowledged", (number + 1) * EVENTS, archiver.release())

    def both(number: int) -> None:
        stage(number)
        commit(number)

    yield Step(both) if measures_writer else Step(commit, stage)


def _make_archive(directory: Path) -> None:
    archiver = _archiver(directory / "archive")
    for batch in range(2):
        _stage(archiver, _parts(batch))
        archiver.commit()
        archiver.release()


@contextmanager
def _reading(directory: Path, columns: Sequence[str]) -> Iterator[Step]:
    def read(_: int) -> None:
        archive = Archive(str(directory / "archive"))
        slices = archive_slices(archive, "orders", 0, 10**9, ALL, split_bytes=10**9, split_events=None, splits_min=1)
        found = (batch.num_rows for slice in slices for batch in read_archived(slice, columns, ALL, None))
        expect("events of an archive", 2 * EVENTS, sum(found))

    yield Step(read)


@contextmanager
def _compacting(directory: Path) -> Iterator[Step]:
    paths = [directory / uuid.uuid4().hex for _ in range(WRITES + 1)]
    parts = [_parts(batch) for batch in range(2)]

    def make(number: int) -> None:
        archiver = _archiver(paths[number])
        for part in parts:
            _stage(archiver, part)
            archiver.commit()

    yield Step(lambda number: expect("dates", 1, compact(paths[number]).dates), make)


def _states() -> list[dict[str, Row]]:
    drawn = random.Random(1)
    buckets: list[dict[str, Row]] = [{} for _ in range(BUCKETS)]
    for number in range(ENTITIES):
        state = b'{"cents":%d,"of":"%032x"}' % (drawn.randrange(10**6), drawn.getrandbits(128))
        buckets[bucket_of(str(number), BUCKETS)][str(number)] = Row(state, number + 1, 1 + drawn.randrange(9))
    return buckets


def _make_projection(path: Path) -> StateTable:
    return StateTable.create(path, Definition("orders", "first", "order", "folds:fold", "", 1, BUCKETS))


def _write_states(table: StateTable, states: Sequence[dict[str, Row]], upto: int) -> None:
    files = []
    for bucket, rows in enumerate(states):
        path = table.path / DIRECTORY / f"{bucket:04d}-{uuid.uuid4()}.parquet"
        written = write(path, rows)
        path = written if isinstance(written, Path) else path  # an earlier version answered its bytes
        name = path.relative_to(table.path).as_posix()
        files.append(BucketFile(bucket, name, path.stat().st_size, len(rows)))
    table.commit(files, table.position, upto)


@contextmanager
def _folding(directory: Path) -> Iterator[Step]:
    table, states = _make_projection(directory / uuid.uuid4().hex), _states()
    yield Step(lambda number: _write_states(table, states, number + 1))


@contextmanager
def _looking(directory: Path, entities: Sequence[str] | None) -> Iterator[Step]:
    expected = ENTITIES if entities is None else len(entities)
    path = directory / "projection"
    yield Step(lambda _: expect("states", expected, len(snapshot(path, entities).states)))


def _make_read_projection(directory: Path) -> None:
    _write_states(_make_projection(directory / "projection"), _states(), 1)


_reads: Callable[..., Piece] = partial(Piece, prepare=_make_archive)
_looks: Callable[..., Piece] = partial(Piece, prepare=_make_read_projection, repeats=20)

PIECES = (
    Piece(
        "archive-write",
        f"{EVENTS:,} events in {FILES} files: written by pyarrow, committed, acknowledged",
        partial(_archiving, measures_writer=True),
        repeats=WRITES,
        limit=1.10,
    ),
    Piece(
        "archive-commit",
        "of it, what follows the writer",
        partial(_archiving, measures_writer=False),
        repeats=WRITES,
        limit=float("inf"),
    ),
    _reads("archive-read", "all columns of two such batches", partial(_reading, columns=COLUMNS), repeats=5),
    _reads("archive-column", "their `data`", partial(_reading, columns=("data",))),
    Piece("archive-compact", "two such batches become one file", _compacting, repeats=WRITES),
    Piece("projection-write", f"{ENTITIES:,} states in {BUCKETS} files, committed", _folding),
    _looks("projection-read", "all of them", partial(_looking, entities=None)),
    _looks("projection-entity", "one of them", partial(_looking, entities=("17",))),
)
