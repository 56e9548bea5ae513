"""The Delta table of one projection: what it says of itself, and the one commit that brings it further.

The table is the truth: `position`, the number up to which the log is folded into it, is stored by the very commit that
replaces the files (as the version of an application transaction, a plain feature of Delta). No Spark here.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from ..delta import CHECKPOINT_COMMITS, COMMIT_TRIES, NO_HOOKS, entries_after, entry, open_table, sum_up
from ..durable import sync
from .buckets import BUCKET, TABLE_SCHEMA
from .errors import NotAProjection, ProjectionError, ProjectionOvertaken

_PREFIX = "headwater."
_TRANSACTION = "projection"


class Definition(NamedTuple):
    """Of what a table is the projection. It never changes."""

    log: str
    incarnation: str
    tag: str
    """The key of the tags whose values are the entities."""
    fold: str
    """The function's name."""
    query: str
    """Which events; empty: all."""
    first: int
    """The number from which on."""
    buckets: int


class BucketFile(NamedTuple):
    """A file that was written for a bucket; without a path, if no entity is left in it."""

    bucket: int
    path: str
    """Relative to the table."""
    bytes: int
    rows: int


class StateTable:
    """One projection, opened to bring it further, or to read it. For one thread at a time."""

    def __init__(self, path: Path, version: int | None = None) -> None:
        """Open what is there. Raises NotAProjection."""
        self.path = path
        self._table = open_table(path, NotAProjection, version)
        try:
            self.definition = _definition_of(self._table.metadata().configuration)
        except (KeyError, ValueError):
            raise NotAProjection(str(path), "the Delta table there is not a projection") from None

    @staticmethod
    def create(path: Path, definition: Definition) -> StateTable:
        """Make an empty table, or open the one that is there. Raises NotAProjection, also if it is of another kind."""
        try:
            if not DeltaTable.is_deltatable(str(path)):
                _create(path, definition)
        except OSError as error:
            raise NotAProjection(str(path), f"no table can be made there: {error.strerror}") from error
        table = StateTable(path)
        for name, asked, there in zip(Definition._fields, definition, table.definition, strict=True):
            if asked != there:
                raise NotAProjection(
                    str(path), f"it was made with {name} {there!r}, not {asked!r}; begin a new table for that"
                )
        sync((path / "_delta_log").glob("*.json"), path)  # one that was killed may have committed without doing so
        return table

    @property
    def position(self) -> int:
        """The number up to which the log is folded into it."""
        upto: int | None = self._table.transaction_version(_TRANSACTION)
        return self.definition.first - 1 if upto is None else upto

    @property
    def version(self) -> int:
        """Of the Delta table."""
        version: int = self._table.version()
        return version

    def files(self) -> dict[int, str]:
        """The file of each bucket that has one, relative to the table."""
        actions = pa.table(self._table.get_add_actions(flatten=True)).select([f"partition.{BUCKET}", "path"])
        return {int(row[f"partition.{BUCKET}"]): str(row["path"]) for row in actions.to_pylist()}

    def commit(self, files: Sequence[BucketFile], after: int, upto: int) -> None:
        """Put these files in the place of those of their buckets, and go from `after` to `upto`, in one durable step.

        Raises ProjectionOvertaken where the table is not at `after` any more, ProjectionError where it takes nothing.
        """
        for tries_left in reversed(range(COMMIT_TRIES)):
            self._table.update_incremental()
            if self.position != after:
                raise ProjectionOvertaken(str(self.path), after, self.position)
            try:
                self._commit(files, upto)
                break
            except CommitFailedError as error:  # another run was first, or a vacuum came between
                if not tries_left:
                    raise ProjectionError(f"{self.path}: the table takes no commit: {error}") from error
        self._table.update_incremental()
        if self.version % CHECKPOINT_COMMITS == 0:
            sum_up(self._table, self.path)

    def vacuum(self, hours: float) -> int:
        """Remove files that no version of so many hours needs, and what killed runs left; answers how many."""
        return len(self._table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))  # type: ignore[arg-type]

    def _commit(self, files: Sequence[BucketFile], upto: int) -> None:
        """One commit on top of the version that we know; it is durable when this returns."""
        version, replaced, now_ms = self.version, self.files(), time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = []
        for file in files:
            values: dict[str, str | None] = {BUCKET: str(file.bucket)}
            if (old := replaced.get(file.bucket)) is not None:
                actions.append(RemoveAction(old, True, now_ms, partition_values=values))
            if file.path:
                stats = json.dumps({"numRecords": file.rows})
                actions.append(AddAction(file.path, file.bytes, values, now_ms, True, stats))
        sync([self.path / file.path for file in files if file.path], self.path)
        self._table.create_write_transaction(
            actions,
            "append",
            self._table.schema(),
            [BUCKET],
            commit_properties=CommitProperties(app_transactions=[Transaction(_TRANSACTION, upto)]),
            post_commithook_properties=NO_HOOKS,
        )
        sync(entries_after(self.path, version), self.path)


def _definition_of(properties: Mapping[str, str]) -> Definition:
    texts = [properties[_PREFIX + name] for name in Definition._fields]
    log, incarnation, tag, fold, query, first, buckets = texts
    return Definition(log, incarnation, tag, fold, query, int(first), int(buckets))


def _create(path: Path, definition: Definition) -> None:
    if path.exists() and any(path.iterdir()):
        raise NotAProjection(str(path), "a new projection needs an empty directory, and there are other files")
    path.mkdir(parents=True, exist_ok=True)
    properties = {_PREFIX + name: str(value) for name, value in definition._asdict().items()}
    # If another run makes it at this moment, that one's is as good; what else is wrong shows when it is opened.
    with contextlib.suppress(DeltaError):
        DeltaTable.create(
            path,
            Schema.from_arrow(TABLE_SCHEMA),
            partition_by=[BUCKET],
            name=f"{definition.log}-{definition.tag}",
            description=f"Headwater's projection of log {definition.log} by tag {definition.tag}",
            configuration=properties,
            raise_if_key_not_exists=False,
        )
        sync([entry(path, 0)], path)
