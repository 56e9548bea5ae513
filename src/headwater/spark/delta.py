"""What the Delta tables of all pipelines share: opening one, and making its log durable.

No Spark here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, takewhile
from pathlib import Path

from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError, TableNotFoundError

from ..core.errors import EventLogError
from .durable import sync

Refused = Callable[[str, str], EventLogError]
"""From the path of a table, and what is wrong there, to an error."""
CHECKPOINT_COMMITS = 100
"""After so many commits the Delta log is summed up, so that opening it stays fast."""
COMMIT_TRIES = 5
"""Others commit in between; more of them than that in a row do not."""
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""A commit is a commit and nothing more: `sum_up` does the rest, durably."""


def open_table(path: Path | str, refused: Refused, version: int | None = None) -> DeltaTable:
    """The Delta table at that path, or URI. Raises the error of `refused`."""
    try:
        return DeltaTable(path, version=version)
    except TableNotFoundError:
        raise refused(str(path), "there is no Delta table") from None
    except DeltaError as error:
        raise refused(str(path), f"the Delta table cannot be read: {error}") from error


def entry(path: Path, version: int) -> Path:
    """The file of a table's log that makes that version."""
    return path / "_delta_log" / f"{version:020d}.json"


def entries_after(path: Path, version: int) -> list[Path]:
    """The files of a table's log that make the versions after that one, as far as they are there."""
    return list(takewhile(Path.exists, (entry(path, later) for later in count(version + 1))))


def newest_checkpoint(path: Path) -> tuple[int, list[Path]]:
    """The version of a table's newest checkpoint, and its files; -1 if there is none."""
    newest = path / "_delta_log" / "_last_checkpoint"
    if not newest.exists():
        return -1, []
    try:
        version = int(json.loads(newest.read_text())["version"])
    except (ValueError, KeyError, TypeError):
        return -1, [newest]  # cut short by a crash; readers go without it
    return version, [newest, *newest.parent.glob(f"{version:020d}.checkpoint*.parquet")]


def sum_up(table: DeltaTable, path: Path) -> None:
    """Write a checkpoint of the table's log, durably; then drop its entries that are older than it keeps them."""
    table.create_checkpoint()
    sync(newest_checkpoint(path)[1], path)
    table.cleanup_metadata()
