"""Parquet files that are not in the table yet: their location, and their verified content. Spark writes them directly
to their final location, in a directory named by their first number and the archiver's claim. So no file is moved, and
no archiver writes where another one does - not even an archiver that was stopped for an hour and does not know yet that
it was replaced."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...formats.files.parquet import check_pages, open_parquet, refusing_damage, table_of
from ...formats.files.parquet_checksums import add_checksums, check_whole, checksums_in
from .columns import DATE
from .errors import ArchiveIncomplete

_REMEDY = "check the disk and run the archiver again, which rewrites this file from the log"
_BATCH = re.compile(r"batch-(\d{18})-([0-9a-f]+)")


class StagedParquet(NamedTuple):
    """A Parquet file of events of one date, after reading it back."""

    path: str
    """Relative to the table."""
    date: str
    """`2026-11-21`, UTC."""
    bytes: int
    events: int
    first: int
    last: int
    recorded_from: int
    """ms since 1970 UTC."""
    recorded_upto: int
    types: tuple[str, str] | None
    """The lowest and the highest type, in character order; None if the file does not specify them."""


class Staged(NamedTuple):
    """One batch that is ready to commit: all events in the log from `first` to `last`."""

    files: Sequence[StagedParquet]
    first: int
    last: int
    events: int
    bytes: int


def batch_directory(root: Path, after: int, claim: int) -> Path:
    """Where the archiver with that claim stages the events that follow that number."""
    return root / f"batch-{after + 1:018d}-{claim:x}"


def is_batch_directory(path: Path) -> bool:
    """Whether it is a staging directory of an archiver."""
    return _BATCH.fullmatch(path.name) is not None


def inspect(root: Path, directory: Path, after: int, count: Callable[[int, int], int]) -> Staged | None:
    """The staged files, all read back, with checksums in the files' names: None if there are no events.

    `count(after, upto)` returns how many events the log has there; it is called if the numbers have gaps. Raises
    ArchiveIncomplete unless these are the log's next events after `after`, each of them once.
    """
    files: list[StagedParquet] = []
    numbers: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    for path in sorted(directory.glob(f"{DATE}=*/*.parquet")):
        columns, types = _read_back(root, path, after)
        if columns.num_rows == 0:
            path.unlink()
            continue
        numbers.append(columns["sequence_number"].to_numpy())
        if checksums_in(path.name) is None:
            path = add_checksums(path)
        files.append(_staged(root, path, numbers[-1], columns["recorded_at"], after, types))
    if not files:
        return None
    every = np.sort(np.concatenate(numbers))
    first, last = int(every[0]), int(every[-1])
    _check_whole(str(root), every, after, count)
    return Staged(files, first, last, len(every), sum(file.bytes for file in files))


def drop_sidecars(directory: Path) -> None:
    """Remove the files that Spark writes next to the Parquet files (its own checksums and success markers)."""
    for path in directory.rglob("*"):
        if path.is_file() and path.suffix != ".parquet":
            path.unlink()


def drop_abandoned(root: Path, archived: int, claim: int) -> int:
    """Remove staged batches that others can no longer commit. Returns how many.

    Call it after claiming the table. Those that begin at or below `archived` are left to vacuum: some are in the table.
    """
    abandoned = [
        path
        for path in root.glob("batch-*")
        if (match := _BATCH.fullmatch(path.name)) and int(match[1]) > archived and int(match[2], 16) < claim
    ]
    for path in abandoned:
        shutil.rmtree(path, ignore_errors=True)  # its owner may still be writing there, but without effect
    return len(abandoned)


def types_of(path: Path) -> tuple[str, str] | None:
    """The lowest and the highest type in a Parquet file, from its own statistics; None if it has none."""
    with open_parquet(path) as file:
        return _types_in(file.metadata)


def _types_in(metadata: Any) -> tuple[str, str] | None:
    column = metadata.schema.names.index("type")
    found = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
    if not found or any(each is None or not each.has_min_max for each in found):
        return None
    return min(each.min for each in found), max(each.max for each in found)


def _read_back(root: Path, path: Path, after: int) -> tuple[pa.Table, tuple[str, str] | None]:
    """Numbers and times, and the result of `types_of`; all other pages of the file are also verified."""

    def refused(name: str, problem: str) -> ArchiveIncomplete:
        return ArchiveIncomplete(str(root), after, f"{name} cannot be read back: {problem}")

    name = path.relative_to(root).as_posix()
    with refusing_damage(name, refused, _REMEDY), open_parquet(path) as file:
        check_whole(path)
        check_pages(file)
        return table_of(file, ["sequence_number", "recorded_at"]), _types_in(file.metadata)


def staged_file(
    root: Path,
    path: Path,
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
    recorded_at: pa.ChunkedArray,
    after: int,
) -> StagedParquet:
    """A file with its numbers and times. Raises ArchiveIncomplete if an event's date differs from its directory."""
    return _staged(root, path, numbers, recorded_at, after, types_of(path))


def _staged(
    root: Path,
    path: Path,
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
    recorded_at: pa.ChunkedArray,
    after: int,
    types: tuple[str, str] | None,
) -> StagedParquet:
    times = recorded_at.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
    file = StagedParquet(
        path=path.relative_to(root).as_posix(),
        date=path.parent.name.removeprefix(f"{DATE}="),
        bytes=path.stat().st_size,
        events=len(numbers),
        first=int(numbers.min()),
        last=int(numbers.max()),
        recorded_from=int(times.min()),
        recorded_upto=int(times.max()),
        types=types,
    )
    for ms in (file.recorded_from, file.recorded_upto):
        if (date := datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()) != file.date:
            raise ArchiveIncomplete(str(root), after, f"{file.path} contains an event of {date}")
    return file


def _check_whole(
    path: str, every: np.ndarray[tuple[int], np.dtype[np.int64]], after: int, count: Callable[[int, int], int]
) -> None:
    """Check that every number is above `after` and occurs once, and that there are as many as the log has."""
    first, last, events = int(every[0]), int(every[-1]), len(every)
    if first <= after:
        raise ArchiveIncomplete(path, after, f"event {first} is already in the table")
    repeated = every[1:][every[1:] == every[:-1]]
    if len(repeated):
        raise ArchiveIncomplete(path, after, f"event {int(repeated[0])} occurs twice")
    if events != last - after and events != (expected := count(after, last)):
        raise ArchiveIncomplete(path, after, f"{events} events up to {last} were staged, but the log has {expected}")
