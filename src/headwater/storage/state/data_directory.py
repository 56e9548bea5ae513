"""A data directory as a whole: its lock, what it may not lack, and its state for a command."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ...core.errors import StorageCorrupted, StorageUnavailable
from ..catalog.directories import LOGS
from ..disk.locks import LOCK, DirectoryUnavailable, HeldLock, InUse, OwnedDisk, hold
from ..disk.system import Disk, private_opener
from ..foreign import refuse_foreign
from ..private import make_directory
from ..refusals import refusing
from ..segments.meta import META_NAME
from .files import ACCEPTED, STATE_NAME
from .journal import JOURNAL
from .journaled_state import JournalState
from .last_confirmed import REMEDY
from .recovery import open_journaled
from .remote import RemoteState

PARTIAL_BACKUP = "BACKUP.partial"
"""In a backup that is not finished: nobody may take it for a data directory."""
STARTING_S = 5.0
"""A command waits so long for a server that has the directory and does not answer yet, or no more."""


def open_state(directory: Path, *, is_locked: bool = False) -> JournalState | RemoteState:
    """The state of a data directory, which is made if it is missing; to be closed.

    It is locked for as long as the state is open, unless the caller has done so (`is_locked`). While a server has it,
    that server is asked. Raises StorageUnavailable, StorageCorrupted: it is not what was confirmed, or it is gone, but
    its logs are not.
    """
    refuse_foreign(directory)
    refuse_missing(directory)
    with refusing(directory, "the data directory cannot be made"):
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
            except StorageUnavailable:  # it starts, or stops
                if time.monotonic() > deadline:
                    raise
        time.sleep(0.05)
    try:
        return open_journaled(directory, fatal=_told, disk=OwnedDisk(Disk(), lock), lock=lock)
    except BaseException:
        lock.close()
        raise


def _told(_: str) -> None:
    """What a command cannot write, it tells; there is no more to be done about it."""


def refuse_missing(directory: Path) -> None:
    """Raises StorageCorrupted if there are logs in a data directory, but no state, or one that is being replaced."""
    path = directory / STATE_NAME
    if (directory / ACCEPTED).exists():
        remedy = "do that again, and it will be finished: headwater check --accept-state-loss"
        raise StorageCorrupted(str(path), f"{ACCEPTED} was to take its place, but that was interrupted", remedy)
    if not path.exists() and not (directory / JOURNAL).exists() and any((directory / LOGS).glob(f"*/{META_NAME}")):
        raise StorageCorrupted(str(path), "the file is missing, but there are logs", f"put it back; {REMEDY}")


def lock_directory(directory: Path) -> HeldLock:
    """Lock a data directory for this process; close the lock. Raises StorageUnavailable: another process has it, or the
    folder is one of other programs.

    Before that is known, nothing is made and no mode is changed.
    """
    refuse_foreign(directory)
    if (directory / PARTIAL_BACKUP).exists():
        raise StorageUnavailable(f"{directory}: a backup that was interrupted; remove it, and make another")
    while True:
        try:
            make_directory(directory)
            file = open(directory / LOCK, "a+", encoding="ascii", opener=private_opener)  # noqa: SIM115 - held
        except OSError as error:
            problem = f"{directory}: {error.strerror}; the data directory must be writable"
            raise DirectoryUnavailable(problem) from None
        hold(file, directory)
        lock = HeldLock(directory, file)
        if lock.problem() is None:
            break
        lock.close()  # LOCK was replaced before it was locked
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return lock
