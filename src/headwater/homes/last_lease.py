"""The lease that a server had last, beside its copy: a process that begins again gives back what its own kill left.

Safe is only what can be shown: that process is dead, since whoever has the directory's lock is another one; and the
directory was not copied, since the machine was not started again and the file is the one that was written. The lease is
given back, not taken up: the next term is a new one, and its fence stops what the dead process may have sent.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ..formats.decoders import json_decoder
from ..storage.disk.system import boot_id
from ..storage.frames.frame_log import Term

NAME = "LEASE"


class _Entry(msgspec.Struct, frozen=True):
    number: int
    nonce: int
    boot: str
    inode: int
    device: int
    """Of the file system: a snapshot of one has the same inodes."""


class LastLease:
    """That of one data directory. What is kept is no more than a hint: without it a lease is waited out."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def keep(self, term: Term) -> None:
        """This process has the lease of that term now. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "wb") as file:
            found = os.fstat(file.fileno())
            file.write(msgspec.json.encode(_Entry(term.number, term.nonce, boot_id(), found.st_ino, found.st_dev)))

    def forget(self) -> None:
        """It was given back. Raises OSError."""
        self._path.unlink(missing_ok=True)

    def found(self) -> Term | None:
        """That of a process before this one, on this machine, since it was started; None if there is none.

        To be asked where no other process serves the directory.
        """
        try:
            entry = json_decoder(_Entry).decode(self._path.read_bytes())
            found = self._path.stat()
        except (OSError, ValueError):
            return None
        is_own = entry.boot == boot_id() != "" and (entry.inode, entry.device) == (found.st_ino, found.st_dev)
        return Term(entry.number, entry.nonce) if is_own else None
