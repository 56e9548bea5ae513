"""Syncs files that other code has written, before a Delta table refers to them.

No Spark here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def sync(paths: Iterable[Path], root: Path) -> None:
    """Sync files and their directories, up to the table's own directory and its parent."""
    directories, parents = {root, root.parent}, set()
    for path in paths:
        sync_one(path)
        parents.add(path.parent)
    for parent in parents:
        directories.update(each for each in (parent, *parent.parents) if each.is_relative_to(root))
    for directory in sorted(directories, reverse=True):
        sync_one(directory)


def sync_one(path: Path) -> None:
    """Sync one file, or the names in one directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
