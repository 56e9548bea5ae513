"""A large part is staged as segment files, whose rows are read as those of any other part."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core import Event, LogSettings, shared_bytes
from headwater.core.errors import DiskFull, StorageCorrupted
from headwater.core.event import Encoding
from headwater.core.limits import check_append
from headwater.core.shared_bytes import SharedBytes
from headwater.formats.arrow.columns import batch_of
from headwater.storage import Engine, StoredLog
from headwater.storage.disk import checked_file
from headwater.storage.frames.encoding import encode_body
from headwater.storage.repair.log_check import check_staged
from headwater.storage.staging import batches, segments
from headwater.storage.staging import rows as rows_module
from headwater.storage.staging.batches import (
    ORPHAN_AGE_S,
    STAGED,
    BatchManifest,
    Staging,
    batch_directory,
    drop_orphans,
    remove_batch,
    write_manifest,
)
from headwater.storage.staging.reader import make_plain, staged_batches, staged_rows
from headwater.storage.staging.segments import SEGMENT_SUFFIX, TABLE_SUFFIX

from ...builders import as_message

PLAIN = [Event("E", b"data %d" % number, id=str(number)) for number in range(40)]
RICH = [
    as_message(
        Event("Tèst", b"", ("a:1", f"b:{number % 3}") if number % 4 else (), f"{number}.é", "source" * (number % 2),
              {"k": "v" * number} if number % 5 == 0 else {}, "key" if number % 7 else "", b"env" * (number % 2),
              Encoding.AMQP if number % 3 == 0 else Encoding.DATA)
    )
    for number in range(40)
]  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "FRAME_BYTES", 1000)
    monkeypatch.setattr(segments, "STAGED_SEGMENT_EVENTS_MAX", 25)


@pytest.fixture
def log(data: Path) -> Iterator[StoredLog]:
    with Engine(data, maintains=False) as engine:
        yield engine.create("orders")


def stage(log: StoredLog, events: list[Event], attempt: int = 0) -> str:
    batch = batch_of(check_append(events, LogSettings().event_bytes_max))
    writer = Staging(log.directory).stage("w", 1, 0, attempt, batch.schema)
    for start in range(0, len(events), 7):
        writer.write(batch.slice(start, 7))
    return writer.close().stage


def files(log: StoredLog, suffix: str) -> list[Path]:
    return sorted(log.directory.glob(f"{STAGED}/*/*/*{suffix}"))


@pytest.mark.parametrize("events", [PLAIN, RICH], ids=["plain", "rich"])
def test_the_rows_are_those_that_were_staged(log: StoredLog, events: list[Event]) -> None:
    stage(log, events)
    folder = batch_directory(log.directory, "w", 1)
    assert files(log, TABLE_SUFFIX) and len(files(log, SEGMENT_SUFFIX)) > 1 and not files(log, ".arrow")
    batches = list(staged_batches(folder, ["0-0"]))
    for batch in batches:
        batch.validate(full=True)
    assert pa.Table.from_batches(batches).equals(
        pa.Table.from_batches([batch_of(check_append(events, LogSettings().event_bytes_max))])
    )
    assert staged_rows(folder, ["0-0"]) == len(events)
    make_plain(log.directory, folder, "0-0")
    assert files(log, ".arrow") and not files(log, TABLE_SUFFIX)
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches(list(staged_batches(folder, ["0-0"]))))


@pytest.mark.parametrize("events", [PLAIN, RICH], ids=["plain", "rich"])
@pytest.mark.parametrize("piece", [1, 7, 40])
def test_a_frame_of_several_batches_is_that_of_all_rows_together(events: list[Event], piece: int) -> None:
    batch = batch_of(check_append(events, LogSettings().event_bytes_max))
    whole = encode_body([batch], 256)
    pieces = encode_body([batch.slice(start, piece) for start in range(0, len(events), piece)], 256)
    assert b"".join(map(bytes, pieces.buffers)) == b"".join(map(bytes, whole.buffers))
    assert pieces._replace(buffers=[]) == whole._replace(buffers=[])


def test_few_rows_are_an_arrow_file(log: StoredLog) -> None:
    stage(log, PLAIN[:5])
    assert files(log, ".arrow") and not files(log, TABLE_SUFFIX) and not files(log, SEGMENT_SUFFIX)


def test_a_part_that_is_staged_again_is_there_once(log: StoredLog) -> None:
    stage(log, PLAIN)
    first = files(log, SEGMENT_SUFFIX)
    stage(log, PLAIN)
    assert not {*first} & {*files(log, SEGMENT_SUFFIX)} and len(files(log, "")) == 1 + len(first)
    stage(log, PLAIN[:5])
    assert staged_rows(batch_directory(log.directory, "w", 1), ["0-0"]) == 5
    stage(log, PLAIN)
    assert staged_rows(batch_directory(log.directory, "w", 1), ["0-0"]) == 40 and not files(log, ".arrow")


def test_what_is_aborted_leaves_nothing(log: StoredLog) -> None:
    batch = batch_of(check_append(PLAIN, LogSettings().event_bytes_max))
    writer = Staging(log.directory).stage("w", 1, 0, 0, batch.schema)
    for start in range(0, 40, 7):
        writer.write(batch.slice(start, 7))
    assert len(files(log, ".tmp")) > 2
    writer.abort()
    assert files(log, "") == []


def test_where_there_is_no_room_for_the_table_nothing_is_left(log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """But what was staged under that name before."""

    def refuse(path: Path, *_: bytes) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as full:
        full.setattr(checked_file, "write_whole", refuse)
        with pytest.raises(DiskFull):
            stage(log, PLAIN)
    assert files(log, "") == []
    stage(log, PLAIN)
    before = files(log, "")
    with monkeypatch.context() as full:
        full.setattr(checked_file, "write_whole", refuse)
        with pytest.raises(DiskFull):
            stage(log, PLAIN)
    assert files(log, "") == before
    segments.check_segments(before[0].parent, "0-0")


def test_a_part_that_is_staged_again_while_it_is_looked_at_is_not_damaged(
    log: StoredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(log, PLAIN)
    mapped, looked_at = segments.mapped_segment, list[str]()

    def mapped_late(path: Path, segment: segments.StagedSegment) -> pa.Buffer:
        looked_at.append(path.name)
        if len(looked_at) == 2:
            stage(log, PLAIN)
        return mapped(path, segment)

    monkeypatch.setattr(segments, "mapped_segment", mapped_late)
    segments.check_segments(batch_directory(log.directory, "w", 1), "0-0")
    assert {path.name for path in files(log, SEGMENT_SUFFIX)} == set(looked_at[2:])


def test_rows_that_come_one_by_one_take_little_memory(log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "FRAME_BYTES", 10**6)
    batch = batch_of(check_append(PLAIN, LogSettings().event_bytes_max))
    given = batch.take([number % 40 for number in range(1000)]).set_column(
        3, "id", pa.array(map(str, range(1000)), pa.string())
    )
    writer, before = Staging(log.directory).stage("w", 1, 0, 0, batch.schema), pa.total_allocated_bytes()
    for number in range(1000):
        writer.write(given.take([number]))  # with buffers of its own
    assert pa.total_allocated_bytes() - before < 500_000
    writer.close()
    found = pa.Table.from_batches(staged_batches(batch_directory(log.directory, "w", 1), ["0-0"]))
    assert found.to_pylist() == given.to_pylist()


def test_what_comes_slowly_is_not_forgotten(log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.storage.staging.rows.TOUCH_S", 0.0)
    batch = batch_of(check_append(PLAIN, LogSettings().event_bytes_max))
    writer = Staging(log.directory).stage("w", 1, 0, 0, batch.schema)
    for row in range(40):
        writer.write(batch.slice(row, 1))
        drop_orphans(log.directory)
        for path in files(log, ".tmp"):
            os.utime(path, (0, 0))  # long before the next one
    writer.write(batch.slice(39, 1))
    drop_orphans(log.directory)
    assert writer.close().rows == 41
    assert staged_rows(batch_directory(log.directory, "w", 1), ["0-0"]) == 41


@pytest.mark.parametrize("ends", [1, 20, 40])
def test_who_writes_on_when_the_batch_is_decided_is_not_told_of_an_error(log: StoredLog, ends: int) -> None:
    """As a task that another one was faster than."""
    batch = batch_of(check_append(PLAIN, LogSettings().event_bytes_max))
    writer = Staging(log.directory).stage("w", 1, 0, 0, batch.schema)
    for row in range(40):
        if row == ends:
            remove_batch(log.directory, batch_directory(log.directory, "w", 1))
        writer.write(batch.slice(row, 1))
    if ends == 40:
        remove_batch(log.directory, batch_directory(log.directory, "w", 1))
    assert writer.close().rows == 40
    assert files(log, "") == []


def test_what_nobody_commits_is_forgotten_the_table_first(log: StoredLog) -> None:
    stage(log, PLAIN)
    later = time.time() + ORPHAN_AGE_S + 60
    drop_orphans(log.directory, later)
    assert not files(log, TABLE_SUFFIX)
    drop_orphans(log.directory, later)
    assert files(log, "") == []


def test_a_batch_is_forgotten_in_an_order_that_a_power_cut_cannot_change(
    log: StoredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the names removed between two syncs a disk may keep any. A manifest without its table is damage to `check`."""
    directory = batch_directory(log.directory, "w", 1)
    write_manifest(log.directory, directory, BatchManifest("w", 1, [stage(log, PLAIN)]))
    synced: list[set[str]] = []

    def sync(path: Path) -> None:
        synced.append({"".join(found.suffixes[-1:]) for found in path.iterdir()})

    monkeypatch.setattr(batches, "sync_directory", sync)
    remove_batch(log.directory, directory)
    assert synced == [{TABLE_SUFFIX, SEGMENT_SUFFIX}, {SEGMENT_SUFFIX}]
    assert not directory.exists()


