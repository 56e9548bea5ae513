"""The SQL statement of a commit, with its values in binary.

It is the most frequent statement. It is prepared once per connection and sent by libpq directly: the work that a cursor
does for any statement (find the type of each value, wait for the socket in steps) cost more than the rest of a commit
on this side.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ...storage.frames.frame_log import Head
from .connections import Prepared
from .lease import TIMELINE, WAITED_FOR

_INT4, _INT8, _BYTEA, _TEXT, _TID, _INT8_ARRAY, _BYTEA_ARRAY = 23, 20, 17, 25, 27, 1016, 1001
"""OIDs of types, which are the same in every PostgreSQL (`pg_type.dat`)."""
_TYPES = (_INT8, _INT8, _TEXT, _INT8, _INT8, _INT8, _INT8, _INT4, _INT8_ARRAY, _BYTEA_ARRAY)


def _commit(name: bytes, where: str, *more: int) -> Prepared:
    return Prepared(
        name,
        f"""
WITH moved AS (
    UPDATE headwater.log SET head = $1, crc = $2
    WHERE key = $3 AND head = $4 AND crc = $5 AND term = $6 AND nonce = $7 AND {TIMELINE} = $8{where}
    RETURNING id, ctid AS place
), added AS (
    INSERT INTO headwater.frame (log, last, content)
    SELECT moved.id, frame.last, frame.content FROM moved, unnest($9, $10) AS frame (last, content)
)
SELECT place FROM moved
""".encode(),
        (*_TYPES, *more),
    )


class Commit(NamedTuple):
    """One statement in two forms. Each returns the present location (ctid) of the head row.

    If the head is not the expected one, no row is returned and no frame is added.
    """

    by_key: Prepared
    by_place: Prepared
    """For when the location of the head row is known: the last parameter.

    Each commit leaves a dead row version, which vacuum cannot remove while an older transaction is open. The index
    contains them all, so a search by key reads each of them.
    """


COMMIT = Commit(
    _commit(b"headwater_commit", ""),
    _commit(b"headwater_commit_at", " AND ctid = $11", _TID),
)
COMMIT_WAITED = Commit(
    _commit(b"headwater_commit_waited", f" AND {WAITED_FOR} = $11", _TEXT),
    _commit(b"headwater_commit_waited_at", f" AND {WAITED_FOR} = $11 AND ctid = $12", _TEXT, _TID),
)
"""The same, but without effect if the configured standbys differ from the next parameter."""
WAITED = Prepared(b"headwater_waited", f"SELECT {WAITED_FOR}".encode(), ())
"""The standbys configured now. A commit that has just ended waited for them, unless they changed meanwhile."""

_INT = struct.Struct(">i").pack
_LONG = struct.Struct(">q").pack
_ARRAY = struct.Struct(">5i").pack
_DIMENSIONS, _HAS_NULLS, _FROM = 1, 0, 1


def commit_values(
    key: str, expected: Head, timeline: int, head: tuple[int, int], lasts: Sequence[int], contents: Sequence[bytes]
) -> list[bytes]:
    """Parameters of COMMIT. `head`: number and checksum of the last frame; `lasts`: the last number of each frame."""
    return [
        _LONG(head[0]),
        _LONG(head[1]),
        key.encode(),
        _LONG(expected.number),
        _LONG(expected.crc),
        _LONG(expected.term.number),
        _LONG(expected.term.nonce),
        _INT(timeline),
        _array(_INT8, [_LONG(last) for last in lasts]),
        _array(_BYTEA, contents),
    ]


def _array(type_: int, values: Sequence[bytes]) -> bytes:
    pieces = [_ARRAY(_DIMENSIONS, _HAS_NULLS, type_, len(values), _FROM)]
    for value in values:
        pieces += (_INT(len(value)), value)
    return b"".join(pieces)
