"""Staged batches of which a commit has begun, in a home in PostgreSQL, as statements on one connection.

The bytes come first, under a number that nobody else has; then one row names it, if the writer has the term. So what a
server left that was lost in the middle is found by nobody, and is deleted after a day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.frames.frame_log import Term
from ...storage.home.port import JOURNAL_KEY

if TYPE_CHECKING:
    from .schema import Connection

_MINE = f"mine AS (SELECT FROM headwater.log WHERE key = '{JOURNAL_KEY}' AND term = %s AND nonce = %s FOR SHARE)"
_PUT = "INSERT INTO headwater.staged (upload, name, piece, content) VALUES (%b, %b, %b, %b)"
_BEGIN = f"""
WITH {_MINE} INSERT INTO headwater.batch (log, name, upload, manifest) SELECT %s, %s, %s, %s FROM mine
ON CONFLICT (log, name) DO NOTHING
"""
_BEGUN = "SELECT upload, manifest FROM headwater.batch WHERE log = %s AND name = %s"
_NAMES = "SELECT name FROM headwater.batch WHERE log = %s AND starts_with(name, %s)"
_PARTS = "SELECT DISTINCT name FROM headwater.staged WHERE upload = %s ORDER BY name"
_PIECE = "SELECT content FROM headwater.staged WHERE upload = %b AND name = %b AND piece = %b"
_FORGET = f"""
WITH {_MINE}, gone AS (DELETE FROM headwater.batch USING mine WHERE log = %s AND name = %s RETURNING upload)
DELETE FROM headwater.staged USING gone WHERE staged.upload = gone.upload
"""
_FORGET_LOG = """
WITH gone AS (DELETE FROM headwater.batch WHERE log = %s RETURNING upload)
DELETE FROM headwater.staged USING gone WHERE staged.upload = gone.upload
"""
_DROP_LEFT = """
DELETE FROM headwater.staged WHERE kept_at < clock_timestamp() - interval '1 day'
    AND upload NOT IN (SELECT upload FROM headwater.batch)
"""


def put(connection: Connection, upload: int, name: str, piece: int, content: bytes) -> None:
    """One piece of a part. Raises psycopg.Error, as all that follow do."""
    connection.execute(_PUT, (upload, name, piece, content))


def begin(connection: Connection, term: Term, key: str, name: str, upload: int, manifest: bytes) -> bool:
    """From now on that batch of the log is what was put under that number; False: the term is over, or it is begun."""
    connection.execute(_DROP_LEFT)
    return connection.execute(_BEGIN, (*term, key, name, upload, manifest)).rowcount > 0


def begun(connection: Connection, key: str, name: str) -> tuple[int, bytes] | None:
    """Under which number a batch is, and its manifest; None: no commit of it has begun."""
    row = connection.execute(_BEGUN, (key, name)).fetchone()
    return None if row is None else (row[0], bytes(row[1]))


def names(connection: Connection, key: str, prefix: str) -> list[str]:
    """Of the log's batches that are begun, those whose names begin so."""
    return [name for (name,) in connection.execute(_NAMES, (key, prefix))]


def parts(connection: Connection, upload: int) -> list[str]:
    """The names of what was put under that number."""
    return [name for (name,) in connection.execute(_PARTS, (upload,))]


def piece(connection: Connection, upload: int, name: str, number: int) -> bytes | None:
    """One piece of a part; None behind the last one."""
    row = connection.execute(_PIECE, (upload, name, number), binary=True).fetchone()
    return None if row is None else bytes(row[0])


def forget(connection: Connection, term: Term, key: str, name: str) -> None:
    """A batch is needed no more, as far as the term is not over."""
    connection.execute(_FORGET, (*term, key, name))


def forget_log(connection: Connection, key: str) -> None:
    """The log is deleted."""
    connection.execute(_FORGET_LOG, (key,))
