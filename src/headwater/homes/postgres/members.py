"""The members of a home in PostgreSQL: a logged row for each copy, which says what that copy can prove.

A server writes its own row, and keeps the same in its copy, so that it enters it again in a home that lost it. The
statement that gives the lease decides by these rows whether a home that changed lacks anything: see `lease`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...storage.frames.frame_log import Term
from ...storage.home.port import NO_HISTORY, History
from ...storage.home.witness import Evidence
from .lease import IDENTIFIER, TIMELINE, UNCHANGED

if TYPE_CHECKING:
    from .connections import Connection

_COLUMNS = ("id", "name", "inode", "device", "boot", "seen", "seen_nonce", "held", "held_nonce", "timeline",
            "identifier", "ahead")  # fmt: skip
_OTHERS = f"name = %(name)s AND id <> %(id)s AND (SELECT {UNCHANGED} FROM headwater.lease)"
"""Copies that the server had before. In a home that changed they count: what they held may be missing there."""
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
    """What the copy of one server can prove."""

    name: str
    """Of the server: another copy of it takes the place of this row, unless the home changed."""
    evidence: Evidence
    compared: History = NO_HISTORY
    """With which history of the home all of it was compared last."""
    ahead: str = ""
    """What it has and that history has not; empty if there is nothing."""


def enter(connection: Connection, member: Member) -> bool:
    """That is what it can prove now; answers whether that is news. Raises psycopg.Error, as all that follow do.

    Standbys are waited for, if it is.
    """
    given = _given(member)
    if connection.execute(_KNOWN, given).fetchone() is not None:
        return False
    with connection.transaction():
        connection.execute(_REPLACE, given)
        connection.execute(_ENTER, given)
    return True


def members(connection: Connection) -> list[Member]:
    """All of them, by name."""
    return [
        Member(name, Evidence(id, inode, device, boot, Term(*seen), Term(*held)), History(timeline, identifier), ahead)
        for id, name, inode, device, boot, *rest in connection.execute(_MEMBERS)
        for seen, held, (timeline, identifier, ahead) in [(rest[:2], rest[2:4], rest[4:])]
    ]


def forget(connection: Connection, name: str) -> bool:
    """The server of that name is gone for ever; answers whether it was a member."""
    return connection.execute(_FORGET, (name,)).rowcount > 0


def forget_others(connection: Connection) -> list[str]:
    """Remove members that did not compare their copies with the history of now, or are ahead of it; answers whom."""
    return [name for (name,) in connection.execute(_FORGET_OTHERS)]


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
