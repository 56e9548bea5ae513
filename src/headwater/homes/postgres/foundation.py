"""Creating a home in PostgreSQL from a data directory: the home gets the identity of the directory's journal.

Checksums of frames depend on that identity, so every frame keeps its checksum. The home stays marked until it has all
frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import StorageUnavailable
from ...storage.home.port import JOURNAL_KEY
from .marks import ENDED, MOVING, REVIVING
from .schema import HomeIdentity, make_tables

if TYPE_CHECKING:
    from .schema import Connection

_STANDS = f"""
SELECT went_back, number = 0 AND NOT EXISTS (
    SELECT FROM headwater.log WHERE key <> '{JOURNAL_KEY}' OR head <> 0 OR term <> 0
) FROM headwater.lease FOR UPDATE
"""
_IDENTIFY = "UPDATE headwater.home SET incarnation = %s, seed = %s"
_MARK = "UPDATE headwater.lease SET went_back = %s"


def found(connection: Connection, identity: HomeIdentity, role: str | None, *, is_copy: bool) -> bool:
    """Create a home with that identity, marked so that no server appends, or resume an interrupted move.

    It takes over a home without any logs. The directory that got the logs of a home that has ended takes over that home
    again. Returns False for a copy whose home is complete: then nothing has to move, and only the role gets its rights.
    Raises StorageUnavailable if the home has other logs or is in use already; psycopg.Error.
    """
    with connection.transaction():
        there = make_tables(connection, role)
        [[went_back, is_empty]] = connection.execute(_STANDS).fetchall()
        is_begun = there == identity and went_back.startswith((MOVING, REVIVING))
        if is_copy and there == identity and not (is_empty or went_back):
            return False
        if not (is_empty or is_begun):
            _refuse(there, identity, went_back, is_copy=is_copy)
        if there != identity:
            connection.execute(_IDENTIFY, identity)
        if not is_begun:
            connection.execute(_MARK, (REVIVING if is_copy else MOVING,))
        return True


def _refuse(there: HomeIdentity, identity: HomeIdentity, went_back: str, *, is_copy: bool) -> None:
    """Raise StorageUnavailable, unless that home has ended and its logs come back."""
    if there != identity:
        raise StorageUnavailable(
            f"this database already contains the home {there.incarnation}, which is not empty; use another database"
        )
    if not went_back.startswith(ENDED):
        raise StorageUnavailable("this home already contains the logs of that directory; start the servers with it")
    if is_copy:
        raise StorageUnavailable(f"{went_back}; this is a different copy")
