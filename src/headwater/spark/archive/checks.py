"""Checks a whole archive, file by file: that checksums and counts match, and that each number occurs once. Adds
checksums to older files.

No Spark here, and no server.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...formats.files.parquet import table_of
from ...formats.files.parquet_checksums import add_checksums, checksums_in
from ..durable import sync
from .columns import DATE
from .errors import ArchiveUnreadable
from .snapshot import ArchiveFile, Snapshot, check_file, opened, snapshot
from .staging import staged_file
from .table import ArchiveTable

Run = tuple[int, int]
"""The first and the last number of a run of consecutive numbers."""


@dataclass(slots=True)
class Checked:
    """The result of a check."""

    log: str
    version: int
    """The version of the Delta table."""
    unproved_since: int | None
    """The version since which no digest proves the state of the table; None if it is proved."""
    files: int = 0
    events: int = 0
    bytes: int = 0
    unproved: int = 0
    """Files of versions before 0.2, which only have checksums of pages."""
    problems: list[str] = field(default_factory=list)
    gaps: list[Run] = field(default_factory=list)
    """Missing numbers. A log has gaps if it was restored; a table has gaps if `--accept-gap` was used."""

    @property
    def is_whole(self) -> bool:
        """Whether each file matches its checksums, and no number is a duplicate."""
        return not self.problems


def check(path: str | os.PathLike[str], on_file: Callable[[ArchiveFile], object] = lambda file: None) -> Checked:
    """Read every file of the newest version. Raises NotAnArchive, ArchiveUnreadable if the table cannot be read."""
    table = snapshot(path)
    found = Checked(table.log, table.version, table.unproved_since)
    runs: list[Run] = []
    for file in table.files:
        on_file(file)
        found.files += 1
        found.unproved += checksums_in(file.path) is None
        try:
            runs += _checked_runs(file, found)
        except ArchiveUnreadable as error:
            found.problems.append(str(error))
            runs.append((file.first, file.last))
    runs.sort()
    for (first, last), (next_first, _) in pairwise([(0, table.first - 1), *runs, (table.archived + 1, 0)]):
        if next_first <= last:
            found.problems.append(
                f"event {next_first} occurs twice, or is outside the table's range: {first} to {last}"
            )
        elif next_first > last + 1:
            found.gaps.append((last + 1, next_first - 1))
    return found


def adopt(path: str | os.PathLike[str]) -> int:
    """Add checksums to files of versions before 0.2. Returns how many. Each is copied, and one commit for each date
    replaces them with the copies. The table's log gets a digest, if its newest commit has none.

    Raises ArchiveUnreadable if a file is damaged, CompactionOvertaken if another compaction ran in between.
    """
    table = ArchiveTable(Path(path).absolute())
    done = 0
    for date in sorted({file.date for file in _unproved(snapshot(path))}):
        replaced = [file for file in _unproved(snapshot(path, table.refresh().version)) if file.date == date]
        copies = [_copy(table.path, file) for file in replaced]
        sync(copies, table.path)
        added = []
        for file, copy in zip(replaced, copies, strict=True):
            with opened(str(copy)) as source:
                columns = table_of(source, ["sequence_number", "recorded_at"])
            numbers = columns["sequence_number"].to_numpy()
            _check_told(file, numbers)
            added.append(staged_file(table.path, copy, numbers, columns["recorded_at"], 0))
        sizes = {os.path.relpath(file.path, table.path): file.bytes for file in replaced}
        table.replace(sizes, date.isoformat(), added)
        done += len(replaced)
    table.mark()
    return done


def prove(path: str | os.PathLike[str], checked: Checked) -> None:
    """Record in the table's log that this check has proved its state.

    Raises ArchiveError if another program has committed since then.
    """
    ArchiveTable(Path(path).absolute()).prove(checked.version)
    checked.unproved_since = None


def _unproved(table: Snapshot) -> list[ArchiveFile]:
    return [file for file in table.files if file.has_statistics and checksums_in(file.path) is None]


def _checked_runs(file: ArchiveFile, found: Checked) -> Sequence[Run]:
    """The numbers in a file, as runs. Raises ArchiveUnreadable if they differ from the table."""
    check_file(file.path)
    with opened(file.path) as source:
        numbers = table_of(source, ["sequence_number"])["sequence_number"].to_numpy()
    size = os.path.getsize(file.path)
    found.events += len(numbers)
    found.bytes += size
    if size != file.bytes:
        raise ArchiveUnreadable(file.path, f"it has {size:,} bytes, but the table lists {file.bytes:,}")
    if file.has_statistics:
        _check_told(file, numbers)
    return list(_runs(np.sort(numbers)))


def _check_told(file: ArchiveFile, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Raises ArchiveUnreadable if a file does not contain the events that the table specifies."""
    there = (len(numbers), int(numbers.min()), int(numbers.max()))
    if there != (expected := (file.events, file.first, file.last)):
        problem = "it has {:,} events, {} to {}".format(*there)
        raise ArchiveUnreadable(file.path, problem + ", but the table lists {:,}, {} to {}".format(*expected))


def _runs(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[Run]:
    ends = np.flatnonzero(np.diff(numbers) != 1)
    firsts = [0, *(int(end) + 1 for end in ends)]
    lasts = [*map(int, ends), len(numbers) - 1]
    for first, last in zip(firsts, lasts, strict=True):
        yield int(numbers[first]), int(numbers[last])


def _copy(root: Path, file: ArchiveFile) -> Path:
    """A copy of a file with checksums. The pages of the file are verified first."""
    check_file(file.path)
    directory = root / f"{DATE}={file.date.isoformat()}"
    directory.mkdir(exist_ok=True)
    target = directory / f"{file.first:018d}-{file.last:018d}-{uuid.uuid4().hex[:12]}.parquet"
    shutil.copyfile(file.path, target)
    check_file(str(target))
    return add_checksums(target)
