"""For its owner alone: the modes of what a data directory has in it, whatever the umask, whoever made it before.

It holds hashes of passwords, keys of users and the seeds of checksums: files are 0600, directories 0700.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from .disk.system import owner_above, private_opener, sync_directory

logger = logging.getLogger("headwater.storage")

DIRECTORY_MODE = 0o700
_OTHERS = 0o077


def make_file(path: Path) -> None:
    """An empty file, if there is none. Raises OSError."""
    os.close(private_opener(str(path), os.O_CREAT | os.O_RDWR))


def make_directory(path: Path) -> None:
    """A directory and those above it that are missing, durably; one that is there stays as it is. Raises OSError."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    path.chmod(DIRECTORY_MODE)  # the umask may have taken from its owner's rights
    if (owner := owner_above(path.parent)) is not None:
        os.chown(path, *owner)
    sync_directory(path.parent)


def tighten(path: Path) -> int:
    """Take everybody else's rights from a file or directory; answers the mode that it had if it had such, else 0.

    A directory with the setgid bit was opened to a group on purpose: it stays as it is. A warning is logged for it, and
    for a path whose mode this process may not change. Files that are made in it are private.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHERS and mode & stat.S_ISGID and path.is_dir():
            problem = "%s: others have access to it (mode %04o), left so for its setgid bit; files in it are private"
            logger.warning(problem, path, mode)
        elif mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)
            return mode
    except FileNotFoundError:
        pass  # it will be made as it should be
    except OSError as error:
        wanted = mode & ~_OTHERS
        problem = "%s: others have access to it (mode %04o): %s; it holds secrets, make it %04o"
        logger.warning(problem, path, mode, error.strerror, wanted)
    return 0
