"""The evidence that a copy stores about its home: the last term that it held, and that it has all events of that term.

A primary's copy stores each commit before it is acknowledged. So if a home changes and the copy of its last primary is
not ahead of it, the home has all acknowledged events. The file HELD is that proof. Because a copy is not synced, it is
valid only while the machine runs, or after a clean stop. If a frame could not be stored, or data is moved aside or
truncated, the file is removed before any answer, since removing needs no disk space.
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
    """The callback of a copy that does not have to prove anything."""


class _Held(msgspec.Struct, frozen=True):
    """HELD."""

    format: int
    id: str
    """The id of the copy, see COPY."""
    term: Term
    boot: str
    """The machine boot during which the copy got its frames."""
    is_closed: bool
    """Whether the copy has since been synced and closed, and not reopened."""


_FILE = CheckedFile(
    HELD_NAME, _Held, newest=HELD_FORMAT, checked_from=HELD_FORMAT, remedy="remove it: its server creates a new one"
)


class Evidence(NamedTuple):
    """The evidence of a copy at one moment."""

    id: str
    """The id of the copy."""
    inode: int
    device: int
    """The device on which the directory is."""
    boot: str
    """The current machine boot."""
    seen: Term
    """The newest term that it has seen at its home."""
    held: Term
    """The newest term that it held and has all events of; (0, 0) if there is none."""

    @property
    def is_whole(self) -> bool:
        """Whether it has everything committed in the term that it held."""
        return self.held.number > 0


class Witness:
    """The evidence of the copy in one data directory. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()

    def open(self) -> None:
        """Prepare for changes of the copy. Raises OSError, StorageCorrupted, StorageUnavailable."""
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
            except OSError as error:  # such as a full disk
                logger.warning(
                    "%s: HELD cannot be written, so the copy cannot prove anything about its home: %s",
                    self._directory,
                    error,
                )
                held = None
            if held is None:
                self._remove()

    def see(self, term: Term) -> None:
        """Record that the home has that term. Raises OSError, StorageCorrupted, StorageUnavailable."""
        with self._lock:
            mark = read_mark(self._directory)
            if mark is not None and mark.seen != term and mark.seen.number <= term.number:
                write_mark(self._directory, msgspec.structs.replace(mark, seen=term))

    def hold(self, term: Term) -> None:
        """Record that the copy has all events of the home, and that its server appends in that term from now on.

        Raises OSError, StorageCorrupted, StorageUnavailable.
        """
        with self._lock:
            mark = read_mark(self._directory)
            if mark is not None and boot_id():
                _FILE.write(self._directory, _Held(HELD_FORMAT, mark.id, term, boot_id(), is_closed=False))

    def end(self, why: str) -> None:
        """Durably end the proof until `hold`: the copy lacks something that it had or that was committed.

        Raises OSError.
        """
        with self._lock:
            if self._remove():
                logger.warning("%s: %s; the copy can no longer prove anything about its home", self._directory, why)

    def close(self) -> None:
        """Record that the copy was synced and does not change until `open`. Raises OSError."""
        with self._lock:
            if (held := self._held(read_mark(self._directory))) is not None:
                _FILE.write(self._directory, msgspec.structs.replace(held, is_closed=True))

    def evidence(self) -> Evidence | None:
        """Its current evidence; None if the directory is not a copy yet, or is a duplicate of another one.

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
        """The content of HELD, if it is valid for the copy with that mark."""
        try:
            held = _FILE.read(self._directory)
        except FileNotFoundError:
            return None
        except (StorageCorrupted, WrittenByNewer) as error:
            logger.warning("HELD cannot be read: %s", error)
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
