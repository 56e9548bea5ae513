"""Joins the small files of past dates, and removes files that readers no longer need.

No Spark here. Files are rewritten in the order of their numbers, so that a reader of a range reads only that. (Delta's
own `OPTIMIZE` is as safe on an archive, but joins files newest first.) An archiver may add events at the same time. If
two compactions run concurrently, one is refused."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import date as Date
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...formats.files.parquet import NewParquet, batches_of, table_of
from ..durable import sync
from .columns import DATE, FILE_SCHEMA, REPEATED
from .errors import ArchiveIncomplete, ArchiveUnreadable
from .snapshot import ArchiveFile, check_file, opened, snapshot
from .staging import StagedParquet, is_batch_directory, types_of
from .table import ArchiveTable

TARGET_BYTES = 256 * 1024 * 1024
"""Files of at least half this size are left alone."""
ROW_GROUP_EVENTS, ROW_GROUP_BYTES = 131_072, 64 * 1024 * 1024
"""Whichever is reached first; also the amount in memory while rewriting."""
VACUUM_HOURS = 168
"""Readers of an older version have a week to finish."""


@dataclass(slots=True)
class Compacted:
    """The result of a compaction."""

    dates: int = 0
    files_before: int = 0
    files_after: int = 0
    events: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


_Events = TypeVar("_Events", pa.RecordBatch, pa.Table)


def compact(
    path: str | os.PathLike[str],
    *,
    before: Date | None = None,
    target_bytes: int = TARGET_BYTES,
    on_progress: Callable[[Compacted], object] = lambda compacted: None,
) -> Compacted:
    """Merge the small files of each date before `before` (default: today, UTC); each date is one durable commit.

    Files without statistics in the table, which no archiver adds, are left alone.

    Raises NotAnArchive, CompactionOvertaken if another compaction ran in between (run it again), and ArchiveUnreadable
    if a file is damaged (its date is left alone)."""
    table = ArchiveTable(Path(path).absolute())
    limit = datetime.now(UTC).date() if before is None else before
    done = Compacted()
    for date in sorted({file.date for file in snapshot(table.path).files if file.date < limit}):
        version = table.refresh().version
        files = [file for file in snapshot(table.path, version).files if file.date == date and file.has_statistics]
        bins = list(_bins(files, target_bytes))
        if bins:
            _compact_date(table, date, bins, done)
            on_progress(done)
    return done


def vacuum(path: str | os.PathLike[str], hours: int = VACUUM_HOURS) -> int:
    """Remove the files that no version of the last `hours` hours needs. Returns how many.

    That includes files that an archiver staged and never committed; with `hours` = 0 also files being staged now.
    Raises NotAnArchive.
    """
    table = ArchiveTable(Path(path).absolute())
    removed = table.vacuum(hours)
    cutoff = (datetime.now(UTC) - timedelta(hours=hours)).timestamp()
    for directory in table.path.glob("batch-*"):
        if is_batch_directory(directory) and directory.stat().st_mtime <= cutoff:
            _remove_empty(directory)
    return removed


def _compact_date(table: ArchiveTable, date: Date, bins: Sequence[Sequence[ArchiveFile]], done: Compacted) -> None:
    rewritten = [_rewrite(table.path, date, each) for each in bins]
    replaced = [file for each in bins for file in each]
    sync([table.path / file.path for file in rewritten], table.path)
    sizes = {os.path.relpath(file.path, table.path): file.bytes for file in replaced}
    table.replace(sizes, date.isoformat(), rewritten)
    done.dates += 1
    done.files_before += len(replaced)
    done.files_after += len(rewritten)
    done.events += sum(file.events for file in rewritten)
    done.bytes_before += sum(file.bytes for file in replaced)
    done.bytes_after += sum(file.bytes for file in rewritten)


def _bins(files: Sequence[ArchiveFile], target_bytes: int) -> Iterator[list[ArchiveFile]]:
    """Groups of neighbours to join into one file each; single and large files are left out."""
    chosen: list[ArchiveFile] = []
    for file in files:
        is_large = file.bytes >= target_bytes // 2
        if chosen and (is_large or sum(each.bytes for each in chosen) + file.bytes > target_bytes):
            if len(chosen) > 1:
                yield chosen
            chosen = []
        if not is_large:
            chosen.append(file)
    if len(chosen) > 1:
        yield chosen


def _rewrite(root: Path, date: Date, files: Sequence[ArchiveFile]) -> StagedParquet:
    """The events of all these files in a single file, in order of their numbers."""
    first, last = min(file.first for file in files), max(file.last for file in files)
    for file in files:
        check_file(file.path)
    directory = root / f"{DATE}={date.isoformat()}"
    directory.mkdir(exist_ok=True)
    target = _copy(root, date, files, directory / f"{first:018d}-{last:018d}-{uuid.uuid4().hex[:12]}.parquet")
    return StagedParquet(
        path=target.relative_to(root).as_posix(),
        date=date.isoformat(),
        bytes=target.stat().st_size,
        events=sum(file.events for file in files),
        first=first,
        last=last,
        recorded_from=_ms(min(file.recorded_from for file in files)),
        recorded_upto=_ms(max(file.recorded_upto for file in files)),
        types=types_of(target),
    )


def _copy(root: Path, date: Date, files: Sequence[ArchiveFile], target: Path) -> Path:
    """Returns the new file, with checksums in its name.

    Raises ArchiveIncomplete, ArchiveUnreadable if the contents of the files differ from the table.
    """
    events, newest = 0, 0
    expected = sum(file.events for file in files)
    new = NewParquet(target, FILE_SCHEMA, REPEATED)
    with new as writer:
        for batch in _in_order(files):
            numbers = batch.column("sequence_number")
            is_rising = pc.all(pc.greater(numbers[1:], numbers[:-1])).as_py()
            if numbers[0].as_py() <= newest or is_rising is False:
                raise ArchiveIncomplete(str(root), newest, f"the files of {date} are not contiguous")
            newest = numbers[-1].as_py()
            events += batch.num_rows
            writer.write_batch(batch, row_group_size=_row_group_events(files))
        if newest != max(file.last for file in files):
            raise ArchiveIncomplete(
                str(root), newest, f"the files of {date} do not contain the events that the table lists"
            )
        if events != expected:
            raise ArchiveIncomplete(str(root), newest, f"{events} of {expected} events of {date} were read back")
    return new.path


def _in_order(files: Sequence[ArchiveFile]) -> Iterator[pa.RecordBatch]:
    """All their events; files with interleaved numbers are sorted together in memory, and the others are streamed.

    A file that another program has joined out of order is also sorted.
    """
    group: list[ArchiveFile] = []
    for file in files:
        if group and file.first > max(each.last for each in group):
            yield from _batches(group)
            group = []
        group.append(file)
    yield from _batches(group)


def _batches(files: Sequence[ArchiveFile]) -> Iterator[pa.RecordBatch]:
    size = _row_group_events(files)
    if len(files) == 1 and _is_rising(files[0]):
        with opened(files[0].path) as source:
            for batch in batches_of(source, size):
                yield _as_archived(batch, files[0].path)
        return
    table = pa.concat_tables(map(_table, files))
    yield from table.sort_by("sequence_number").to_batches(max_chunksize=size)


def _is_rising(file: ArchiveFile) -> bool:
    with opened(file.path) as source:
        numbers = table_of(source, ["sequence_number"])["sequence_number"].to_numpy()
    return bool((np.diff(numbers) > 0).all())


def _table(file: ArchiveFile) -> pa.Table:
    with opened(file.path) as source:
        return _as_archived(table_of(source), file.path)


def _as_archived(events: _Events, path: str) -> _Events:
    """Converts to the columns of an archive. Raises ArchiveUnreadable if a file has other columns, which would be
    lost.
    """
    if other := set(events.schema.names) ^ set(FILE_SCHEMA.names):
        problem = f"its columns differ from those of an archive: {', '.join(sorted(other))} is missing or was added"
        raise ArchiveUnreadable(path, f"{problem}; it was written by another program and is left unchanged")
    return events.select(FILE_SCHEMA.names).cast(FILE_SCHEMA)


def _row_group_events(files: Sequence[ArchiveFile]) -> int:
    """This limits the memory even if events are large."""
    uncompressed = 0
    for file in files:
        with opened(file.path) as source:
            metadata: Any = source.metadata
        uncompressed += sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    each = max(1, uncompressed // max(1, sum(file.events for file in files)))
    return max(1, min(ROW_GROUP_EVENTS, ROW_GROUP_BYTES // each))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _remove_empty(directory: Path) -> None:
    """Remove the directory if it contains no files at any depth."""
    for parent, _, _ in os.walk(directory, topdown=False):
        try:
            os.rmdir(parent)
        except OSError:  # not empty, so it is in use
            return
