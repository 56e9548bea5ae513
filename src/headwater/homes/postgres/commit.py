"""The statement of a commit, and its values in binary: the one that a home is asked all the time.

It is prepared once on each connection, and goes through libpq itself: what a cursor does for any statement - look at
the type of each value, wait for the socket in steps - cost more than all else that a commit does on this side.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ...storage.frames.frame_log import Head
from .connections import Prepared
from .lease import TIMELINE, WAITED_FOR

_INT4, _INT8, _BYTEA, _TEXT, _TID, _INT8_ARRAY, _BYTEA_ARRAY = 23, 20, 17, 25, 27, 1016, 1001
"""Numbers of types, which are the same in every PostgreSQL (`pg_type.dat`)."""
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
    """One statement in two forms. Each answers where the row of the head is now; no row, and no frame is added, if the
    head is not where it is expected.
    """

    by_key: Prepared
    by_place: Prepared
    """For where it is known in which place that row is: its last parameter.

    Each commit leaves a row behind, and no vacuum removes it while an older transaction goes on. The index has all of
    them, so a search for the key looks at each.
    """


COMMIT = Commit(
    _commit(b"headwater_commit", ""),
    _commit(b"headwater_commit_at", " AND ctid = $11", _TID),
)
COMMIT_WAITED = Commit(
    _commit(b"headwater_commit_waited", f" AND {WAITED_FOR} = $11", _TEXT),
    _commit(b"headwater_commit_waited_at", f" AND {WAITED_FOR} = $11 AND ctid = $12", _TEXT, _TID),
)
"""The same, and no row if other standbys are named than those of its next parameter."""
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
