"""Ballast: files that a data directory gives up when its disk is full, so that trims, stops and starts still work.

Appends stop at the reserve, but other programs may fill the disk to the last block. Then a trim could not be stored,
and a server could neither stop cleanly nor start. So a data directory keeps some written files. Trims, deletions, stops
and starts that find no space remove one and retry once. Maintenance recreates the files when the disk has room.

The files are not only allocated, but contain random bytes. So they occupy blocks even if the file system compresses,
and inodes. Some file systems free the space late, so `give_up` waits for it.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ...core.errors import DiskFull
from .system import Disk, is_without_space, make_directory, private_opener, sync_directory

logger = logging.getLogger("headwater.storage")

BALLAST = "ballast"
"""The folder in a data directory."""
FILE_BYTES: Final = 1024 * 1024
BALLAST_BYTES: Final = 16 * FILE_BYTES
BALLAST_SHARE: Final = 10
"""On a small file system, the ballast is at most a tenth of it."""
START_BYTES: Final = 3 * FILE_BYTES
"""A start writes less than this: a segment of the journal, META of each log, a few pages of the state."""
START_INODES: Final = 16
WAITING_S = 5.0
"""The time limit for the space of a removed file to become free."""
_NAME = re.compile(r"[0-9]{2,4}(\.tmp)?")

T = TypeVar("T")


def with_ballast(directory: Path, step: Callable[[], T]) -> T:
    """Run a step; if the disk is full, give up a ballast file and retry once. Raises the errors of the step.

    `directory` is the data directory. The step must be repeatable.
    """
    try:
        return step()
    except (DiskFull, OSError, sqlite3.Error) as error:
        if not (isinstance(error, DiskFull) or is_without_space(error)) or not give_up(directory):
            raise
    return step()


def make_way(directory: Path) -> None:
    """Give up ballast until a start has enough space."""
    while not _has_room(directory) and give_up(directory):
        pass


def give_up(directory: Path) -> bool:
    """Remove a ballast file of a data directory, and wait until its space is free; False if there is none."""
    before = _free(directory)
    for path in reversed(_files(directory)):
        try:
            path.unlink()
        except FileNotFoundError:  # another thread was faster
            continue
        except OSError as error:
            logger.warning("%s: cannot release ballast: %s", path, error.strerror)
            return False
        left = len(_files(directory))
        logger.warning("%s: the disk is full; released 1 MiB of ballast, %d MiB remain", directory, left)
        deadline = time.monotonic() + WAITING_S
        while _free(directory) <= before and time.monotonic() < deadline:
            time.sleep(0.05)
        return True
    return False


def fill(directory: Path, disk: Disk, reserve_bytes: int, ballast_bytes: int) -> bool:
    """Create one missing ballast file, if the reserve and some inodes stay free; returns whether it did.

    Raises OSError, and the errors of the disk's check.
    """
    folder = directory / BALLAST
    wanted = min(ballast_bytes, disk.size_bytes(directory) // BALLAST_SHARE) // FILE_BYTES
    names = {f"{number:02d}" for number in range(wanted)}
    there = {path.name for path in _files(directory)}
    for name in there - names:
        (folder / name).unlink()
    missing = sorted(names - there)
    if not missing or disk.free_bytes(directory) < reserve_bytes + 2 * FILE_BYTES:
        return False
    if _free(directory)[1] <= START_INODES:
        return False
    disk.check()
    make_directory(folder)
    unfinished = folder / (missing[0] + ".tmp")
    try:
        with open(unfinished, "wb", opener=private_opener) as file:
            file.write(os.urandom(FILE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(folder / missing[0])
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    sync_directory(folder)
    return True


def missing_bytes(directory: Path, disk: Disk, ballast_bytes: int) -> int:
    """The size of the missing ballast files: those already used or not created yet. Raises OSError."""
    wanted = min(ballast_bytes, disk.size_bytes(directory) // BALLAST_SHARE) // FILE_BYTES
    return max(wanted - len(_files(directory)), 0) * FILE_BYTES


def is_ballast(name: str) -> bool:
    """Whether a file with that name in the folder is ballast, finished or not. All other files are left unchanged."""
    return _NAME.fullmatch(name) is not None


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / BALLAST).glob("*") if is_ballast(path.name))


def _free(directory: Path) -> tuple[int, int]:
    """Free bytes and inodes. For file systems without an inode table, the number of inodes is large."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else sys.maxsize


def _has_room(directory: Path) -> bool:
    free_bytes, free_inodes = _free(directory)
    return free_bytes >= START_BYTES and free_inodes >= START_INODES
