"""Makes files durable that others have written, before a Delta table says that they are there.

No Spark here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def sync(paths: Iterable[Path], root: Path) -> None:
    """Make files durable, and the directories in which they are, up to the table's own and its parent."""
    directories, parents = {root, root.parent}, set()
    for path in paths:
        sync_one(path)
        parents.add(path.parent)
    for parent in parents:
        directories.update(each for each in (parent, *parent.parents) if each.is_relative_to(root))
    for directory in sorted(directories, reverse=True):
        sync_one(directory)


def sync_one(path: Path) -> None:
    """Make one file, or the names in one directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
