"""Segments lent to another process: it reads what the lender would, and nothing that it was not lent."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headwater.core.errors import StorageCorrupted, StorageUnavailable
from headwater.formats.arrow.tables import SCHEMA
from headwater.storage import StoredLog
from headwater.storage.read import segment_sharing
from headwater.storage.read.mapped_log import MappedLog
from headwater.storage.read.segment_sharing import Lent, batches, borrowed

from ..builders import engine
from .test_mapped_log import some_appends, tiny_segments

__all__ = ["tiny_segments"]
pytestmark = pytest.mark.skipif(not segment_sharing.CAN_LEND, reason="this system has no files in memory")


BIG = 5
"""The seed of a log of several segments."""
Filled = Callable[[int], tuple[StoredLog, MappedLog]]


@pytest.fixture
def filled(data: Path) -> Iterator[Filled]:
    """Makes a log with events, by a seed, and a reader of its directory."""
    with engine(data) as one:

        def fill(seed: int) -> tuple[StoredLog, MappedLog]:
            log = one.create("orders")
            for events in some_appends(Random(seed)):
                log.append(events)
            mapped = MappedLog(log.directory)
            mapped.refresh(log.head())
            return log, mapped

        yield fill


def read(lent: Lent | None, columns: tuple[str, ...] = tuple(SCHEMA.names)) -> pa.Table:
    """What a loan gives, as another process has it."""
    assert lent is not None
    parts = borrowed(lent.loan, [os.dup(descriptor) for descriptor in lent.descriptors])
    lent.close()
    found = batches(parts, lent.loan.after, lent.loan.upto, columns, events=1000, bytes=1 << 20)
    return pa.Table.from_batches(found, pa.schema([SCHEMA.field(name) for name in columns]))


def scanned(mapped: MappedLog, after: int, upto: int, columns: tuple[str, ...] | None = None) -> pa.Table:
    names = SCHEMA.names if columns is None else columns
    return pa.Table.from_batches(
        mapped.scan(after, upto, columns=columns), pa.schema([SCHEMA.field(name) for name in names])
    )


@pytest.mark.parametrize("seed", range(8))
def test_what_is_borrowed_is_what_the_lender_reads(filled: Filled, seed: int) -> None:
    log, mapped = filled(seed)
    random, head = Random(seed), log.head()

    for _ in range(10):
        after, upto = sorted(random.choices(range(head + 1), k=2))
        columns = tuple(random.sample(SCHEMA.names, random.randint(1, 4)))
        if after < upto:
            assert read(mapped.lend(after, upto)) == scanned(mapped, after, upto)
            assert read(mapped.lend(after, upto), columns) == scanned(mapped, after, upto, columns)
    assert mapped.lend(head, head) is None


def test_many_segments_are_lent_some_at_a_time(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    log, mapped = filled(BIG)
    monkeypatch.setattr(segment_sharing, "SEGMENTS_MAX", 2)
    after, tables = 0, []

    while after < log.head():
        lent = mapped.lend(after, log.head())
        assert lent is not None and len(lent.loan.segments) <= 2 and lent.loan.after == after
        tables.append(read(lent))
        after = lent.loan.upto

    assert len(tables) > 1
    assert pa.concat_tables(tables) == scanned(mapped, 0, log.head())


def test_segments_of_very_many_frames_are_not_lent(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    log, mapped = filled(BIG)
    monkeypatch.setattr(segment_sharing, "FRAMES_MAX", 1)

    assert mapped.lend(0, log.head()) is None


def test_what_the_system_refuses_of_a_loan_is_said_with_what_to_do(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    log, mapped = filled(1)
    monkeypatch.setattr(segment_sharing, "_places_file", fails)
    with pytest.raises(StorageUnavailable) as caught:
        mapped.lend(0, log.head())
    remedy = "raise the server's limit of open files (ulimit -n)"
    assert caught.value.reason == f"the log's segments cannot be shared: Too many open files; {remedy}"


def test_what_is_lent_cannot_be_written(filled: Filled) -> None:
    log, mapped = filled(1)
    lent = mapped.lend(0, log.head())
    assert lent is not None

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(lent.descriptors[0], b"x")
    lent.close()


def test_a_file_that_is_lent_is_nobody_elses_to_open_for_writing(filled: Filled) -> None:
    """Opened anew by its descriptor (/proc/self/fd) a file asks for its own rights: they are its owner's alone."""
    log, mapped = filled(1)
    lent = mapped.lend(0, log.head())
    assert lent is not None

    assert {os.fstat(descriptor).st_mode & 0o077 for descriptor in lent.descriptors[:-1]} == {0}
    lent.close()


def test_nothing_is_mapped_behind_what_was_durable(filled: Filled) -> None:
    log, mapped = filled(1)
    lent = mapped.lend(0, log.head())
    assert lent is not None
    ends = [segment.end for segment in lent.loan.segments]

    parts = borrowed(lent.loan, [os.dup(descriptor) for descriptor in lent.descriptors])

    assert [len(part.segment.content.bytes) for part in parts] == ends
    assert os.fstat(lent.descriptors[-2]).st_size > ends[-1]  # the file goes on: it was allocated ahead
    lent.close()


def test_what_was_borrowed_outlives_a_trim(filled: Filled) -> None:
    log, mapped = filled(BIG)
    expected = scanned(mapped, 0, log.head())
    lent = mapped.lend(0, log.head())

    log.trim(log.head() + 1)
    mapped.refresh(log.head())

    assert read(lent) == expected
    assert mapped.lend(0, log.head()) is None


def test_damage_is_found_by_whoever_borrows(filled: Filled) -> None:
    log, mapped = filled(BIG)
    lent = mapped.lend(0, log.head())
    assert lent is not None
    first = Path(lent.loan.segments[0].path)
    with open(first, "r+b") as file:
        file.seek(lent.loan.segments[0].end - 9)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))

    with pytest.raises(StorageCorrupted, match="are damaged"):
        read(lent)


def test_descriptors_that_do_not_go_with_the_loan_are_refused_and_closed(filled: Filled) -> None:
    log, mapped = filled(BIG)
    lent = mapped.lend(0, log.head())
    assert lent is not None
    few = [os.dup(descriptor) for descriptor in lent.descriptors[1:]]
    shuffled = [os.dup(descriptor) for descriptor in reversed(lent.descriptors)]

    for given in (few, shuffled):
        with pytest.raises(StorageUnavailable):
            borrowed(lent.loan, given)
        for descriptor in given:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
    lent.close()