def test_every_byte_that_was_staged_is_looked_at(log: StoredLog) -> None:
    stage(log, PLAIN)
    problems: list[str] = []
    check_staged(log.directory, problems, [])
    assert not problems
    path = files(log, SEGMENT_SUFFIX)[0]
    content = path.read_bytes()
    [table] = files(log, TABLE_SUFFIX)
    for frame in segments.read_table(table.parent, table.stem).segments[0].frames:
        room = segments.read_table(table.parent, table.stem).room
        for at in (frame.offset + room, frame.offset + frame.length - 1):
            hurt = bytearray(content)
            hurt[at] ^= 1
            path.write_bytes(hurt)
            with pytest.raises(StorageCorrupted, match="checksum"):
                segments.check_segments(table.parent, table.stem)
    path.write_bytes(content[:-8])
    check_staged(log.directory, problems, [])
    assert problems and "was staged with" in problems[0]
    path.unlink()
    with pytest.raises(StorageCorrupted, match="it is missing"):
        segments.check_segments(table.parent, table.stem)


def test_parts_hold_no_more_together_than_there_is_room_for(log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "FRAME_BYTES", 1 << 30)
    batch = batch_of(check_append(PLAIN, LogSettings().event_bytes_max))
    monkeypatch.setattr(shared_bytes, "FREE_BYTES", 0)
    monkeypatch.setattr(shared_bytes, "STEP_BYTES", 1)
    monkeypatch.setattr(rows_module, "HELD_BYTES_MIN", 0)
    held = SharedBytes(400)
    staging = Staging(log.directory, held=held)
    parts = [staging.stage("w", 1, part, 0, batch.schema) for part in range(3)]
    for start in range(0, len(PLAIN), 4):
        for part in parts:
            part.write(batch.slice(start, 4))
            assert 0 <= held.bytes <= 400
    parts[2].abort()
    assert [part.close().rows for part in parts[:2]] == [len(PLAIN)] * 2
    assert held.bytes == 0 and held.refused
    stages = [part.id for part in parts[:2]]
    read = pa.Table.from_batches(list(staged_batches(batch_directory(log.directory, "w", 1), stages)))
    assert read["id"].to_pylist() == [event.id for event in PLAIN] * 2
