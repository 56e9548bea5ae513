"""The Delta table of one projection: its description, and the one commit that advances it.

The table is authoritative: `position`, the number up to which the log is folded into it, is stored by the same commit
that replaces the files (as the version of an application transaction, a plain feature of Delta). No Spark here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deltalake import Schema
from deltalake.transaction import AddAction, RemoveAction

from ...formats.files.own_directory import foreign_name
from ..delta.digest import Description
from ..delta.log import CHECKPOINT_COMMITS
from ..delta.table import COMMIT_TRIES, Table, create_table, is_table
from ..durable import sync
from .buckets import BUCKET, TABLE_SCHEMA
from .errors import NotAProjection, ProjectionError, ProjectionOvertaken

_PREFIX = "headwater."
_TRANSACTION = "projection"


class Definition(NamedTuple):
    """What a table contains. It never changes."""

    log: str
    incarnation: str
    tag: str
    """The key of the tags whose values are the entities."""
    fold: str
    """The function's name."""
    query: str
    """The query for its events; empty: all."""
    first: int
    """The first number."""
    buckets: int


class BucketFile(NamedTuple):
    """A file written for a bucket; without a path, if no entity is left in it."""

    bucket: int
    path: str
    """Relative to the table."""
    bytes: int
    rows: int


class StateTable:
    """One projection, opened to advance or read it. For one thread at a time."""

    def __init__(self, path: Path, version: int | None = None) -> None:
        """Open an existing table. Raises NotAProjection."""
        self.path = path
        self._table = Table(path, NotAProjection, version)
        self._table.cover(_TRANSACTION)
        try:
            self.definition = _definition_of(self._table.configuration)
        except (KeyError, ValueError):
            raise NotAProjection(str(path), "the Delta table there is not a projection") from None
        self._table.warn_if_unproved("fold the log into a new table to get a verified one")

    @staticmethod
    def create(path: Path, definition: Definition) -> StateTable:
        """Create an empty table, or open the existing one. Raises NotAProjection, also if it is of another kind."""
        try:
            if not is_table(path):
                _create(path, definition)
        except OSError as error:
            raise NotAProjection(str(path), f"cannot create a table there: {error.strerror}") from error
        table = StateTable(path)
        for name, asked, there in zip(Definition._fields, definition, table.definition, strict=True):
            if asked != there:
                raise NotAProjection(
                    str(path), f"it was created with {name} {there!r}, not {asked!r}; use a new table for this"
                )
        table._table.sync_log()  # a killed run may have committed without doing so
        return table

    @property
    def position(self) -> int:
        """The number up to which the log is folded into it."""
        upto: int | None = self._table.transaction(_TRANSACTION)
        return self.definition.first - 1 if upto is None else upto

    @property
    def version(self) -> int:
        """The version of the Delta table."""
        return self._table.version

    def files(self) -> dict[int, str]:
        """The file of each bucket that has one, relative to the table."""
        actions = self._table.actions.select([f"partition.{BUCKET}", "path"])
        return {int(row[f"partition.{BUCKET}"]): str(row["path"]) for row in actions.to_pylist()}

    def commit(self, files: Sequence[BucketFile], after: int, upto: int) -> None:
        """Replace the files of their buckets by these, and advance from `after` to `upto`, in one durable step.

        Raises ProjectionOvertaken if the table is no longer at `after`, ProjectionError if it accepts no commit.
        """
        sync([self.path / file.path for file in files if file.path], self.path)
        for _ in range(COMMIT_TRIES):
            self._table.refresh()
            if self.position != after:
                raise ProjectionOvertaken(str(self.path), after, self.position)
            if self._table.commit(self._actions(files), {_TRANSACTION: upto}):
                break
        else:
            raise ProjectionError(f"{self.path}: cannot commit to the table because of concurrent commits")
        self._table.refresh()
        if self.version % CHECKPOINT_COMMITS == 0:
            self._table.sum_up()

    def vacuum(self, hours: float) -> int:
        """Remove files that no version within this many hours needs, and leftovers of killed runs. Returns how many."""
        return self._table.vacuum(hours)

    def _actions(self, files: Sequence[BucketFile]) -> list[AddAction | RemoveAction]:
        """The actions that replace the files of their buckets in the opened version by these."""
        replaced, now_ms = self.files(), time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = []
        for file in files:
            values: dict[str, str | None] = {BUCKET: str(file.bucket)}
            if (old := replaced.get(file.bucket)) is not None:
                actions.append(RemoveAction(old, True, now_ms, partition_values=values))
            if file.path:
                stats = json.dumps({"numRecords": file.rows})
                actions.append(AddAction(file.path, file.bytes, values, now_ms, True, stats))
        return actions


def _definition_of(properties: Mapping[str, str]) -> Definition:
    texts = [properties[_PREFIX + name] for name in Definition._fields]
    log, incarnation, tag, fold, query, first, buckets = texts
    return Definition(log, incarnation, tag, fold, query, int(first), int(buckets))


def _create(path: Path, definition: Definition) -> None:
    if foreign_name(path) is not None:
        raise NotAProjection(str(path), "a new projection needs an empty directory, but there are other files")
    path.mkdir(parents=True, exist_ok=True)
    properties = {_PREFIX + name: str(value) for name, value in definition._asdict().items()}
    name, about = f"{definition.log}-{definition.tag}", f"projection of log {definition.log} by tag {definition.tag}"
    create_table(path, Description(Schema.from_arrow(TABLE_SCHEMA), [BUCKET], name, f"Headwater's {about}", properties))
