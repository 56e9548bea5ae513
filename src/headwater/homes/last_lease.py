"""The last lease of a server, stored beside its copy: a restarted process releases the lease of a killed one.

This is safe because the earlier process is dead (this one has the directory's lock) and the directory was not copied
(the machine was not rebooted, and the file has the recorded inode). The lease is released and not reused: the next term
is a new one, and its fence stops requests that the dead process may have sent.
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
    """The device of the file system, since a snapshot of it has the same inodes."""


class LastLease:
    """The last lease of a data directory. It is only a hint: without it the server waits until the lease expires."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def keep(self, term: Term) -> None:
        """Store the term of this process's lease. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "wb") as file:
            found = os.fstat(file.fileno())
            file.write(msgspec.json.encode(_Entry(term.number, term.nonce, boot_id(), found.st_ino, found.st_dev)))

    def forget(self) -> None:
        """Remove the stored term after the release of the lease. Raises OSError."""
        self._path.unlink(missing_ok=True)

    def found(self) -> Term | None:
        """The term stored by an earlier process on this machine since the last boot; None if there is none.

        No other process may serve the directory when this is called.
        """
        try:
            entry = json_decoder(_Entry).decode(self._path.read_bytes())
            found = self._path.stat()
        except (OSError, ValueError):
            return None
        is_own = entry.boot == boot_id() != "" and (entry.inode, entry.device) == (found.st_ino, found.st_dev)
        return Term(entry.number, entry.nonce) if is_own else None
