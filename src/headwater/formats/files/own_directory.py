"""Checks, before anything is created in a directory, that it is empty or contains only our own files.

A user may give the wrong path. So a directory with files of other programs is refused, and its modes stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...core.errors import InvalidInput
from ...core.quoting import show

LOST_AND_FOUND = "lost+found"
"""Present at the top of a new file system. A directory with nothing else is empty."""


def names_in(directory: Path) -> set[str]:
    """The names in a directory, except `lost+found`; none if it does not exist. Raises OSError."""
    try:
        return {each.name for each in directory.iterdir()} - {LOST_AND_FOUND}
    except (FileNotFoundError, NotADirectoryError):  # the call that creates it fails
        return set()


def foreign_name(directory: Path, is_ours: Callable[[str], object] = lambda name: False) -> str | None:
    """The first name in a directory that is not ours; None if the directory can be used. Raises OSError."""
    return min((name for name in names_in(directory) if not is_ours(name)), default=None)


def check_own(directory: Path, is_ours: Callable[[str], object], where: str = "") -> None:
    """Raises InvalidInput for a directory with a name that is not ours. `where`: the option that gave the directory."""
    if (name := foreign_name(directory, is_ours)) is not None:
        problem = f"it contains {show(name)}, which Headwater did not create; use a new or empty directory"
        raise InvalidInput(f"{directory}: {problem}" if where else problem, where or str(directory))
