"""The term of a refill, as statements on one connection: the home is marked for as long as it lasts.

So no server gets the lease meanwhile. Afterwards the history of the home counts as changed, and no member as compared:
a refill proves nothing of other copies.
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
    went_back = %(mark)s, identifier = '{REFILLED}',
    number = 1 + greatest(number, {NEWEST}, %(seen)s, (SELECT max(greatest(seen, held)) FROM headwater.member))
WHERE went_back <> '' OR NOT {UNCHANGED} OR until <= clock_timestamp() RETURNING number, {TIMELINE}
"""
_COMPARE_AGAIN = "UPDATE headwater.member SET timeline = 0, identifier = ''"
_END = "UPDATE headwater.lease SET went_back = %s WHERE number = %s AND nonce = %s"


def begin(connection: Connection, server: str, mark: str, nonce: int, seen: int) -> Granted | None:
    """See `PostgresHome.begin_refill`. Raises psycopg.Error, as `end`."""
    if not has_members(connection):
        raise StorageUnavailable("the home is of version 1, which has no members: run headwater home upgrade first")
    given = {"server": server, "mark": mark, "nonce": nonce, "seen": seen}
    with connection.transaction():
        row = connection.execute(_BEGIN, given).fetchone()
        if row is not None:
            connection.execute(_COMPARE_AGAIN)
    return None if row is None else Granted(Term(row[0], nonce), row[1])


def end(connection: Connection, term: Term, mark: str) -> bool:
    """See `PostgresHome.end_refill`; answers whether the term is the newest one still."""
    return connection.execute(_END, (mark, *term)).rowcount > 0
