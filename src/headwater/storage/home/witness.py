"""What a copy can prove of its home, kept in its own files: which term it held last, and that it has all of that term.

A primary's copy takes each commit before that is answered. So if a home changes, and the copy of its last primary is
not ahead of it, nothing that was acknowledged is missing there. That proof is HELD. It is valid as long as the machine
runs, since a copy is not synced, or from a stop in order on. Where a frame was not kept, or something is set aside or
cut, the file is removed before anybody is answered: that takes no room.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...core.errors import StorageCorrupted
from ...formats.newer import WrittenByNewer
from ..disk.checked_file import CheckedFile
from ..disk.system import boot_id, sync_directory
from ..frames.frame_log import Term
from .copy_file import CopyMark, mark_copy, read_mark, write_mark

logger = logging.getLogger("headwater.storage")

HELD_NAME = "HELD"
"""The file, in the data directory."""
HELD_FORMAT = 1


def nobody_asks(_: str) -> None:
    """Of a copy that need not prove anything."""


class _Held(msgspec.Struct, frozen=True):
    """HELD."""

    format: int
    id: str
    """Of the copy, see COPY."""
    term: Term
    boot: str
    """The start of the machine in which the copy got what it has."""
    is_closed: bool
    """The copy was synced and closed since, and not opened again."""


_FILE = CheckedFile(
    HELD_NAME, _Held, newest=HELD_FORMAT, checked_from=HELD_FORMAT, remedy="remove it: its server writes another one"
)


class Evidence(NamedTuple):
    """What a copy can say at one moment."""

    id: str
    """Which copy it is."""
    inode: int
    device: int
    """Where it is."""
    boot: str
    """Which start of the machine this is."""
    seen: Term
    """The newest term that it has seen in its home."""
    held: Term
    """The newest term that it held, and has all of; (0, 0) if there is none."""

    @property
    def is_whole(self) -> bool:
        """Whether it has all that was committed in the term that it held."""
        return self.held.number > 0


class Witness:
    """What the copy in one data directory can prove. Safe to call from any thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()

    def open(self) -> None:
        """The copy is about to change. Raises OSError, StorageCorrupted, StorageUnavailable."""
        with self._lock:
            mark = read_mark(self._directory)
            if mark is None:
                return
            if not mark.is_at(self._directory):
                mark = mark_copy(self._directory, mark.home)
            held = self._held(mark)
            try:
                if held is not None:
                    _FILE.write(self._directory, msgspec.structs.replace(held, boot=boot_id(), is_closed=False))
            except OSError as error:  # a full disk, say
                logger.warning("%s: HELD cannot be written, so the copy proves nothing: %s", self._directory, error)
                held = None
            if held is None:
                self._remove()

    def see(self, term: Term) -> None:
        """The home has that term. Raises OSError, StorageCorrupted, StorageUnavailable."""
        with self._lock:
            mark = read_mark(self._directory)
            if mark is not None and mark.seen != term and mark.seen.number <= term.number:
                write_mark(self._directory, msgspec.structs.replace(mark, seen=term))

    def hold(self, term: Term) -> None:
        """The copy has all that the home has, and its server appends in that term from now on.

        Raises OSError, StorageCorrupted, StorageUnavailable.
        """
        with self._lock:
            mark = read_mark(self._directory)
            if mark is not None and boot_id():
                _FILE.write(self._directory, _Held(HELD_FORMAT, mark.id, term, boot_id(), is_closed=False))

    def end(self, why: str) -> None:
        """The copy lacks something that it had, or that was committed: it proves nothing until `hold`. Durable.

        Raises OSError.
        """
        with self._lock:
            if self._remove():
                logger.warning("%s: %s; the copy is no witness of its home any more", self._directory, why)

    def close(self) -> None:
        """The copy was synced, and does not change until `open`. Raises OSError."""
        with self._lock:
            if (held := self._held(read_mark(self._directory))) is not None:
                _FILE.write(self._directory, msgspec.structs.replace(held, is_closed=True))

    def evidence(self) -> Evidence | None:
        """Its proof of now; None: the directory is no copy yet, or of another one that was copied.

        Raises OSError, StorageCorrupted, StorageUnavailable.
        """
        with self._lock:
            mark = read_mark(self._directory)
            if mark is None or not mark.is_at(self._directory):
                return None
            held = self._held(mark)
            return Evidence(
                mark.id, mark.inode, mark.device, boot_id(), mark.seen, Term(0, 0) if held is None else held.term
            )

    def _held(self, mark: CopyMark | None) -> _Held | None:
        """What HELD says, if that is valid for the copy of that mark."""
        try:
            held = _FILE.read(self._directory)
        except FileNotFoundError:
            return None
        except (StorageCorrupted, WrittenByNewer) as error:
            logger.warning("%s", error)
            return None
        is_own = mark is not None and mark.id == held.id and mark.is_at(self._directory)
        return held if is_own and (held.is_closed or held.boot == boot_id() != "") else None

    def _remove(self) -> bool:
        path = self._directory / HELD_NAME
        if not os.path.lexists(path):
            return False
        path.unlink()
        sync_directory(self._directory)
        return True
