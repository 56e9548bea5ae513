"""A data directory as a whole: its lock, its required files, and its state for commands.

Opening a data directory makes it private and creates files, which would deny other programs access to their own folder.
So `refuse_foreign` checks a folder before anything in it changes."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from ...core.errors import StorageCorrupted, StorageUnavailable
from ...core.quoting import show
from ...formats.files.own_directory import foreign_name, names_in
from ...formats.newer import WrittenByNewer
from ..catalog.backup_lock import BACKUP_LOCK
from ..catalog.directories import LOGS, is_of_a_log
from ..catalog.location import LOCATION_NAME
from ..disk.ballast import BALLAST, is_ballast, make_way
from ..disk.locks import LOCK, DirectoryUnavailable, HeldLock, InUse, LockUnseen, OwnedDisk, hold, hold_itself
from ..disk.system import Disk, make_directory, private_opener, refusal_of, refusing
from ..home.copy_file import home_of
from ..segments.meta import META_NAME
from .files import ACCEPTED, STATE_NAME, files_of
from .journal import JOURNAL, UNFINISHED
from .journaled_state import JournalState
from .last_confirmed import REMEDY
from .recovery import open_journaled
from .remote import RemoteState

PARTIAL = "BACKUP.partial"
"""Marks an unfinished backup or restored directory, which must not be used as a data directory."""
STARTING_S = 5.0
"""The time that a command waits for a server that has the directory but does not answer because it starts or stops."""
_SCHEMA = re.compile(rb"CREATE TABLE (entries|entry) \(\s*kind TEXT")
"""Found in the first page of a state file; the first versions used `entry`."""
_LOOKED_AT = 64 * 1024
_OURS = frozenset(
    {LOGS, LOCK, BACKUP_LOCK, UNFINISHED, ACCEPTED, "BACKUP.partial", "BACKUP.json", "HELD", "LEASE",
     BALLAST, "state.sock", "state.new", "room.tmp", LOCATION_NAME, *(path.name for path in files_of(Path(STATE_NAME)))}
)  # fmt: skip
_OURS_LEFT = re.compile(
    r"(COPY|HELD|LOCATION|state\.witness|BACKUP\.json)\.\d+\.tmp|state-new\..+|state\.(lost|damaged)-\d+|aside-.+"
)
"""Left by an interrupted start or repair."""


def open_state(directory: Path, *, is_locked: bool = False) -> JournalState | RemoteState:
    """Open the state of a data directory, creating it if missing. The caller closes it.

    The directory is locked while the state is open, unless the caller has locked it (`is_locked`). If a server has
    locked it, calls are sent to that server. Raises StorageUnavailable, StorageCorrupted: the state lacks confirmed
    changes, or is gone although there are logs.
    """
    refuse_foreign(directory)
    refuse_missing(directory)
    with refusing(directory, "cannot create the data directory"):
        make_directory(directory)
    if is_locked:
        return open_journaled(directory, fatal=_told)
    deadline = time.monotonic() + STARTING_S
    while True:
        try:
            lock = lock_directory(directory)
            break
        except InUse:
            try:
                return RemoteState(directory)
            except StorageUnavailable:  # the server starts or stops
                if time.monotonic() > deadline:
                    raise
        time.sleep(0.05)
    try:
        return open_journaled(directory, fatal=_told, disk=OwnedDisk(Disk(), lock), lock=lock)
    except BaseException:
        lock.close()
        raise


def _told(_: str) -> None:
    """The `fatal` callback of a command: the error is reported anyway."""


def refuse_missing(directory: Path) -> None:
    """Raises StorageCorrupted if a data directory has logs but no state, or one that is being replaced."""
    path = directory / STATE_NAME
    if (directory / ACCEPTED).exists():
        remedy = "finish it with headwater check --accept-state-loss"
        raise StorageCorrupted(str(path), f"its replacement by {ACCEPTED} was interrupted", remedy)
    if not path.exists() and not (directory / JOURNAL).exists() and any((directory / LOGS).glob(f"*/{META_NAME}")):
        raise StorageCorrupted(str(path), "the file is missing, but there are logs", f"put it back; {REMEDY}")


def lock_directory(directory: Path) -> HeldLock:
    """Lock a data directory for this process; the caller closes the lock.

    Raises StorageUnavailable if another process has it, or the folder belongs to other programs. Until that is checked,
    no file is created and no mode is changed.
    """
    refuse_foreign(directory)
    refuse_partial(directory)
    while True:
        try:
            make_directory(directory)
            file = open(directory / LOCK, "a+", encoding="ascii", opener=private_opener)  # noqa: SIM115 - held
        except OSError as error:
            problem = f"{directory}: {error.strerror}; the data directory must be writable"
            raise DirectoryUnavailable(problem) from None
        hold(file, directory)
        try:
            lock = HeldLock(directory, file, hold_itself(directory))
        except BaseException as error:
            file.close()
            if isinstance(error, OSError):
                raise DirectoryUnavailable(f"{directory}: {error.strerror}; the directory cannot be locked") from None
            raise
        try:
            replaced = lock.problem()
        except LockUnseen:
            lock.close()
            raise
        if replaced is None:
            break
        lock.close()  # LOCK was replaced before it was locked
    try:
        make_way(directory)
        file.truncate(0)
        os.write(file.fileno(), b"%d\n" % os.getpid())
    except OSError as error:
        lock.close()
        raise refusal_of(error, directory / LOCK, "the lock cannot be written") from None
    return lock


def refuse_partial(directory: Path) -> None:
    """Raises StorageUnavailable if a directory is an unfinished backup or restore."""
    if (directory / PARTIAL).exists():
        raise StorageUnavailable(f"{directory}: an interrupted backup or restore; remove it and start again")


def has_data(directory: Path) -> bool:
    """Whether it is a data directory or a backup, by the content of its files, not only their names. Raises OSError.

    With a state, a journal or the mark of a copy it is one, whatever else it contains.
    """
    return _has_state(directory) or is_of_a_log(directory / JOURNAL) or _is_marked(directory)


def require_data(directory: Path) -> None:
    """Raises StorageUnavailable, and creates nothing, if there is no state in that directory."""
    refuse_foreign(directory)
    if not any(path.exists() for path in files_of(directory / STATE_NAME)):
        raise no_data(directory)


def no_data(directory: Path) -> StorageUnavailable:
    """The error for a directory without a state."""
    problem = f"{directory}: not a data directory (there is no {STATE_NAME})"
    return StorageUnavailable(f"{problem}; name the data directory with --data")


def _has_state(directory: Path) -> bool:
    for path in files_of(directory / STATE_NAME):
        if path.is_file():
            with path.open("rb") as file:
                if _SCHEMA.search(file.read(_LOOKED_AT)):
                    return True
    return False


def _is_marked(directory: Path) -> bool:
    try:
        return home_of(directory) is not None
    except StorageCorrupted:
        return False
    except WrittenByNewer:
        return True


def is_empty(directory: Path) -> bool:
    """Whether it is empty or not a directory. Raises OSError."""
    return foreign_name(directory) is None


def refuse_foreign(directory: Path) -> None:
    """Raises StorageUnavailable if a folder is not empty and neither a data directory nor the beginning of one."""
    try:
        others = sorted(name for name in names_in(directory) - _OURS if not _OURS_LEFT.fullmatch(name))
        others += sorted(
            f"{LOGS}/{name}" for name in names_in(directory / LOGS) if not _may_be_of_a_log(directory, name)
        )
        others += sorted(f"{BALLAST}/{name}" for name in names_in(directory / BALLAST) if not is_ballast(name))
        is_foreign = bool(others) and not has_data(directory)
    except OSError as error:
        raise DirectoryUnavailable(f"{directory}: {error.strerror}; the data directory must be readable") from None
    if is_foreign:
        raise StorageUnavailable(
            f"{directory}: not a data directory (it contains {show(others[0])}); specify a data "
            f"directory or an empty directory with --data"
        )


def _may_be_of_a_log(directory: Path, name: str) -> bool:
    path = directory / LOGS / name
    return is_of_a_log(path) or (path.is_dir() and not names_in(path))
