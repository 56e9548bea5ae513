"""SQL for the term of a command that changes a whole home. The home is marked meanwhile.

No server gets the lease until the command, or a repetition of it, has ended. Afterwards the history of the home counts
as changed and no member as compared, since such a term proves nothing about other copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import StorageUnavailable
from ...storage.frames.frame_log import Term
from .lease import NEWEST, REFILLED, TIMELINE, UNCHANGED, Granted, has_members

if TYPE_CHECKING:
    from .connections import Connection

_BEGIN = f"""
UPDATE headwater.lease SET holder = %(server)s, addresses = '{{}}', nonce = %(nonce)s, until = 'epoch',
    went_back = %(mark)s, identifier = '{REFILLED}', losses = %(losses)s,
    number = 1 + greatest(number, {NEWEST}, %(seen)s, (SELECT max(greatest(seen, held)) FROM headwater.member))
WHERE went_back <> '' OR NOT {UNCHANGED} OR until <= clock_timestamp() RETURNING number, {TIMELINE}
"""
_COMPARE_AGAIN = "UPDATE headwater.member SET timeline = 0, identifier = ''"
_END = "UPDATE headwater.lease SET went_back = %s WHERE number = %s AND nonce = %s"
_FORGET_MEMBERS = "DELETE FROM headwater.member"


def begin(connection: Connection, server: str, mark: str, nonce: int, seen: int, losses: int) -> Granted | None:
    """See `PostgresHome.begin_marked`. Raises psycopg.Error, as `end`."""
    if not has_members(connection):
        raise StorageUnavailable(
            "the home has version 1, which does not support members; run headwater home upgrade first"
        )
    given = {"server": server, "mark": mark, "nonce": nonce, "seen": seen, "losses": losses}
    with connection.transaction():
        row = connection.execute(_BEGIN, given).fetchone()
        if row is not None:
            connection.execute(_COMPARE_AGAIN)
    return None if row is None else Granted(Term(row[0], nonce), row[1])


def end(connection: Connection, term: Term, mark: str, *, forgets_members: bool) -> bool:
    """See `PostgresHome.end_marked`. Returns whether the term is still the newest one."""
    with connection.transaction():
        is_ended = connection.execute(_END, (mark, *term)).rowcount > 0
        if is_ended and forgets_members:
            connection.execute(_FORGET_MEMBERS)
    return is_ended
