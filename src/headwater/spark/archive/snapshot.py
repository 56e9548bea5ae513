"""One version of an archive, as readers see it: which files, with which numbers. No Spark here.

A snapshot stays readable while archivers add and compactions rewrite, until a vacuum removes files that it needs: that
takes the table's retention, 7 days.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date as Date
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from .state import open_table, state_of


class ArchiveFile(NamedTuple):
    """One Parquet file of a snapshot."""

    path: str
    """Absolute."""
    date: Date
    """UTC; all its events were recorded on it."""
    bytes: int
    events: int
    first: int
    """Its lowest number."""
    last: int
    recorded_from: datetime
    recorded_upto: datetime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An archive at one version: it has every event of the log from `first` to `archived`, each of them once."""

    path: str
    log: str
    incarnation: str
    first: int
    archived: int
    version: int
    files: Sequence[ArchiveFile]
    """By first number."""

    @property
    def events(self) -> int:
        """How many there are."""
        return sum(file.events for file in self.files)

    @property
    def bytes(self) -> int:
        """What the files take."""
        return sum(file.bytes for file in self.files)

    def select(
        self,
        after: int = 0,
        upto: int | None = None,
        *,
        recorded_from: datetime | None = None,
        recorded_before: datetime | None = None,
    ) -> list[ArchiveFile]:
        """The files that may have events after one number, up to another, recorded then: more than that, never less."""
        return list(self._select(after, self.archived if upto is None else upto, recorded_from, recorded_before))

    def _select(
        self, after: int, upto: int, recorded_from: datetime | None, recorded_before: datetime | None
    ) -> Iterator[ArchiveFile]:
        for file in self.files:
            if file.last <= after or file.first > upto:
                continue
            if recorded_from is not None and file.recorded_upto < recorded_from:
                continue
            if recorded_before is not None and file.recorded_from >= recorded_before:
                continue
            yield file


def snapshot(path: str | os.PathLike[str], version: int | None = None) -> Snapshot:
    """The archive at that path, at its newest version or a given one. Raises NotAnArchive."""
    root = Path(path).absolute()
    table = open_table(root, version)
    state = state_of(table, root)
    actions = pa.table(table.get_add_actions(flatten=True))
    files = sorted((_file(root, row) for row in actions.to_pylist()), key=lambda file: file.first)
    return Snapshot(str(root), state.log, state.incarnation, state.first, state.archived, state.version, files)


def _file(root: Path, row: dict[str, object]) -> ArchiveFile:
    return ArchiveFile(
        path=str(root / str(row["path"])),
        date=row["partition.date"],  # type: ignore[arg-type]
        bytes=row["size_bytes"],  # type: ignore[arg-type]
        events=row["num_records"],  # type: ignore[arg-type]
        first=row["min.sequence_number"],  # type: ignore[arg-type]
        last=row["max.sequence_number"],  # type: ignore[arg-type]
        recorded_from=row["min.recorded_at"],  # type: ignore[arg-type]
        recorded_upto=row["max.recorded_at"],  # type: ignore[arg-type]
    )
