"""The files of a Delta table's log: its entries, and its checkpoints.

No Spark here.
"""

from __future__ import annotations

import json
from itertools import count, takewhile
from pathlib import Path

from pyarrow.fs import FileSystem

CHECKPOINT_COMMITS = 100
"""A checkpoint of the Delta log is written after this many commits, so that opening it stays fast."""


def entry(path: Path, version: int) -> Path:
    """The log file that defines that version of a table."""
    return path / "_delta_log" / _name(version)


def entries_after(path: Path, version: int) -> list[Path]:
    """The existing log files of a table that define the versions after that one."""
    return list(takewhile(Path.exists, (entry(path, later) for later in count(version + 1))))


def read_entry(root: str, version: int) -> bytes | None:
    """The entry that defines that version of a table at a path or URI; None if it does not exist. Raises OSError."""
    place = f"{root.rstrip('/')}/_delta_log/{_name(version)}"
    try:
        if "://" not in place:
            return Path(place).read_bytes()
        filesystem, inner = FileSystem.from_uri(place)
        with filesystem.open_input_file(inner) as file:
            content: bytes = file.read()
            return content
    except FileNotFoundError:
        return None


def newest_checkpoint(path: Path) -> tuple[int, list[Path]]:
    """The version of a table's newest checkpoint, and its files; -1 if there is none."""
    newest = path / "_delta_log" / "_last_checkpoint"
    if not newest.exists():
        return -1, []
    try:
        version = int(json.loads(newest.read_text())["version"])
    except (ValueError, KeyError, TypeError):
        return -1, [newest]  # cut by a crash; readers ignore it
    return version, [newest, *newest.parent.glob(f"{version:020d}.checkpoint*.parquet")]


def _name(version: int) -> str:
    return f"{version:020d}.json"
