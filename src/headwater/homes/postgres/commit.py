"""The statement of a commit, and its values in binary: the one that a home is asked all the time.

It is prepared once on each connection, and goes through libpq itself: what a cursor does for any statement - look at
the type of each value, wait for the socket in steps - cost more than all else that a commit does on this side.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ...storage.frames.frame_log import Head
from .connections import Prepared
from .lease import TIMELINE, WAITED_FOR

_INT4, _INT8, _BYTEA, _TEXT, _INT8_ARRAY, _BYTEA_ARRAY = 23, 20, 17, 25, 1016, 1001
"""Numbers of types, which are the same in every PostgreSQL (`pg_type.dat`)."""

_STATEMENT = """
WITH moved AS (
    UPDATE headwater.log SET head = $1, crc = $2
    WHERE key = $3 AND head = $4 AND crc = $5 AND term = $6 AND nonce = $7 AND {} RETURNING id
)
INSERT INTO headwater.frame (log, last, content)
SELECT moved.id, frame.last, frame.content FROM moved, unnest($9, $10) AS frame (last, content)
"""
_TYPES = (_INT8, _INT8, _TEXT, _INT8, _INT8, _INT8, _INT8, _INT4, _INT8_ARRAY, _BYTEA_ARRAY)
COMMIT = Prepared(b"headwater_commit", _STATEMENT.format(f"{TIMELINE} = $8").encode(), _TYPES)
"""Answers how many frames it added: none, if the head is not where it is expected."""
COMMIT_WAITED = Prepared(
    b"headwater_commit_waited",
    _STATEMENT.format(f"{TIMELINE} = $8 AND {WAITED_FOR} = $11").encode(),
    (*_TYPES, _TEXT),
)
"""The same, and none if other standbys are named."""
WAITED = Prepared(b"headwater_waited", f"SELECT {WAITED_FOR}".encode(), ())
"""The standbys that are named now: a commit that has just ended waited for them, unless they changed meanwhile."""

_INT = struct.Struct(">i").pack
_LONG = struct.Struct(">q").pack
_ARRAY = struct.Struct(">5i").pack
_DIMENSIONS, _HAS_NULLS, _FROM = 1, 0, 1


def commit_values(
    key: str, expected: Head, timeline: int, head: tuple[int, int], lasts: Sequence[int], contents: Sequence[bytes]
) -> list[bytes]:
    """The values of COMMIT. `head`: number and checksum of the last frame; `lasts`: the last number of each frame."""
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
