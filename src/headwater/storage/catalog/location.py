"""LOCATION: the file that records where a data directory was last served, to detect a copy or a move.

A copied directory has the identity of the original (the incarnation of its journal). If both are served, both assign
the same numbers to different events. A location is the directory's inode and its file system's id, which survive a
rename and a reboot. The device number does not.

Other processes on this machine see the served identities as names in Linux's abstract socket namespace.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import threading
from functools import partial
from pathlib import Path

import msgspec

from ...core.errors import EventLogError
from ...formats.newer import WrittenByNewer
from ..disk.ballast import with_ballast
from ..disk.checked_file import CheckedFile
from ..disk.locks import InUse

logger = logging.getLogger("headwater.storage")

LOCATION_NAME = "LOCATION"
"""The file, in the data directory."""
LOCATION_FORMAT = 1
_REMEDY = (
    "`headwater backup BACKUP --data {0}`, then `headwater restore BACKUP DIR`, create a directory DIR whose logs "
    "are new incarnations"
)


class Location(msgspec.Struct, frozen=True):
    """LOCATION."""

    format: int
    identity: str
    """The incarnation of the journal."""
    inode: int
    file_system: int
    """`f_fsid` of statvfs."""
    path: str
    """The path at which it was found, for messages; undecodable bytes are escaped."""

    def is_same_directory(self, other: Location) -> bool:
        """Whether both are the same directory, whatever its name."""
        return (self.inode, self.file_system) == (other.inode, other.file_system)


def location_of(directory: Path, identity: str) -> Location:
    """The current location of a directory. Raises OSError."""
    inode, file_system = os.stat(directory).st_ino, os.statvfs(directory).f_fsid
    path = os.fsencode(os.path.abspath(directory)).decode(errors="backslashreplace")
    return Location(LOCATION_FORMAT, identity, inode, file_system, path)


class ServedIdentity:
    """The identity of a data directory that this process serves, until `close`."""

    def __init__(self, directory: Path, identity: str) -> None:
        """Log a message if the directory has moved, and store its location.

        Raises InUse if another process on this machine serves the same identity, and this directory is not known to
        have served it before. Raises StorageUnavailable if a newer headwater wrote the file; OSError: the directory
        cannot be read.
        """
        found, known = location_of(directory, identity), _known(directory)
        if known is not None and known.identity != identity:
            known = None  # from another directory that was here before
        is_where_it_was = known is not None and known.is_same_directory(found)
        self._identity = identity
        self._is_held = _hold(identity)
        if not self._is_held:
            problem = _served_too(directory, None if is_where_it_was else known)
            if not is_where_it_was:
                raise InUse(problem)
            logger.warning("another process serves a copy: %s", problem)  # the other one is the copy, and was refused
        elif known is not None and not is_where_it_was:
            logger.warning("the data directory was copied or moved: %s", _told(directory, known, identity))
        if found != known:
            _store(directory, found)

    def close(self) -> None:
        """Let another process serve it."""
        if self._is_held:
            self._is_held = False
            _let_go(self._identity)


def _known(directory: Path) -> Location | None:
    try:
        return _FILE.read(directory)
    except FileNotFoundError:
        return None
    except WrittenByNewer:
        raise
    except (EventLogError, OSError) as error:
        logger.warning("%s; the former path of the directory is unknown", error)
        return None


def _served_too(directory: Path, source: Location | None) -> str:
    made = "" if source is None else f"it was copied from {source.path}, and "
    problem = f"{made}another process on this machine serves the same directory or a copy"
    return f"{directory}: {problem}; stop it, or keep both: {_REMEDY.format(directory)}"


def _told(directory: Path, known: Location, identity: str) -> str:
    try:
        is_there = location_of(Path(known.path), identity).is_same_directory(known)
    except OSError:
        is_there = False
    if is_there:
        what = f"it is a copy of {known.path}, which still exists: if both are served, they assign the same numbers"
    else:
        what = f"it was moved here from {known.path}, or copied: a copy assigns the same numbers as the original"
    return f"{directory}: {what}; to keep both, {_REMEDY.format(directory)}"


def _store(directory: Path, found: Location) -> None:
    try:
        with_ballast(directory, partial(_FILE.write, directory, found))
    except OSError as error:
        logger.warning("%s: it cannot be written: %s", directory / LOCATION_NAME, error.strerror)


_names: dict[str, tuple[socket.socket | None, int]] = {}
"""For each identity served by this process: the socket with its name, and the number of times it is served here."""
_changing = threading.Lock()


def _hold(identity: str) -> bool:
    """Claim the identity on this machine, visible to other processes; False if another process serves it."""
    with _changing:
        name, times = _names.get(identity, (None, 0))
        if not times and sys.platform == "linux":
            try:
                name = _bound(f"\0headwater/{identity}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
                logger.warning("%s: other processes cannot detect that it is served: %s", identity, error.strerror)
        _names[identity] = name, times + 1
        return True


def _bound(name: str) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        bound.bind(name)
    except OSError:
        bound.close()
        raise
    return bound


def _let_go(identity: str) -> None:
    with _changing:
        name, times = _names.pop(identity)
        if times > 1:
            _names[identity] = name, times - 1
        elif name is not None:
            name.close()


def _leave_to_parent() -> None:
    """Drop the names in a forked child, which serves nothing."""
    for name, _ in _names.values():
        if name is not None:
            name.close()
    _names.clear()
    _changing.release()


os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_leave_to_parent)


_FILE = CheckedFile(
    LOCATION_NAME,
    Location,
    newest=LOCATION_FORMAT,
    checked_from=LOCATION_FORMAT,
    remedy="the next start recreates the file",
)
