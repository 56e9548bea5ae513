"""The archive state that a Delta table stores about its log.

No Spark here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .errors import NotAnArchive

if TYPE_CHECKING:
    from ..delta.table import Table

LOG, INCARNATION, FIRST = "headwater.log", "headwater.incarnation", "headwater.first"
"""The properties of a table that name the archived log, its incarnation and its first number."""


class ArchiveState(NamedTuple):
    """A table's own state in one version."""

    log: str
    incarnation: str
    """The incarnation of the log when the last events of the table were added."""
    first: int
    """The first number of the log in the table."""
    archived: int
    """The last number in the table; `first` - 1 if it is empty."""
    claim: int
    """The claim of the current archiver; 0 if there was never one. A larger claim fences it off."""
    version: int
    """The version of the Delta table."""


def archive_transaction(log: str) -> str:
    """The application transaction whose version is the next number that the table expects: `archived` + 1."""
    return f"archiver:{log}"


def claim_transaction(log: str) -> str:
    """The application transaction whose version is the newest claim on the table."""
    return f"archiver-claim:{log}"


def compaction_transaction(log: str) -> str:
    """The application transaction that allows only one compaction at a time."""
    return f"archiver-compaction:{log}"


def transactions_of(log: str) -> tuple[str, ...]:
    """All application transactions of an archive."""
    return archive_transaction(log), claim_transaction(log), compaction_transaction(log)


def is_archive(path: Path) -> bool:
    """Whether there is a Delta table at that path."""
    from ..delta.table import is_table

    return is_table(path)


def state_of(table: Table, path: Path) -> ArchiveState:
    """The state in that version of the table. Raises NotAnArchive for a table that this pipeline did not make."""
    properties = table.configuration
    try:
        log, incarnation, first = properties[LOG], properties[INCARNATION], int(properties[FIRST])
    except (KeyError, ValueError):
        raise NotAnArchive(str(path), "the Delta table there is not an archive of a log") from None
    following = table.transaction(archive_transaction(log))
    return ArchiveState(
        log=log,
        incarnation=incarnation,
        first=first,
        archived=(first if following is None else following) - 1,
        claim=table.transaction(claim_transaction(log)) or 0,
        version=table.version,
    )


def check_log(path: Path, archived_log: str, log: str) -> None:
    """Raises NotAnArchive unless it is an archive of this log."""
    if archived_log != log:
        raise NotAnArchive(str(path), f"this is the archive of log {archived_log!r}, not of {log!r}")
