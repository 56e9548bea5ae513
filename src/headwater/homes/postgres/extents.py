"""The size of a log in a home in PostgreSQL, counted from the rows of its frames and not taken from the head."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...storage.frames.layout import COUNT_AT

if TYPE_CHECKING:
    from .schema import Connection

COUNTED_FRAMES = 20_000
"""The most frames that one statement counts, so that each statement is short."""
_COUNT = f"""
SELECT count(*), coalesce(sum(octet_length(content)), 0)::bigint, coalesce(sum(
    get_byte(lead, 0) + (get_byte(lead, 1) << 8) + (get_byte(lead, 2) << 16) + (get_byte(lead, 3)::bigint << 24)
), 0)::bigint, max(last)
FROM (
    SELECT last, content, substring(content FROM {COUNT_AT + 1} FOR 4) AS lead FROM headwater.frame
    WHERE log = (SELECT id FROM headwater.log WHERE key = %s) AND last > %s ORDER BY last LIMIT %s
) AS page
"""


class Extent(NamedTuple):
    """Frames, bytes and events of a part of a log."""

    frames: int
    bytes: int
    events: int

    def plus(self, frames: int, size: int, events: int) -> Extent:
        """This extent with the given amounts added."""
        return Extent(self.frames + frames, self.bytes + size, self.events + events)


NOTHING = Extent(0, 0, 0)


def counted(connection: Connection, key: str, after: int) -> tuple[Extent, int]:
    """The extent of some frames that end above `after`, and the last number counted; 0 if there are none.

    Raises psycopg.Error.
    """
    [[frames, size, events, last]] = connection.execute(_COUNT, (key, after, COUNTED_FRAMES)).fetchall()
    return Extent(frames, size, events), last or 0
