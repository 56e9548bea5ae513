"""The members of a home in PostgreSQL: one logged row per copy with the evidence of that copy.

A server writes its own row and stores the same data in its copy, so that it can add the row again to a home that lost
it. The statement that grants the lease uses these rows to decide whether a changed home lacks events: see `lease`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...storage.frames.frame_log import Term
from ...storage.home.port import NO_HISTORY, History
from ...storage.home.witness import Evidence
from .lease import IDENTIFIER, TIMELINE, UNCHANGED, mark, standing
from .marks import FORGOTTEN

if TYPE_CHECKING:
    from .connections import Connection

_COLUMNS = ("id", "name", "inode", "device", "boot", "seen", "seen_nonce", "held", "held_nonce", "timeline",
            "identifier", "ahead")  # fmt: skip
_OTHERS = f"name = %(name)s AND id <> %(id)s AND (SELECT {UNCHANGED} FROM headwater.lease)"
"""Earlier copies of the server. They are kept in a home that changed, which may lack events that these copies held."""
_KNOWN = f"""
SELECT FROM headwater.member WHERE {" AND ".join(f"{each} = %({each})s" for each in _COLUMNS)}
    AND NOT EXISTS (SELECT FROM headwater.member WHERE {_OTHERS})
"""
_REPLACE = f"DELETE FROM headwater.member WHERE id = %(id)s OR {_OTHERS}"
_ENTER = f"""
INSERT INTO headwater.member ({", ".join(_COLUMNS)}) VALUES ({", ".join(f"%({each})s" for each in _COLUMNS)})
"""
_MEMBERS = f"SELECT {', '.join(_COLUMNS)} FROM headwater.member ORDER BY name"
_FORGET = "DELETE FROM headwater.member WHERE name = %s"
_FORGET_OTHERS = f"""
DELETE FROM headwater.member WHERE ahead <> '' OR timeline <> {TIMELINE} OR identifier <> {IDENTIFIER} RETURNING name
"""


class Member(NamedTuple):
    """The evidence of one server's copy."""

    name: str
    """The name of the server. Another copy of this server replaces the row, unless the home changed."""
    evidence: Evidence
    compared: History = NO_HISTORY
    """The history of the home that the whole copy was compared with last."""
    ahead: str = ""
    """What the copy has and that history lacks; empty if nothing."""


def enter(connection: Connection, member: Member) -> bool:
    """Store the evidence of a member. Returns whether it differs from the stored row.

    If it does, this waits for standbys. Raises psycopg.Error, as all functions below do.
    """
    given = _given(member)
    if connection.execute(_KNOWN, given).fetchone() is not None:
        return False
    with connection.transaction():
        connection.execute(_REPLACE, given)
        connection.execute(_ENTER, given)
    return True


def members(connection: Connection) -> list[Member]:
    """All members, ordered by name."""
    return [
        Member(name, Evidence(id, inode, device, boot, Term(*seen), Term(*held)), History(timeline, identifier), ahead)
        for id, name, inode, device, boot, *rest in connection.execute(_MEMBERS)
        for seen, held, (timeline, identifier, ahead) in [(rest[:2], rest[2:4], rest[4:])]
    ]


def forget(connection: Connection, name: str) -> bool:
    """Remove a server that is permanently gone. Returns whether it was a member.

    If its copies were evidence that the home lost events, the home is marked with it, so that the loss must still be
    accepted.
    """
    with connection.transaction():
        known = _contradiction(connection)
        is_known = connection.execute(_FORGET, (name,)).rowcount > 0
        if known is not None and _contradiction(connection) != known:
            mark(connection, FORGOTTEN.format(known, name))
    return is_known


def forget_others(connection: Connection) -> list[str]:
    """Remove members whose copies were not compared with the present history or are ahead of it. Returns the names."""
    return [name for (name,) in connection.execute(_FORGET_OTHERS)]


def _contradiction(connection: Connection) -> str | None:
    found = standing(connection)
    return None if found is None else found.contradiction


def _given(member: Member) -> Mapping[str, Any]:
    said = member.evidence
    return {
        **said._asdict(),
        **member.compared._asdict(),
        "name": member.name,
        "ahead": member.ahead,
        "seen": said.seen.number,
        "seen_nonce": said.seen.nonce,
        "held": said.held.number,
        "held_nonce": said.held.nonce,
    }
