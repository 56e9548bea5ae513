"""A log seen by a reader that only has its directory: what the log itself gives, whatever happens to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headwater.core import ALL, Encoding, Event, LogSettings, Query, QueryItem, SequencedEvent
from headwater.formats.arrow.tables import SCHEMA, events_of, record_batch
from headwater.storage import StoredLog
from headwater.storage.index import index
from headwater.storage.read.mapped_log import MappedLog
from headwater.storage.segments import segment_log

from ...builders import as_message
from ..builders import engine

TAGS = ["x:1", "x:2", "x", "y", "y:1", "z:ü"]
TYPES = ["A", "B", "Größe"]

COUNTS = [1, 1, 2, 4, 30, 90]


def some_event(random: Random, number: int, *, is_plain: bool) -> Event:
    """An event with something, or nothing, in any field; a plain one has nothing in most."""
    tags = tuple(random.sample(TAGS, random.choice([0, 1, 1, 3])))
    plain = Event(random.choice(TYPES), random.randbytes(random.choice([0, 5, 40])), tags, id=f"id-{number}-ü")
    if is_plain:
        return plain
    given = plain._replace(
        data=random.choice([b"", b"d" * 300, "é".encode()]),
        source=random.choice(["", "urn:müller"]),
        attributes={name: "é" for name in random.sample(["subject", "other"], random.choice([0, 1, 2]))},
        group_key=random.choice(["", "g", "ö"]),
        envelope=random.choice([b"", b"\0\x53"]),
        encoding=random.choice(list(Encoding)),
    )
    return as_message(given)


def some_appends(random: Random) -> Iterator[list[Event]]:
    """Appends of few events and of many, plain ones and others."""
    number = 0
    for _ in range(random.choice([1, 5, 15])):
        count, is_plain = random.choice(COUNTS), random.random() < 0.5
        yield [some_event(random, number + n, is_plain=is_plain) for n in range(count)]
        number += count


def some_query(random: Random) -> Query:
    """A query of up to three items, of terms that there are and others."""
    if random.random() < 0.3:
        return ALL
    found = []
    while len(found) < random.choice([1, 1, 3]):
        types, tags, exact_tags = (
            random.sample([*TYPES, "no"], random.choice([0, 1, 2])),
            random.sample([*TAGS, "no", "no:1"], random.choice([0, 1, 2])),
            random.sample([*TAGS, "no", "no:1"], random.choice([0, 0, 1])),
        )
        if types or tags or exact_tags:
            found.append(QueryItem(tuple(types), tuple(tags), tuple(exact_tags)))
    return Query.of(*found)


@pytest.fixture(scope="module", autouse=True)
def tiny_segments() -> Iterator[None]:
    """Small segments, and frames that are given out in place although they are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_log, "SEGMENT_BYTES_MIN", 8 * 1024)
        patch.setattr(segment_log, "SEGMENT_BYTES_MAX", 16 * 1024)
        patch.setattr(segment_log, "SEGMENT_EVENTS_MAX", 200)
        patch.setattr(index, "PART_EVENTS_MAX", 200)
        patch.setattr("headwater.storage.read.scan.IN_PLACE_BYTES", 4096)
        patch.setattr("headwater.storage.read.scan.ROWS_MIN", 50)
        yield


def expected(events: Sequence[SequencedEvent], columns: Sequence[str] | None = None) -> pa.Table:
    """The events as the reference renders them."""
    return pa.Table.from_batches([record_batch(events)]).select(list(columns or SCHEMA.names))


def joined(batches: Sequence[pa.RecordBatch], columns: Sequence[str] | None = None) -> pa.Table:
    """The batches as one table; each of them is what it should be."""
    schema = pa.schema([SCHEMA.field(name) for name in columns or SCHEMA.names])
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows
    return pa.Table.from_batches(batches, schema)


def wanted(
    log: StoredLog, after: int, upto: int, query: Query = ALL, partition: int | None = None
) -> list[SequencedEvent]:
    """What a scan should give, by the plainest filter."""
    return [
        each
        for each in log.read()
        if after < each.sequence_number <= upto
        and partition in (None, each.partition)
        and query.matches(each.type, each.tags)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_scan_gives_what_the_log_gives(data: Path, seed: int) -> None:
    random = Random(seed)
    partitions = random.choice([1, 3])
    with engine(data) as one:
        log = one.create("orders", LogSettings(partitions=partitions))
        mapped = MappedLog(log.directory)
        for events in some_appends(random):
            log.append(events)
            if random.random() < 0.2:
                one.maintain()
            if random.random() < 0.5:
                mapped.refresh(log.head())
        mapped.refresh(log.head())
        for _ in range(15):
            after, upto = random.randint(0, log.head()), random.randint(0, log.head() + 1)
            check_scan(log, mapped, random, after, upto, random.choice([None, 0, partitions - 1]))
        mapped.close()


def check_scan(log: StoredLog, mapped: MappedLog, random: Random, after: int, upto: int, partition: int | None) -> None:
    """A scan of some query and columns in some batches is what it should be."""
    query = some_query(random)
    columns = random.choice([None, random.sample(SCHEMA.names, random.randint(1, len(SCHEMA.names)))])
    events_max, bytes_max = random.choice([1, 7, 65_536]), random.choice([1, 2000, 10**6])
    found = list(
        mapped.scan(
            after,
            upto,
            query=query,
            partition=partition,
            columns=columns,
            batch_events=events_max,
            batch_bytes=bytes_max,
        )
    )
    assert all(batch.num_rows <= events_max for batch in found)
    events = wanted(log, after, upto, query, partition)
    assert joined(found, columns) == expected(events, columns)
    assert mapped.count(after, upto, partition) == len(wanted(log, after, upto, ALL, partition))
    if columns is None:
        assert [event for batch in found for event in events_of(batch)] == events
