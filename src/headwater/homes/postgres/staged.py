"""SQL for staged batches whose commit has begun, in a home in PostgreSQL.

The bytes are stored first, under a unique upload number. Then one row refers to that number, if the writer has the
term. So the bytes of an interrupted upload are never found, and are deleted after a day.
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
    """Store one piece of a part. Raises psycopg.Error, as all functions below do."""
    connection.execute(_PUT, (upload, name, piece, content))


def begin(connection: Connection, term: Term, key: str, name: str, upload: int, manifest: bytes) -> bool:
    """Register the uploaded bytes as that batch; False if the term is over or the batch is registered already."""
    connection.execute(_DROP_LEFT)
    return connection.execute(_BEGIN, (*term, key, name, upload, manifest)).rowcount > 0


def begun(connection: Connection, key: str, name: str) -> tuple[int, bytes] | None:
    """The upload number and manifest of a batch; None if no commit of it has begun."""
    row = connection.execute(_BEGUN, (key, name)).fetchone()
    return None if row is None else (row[0], bytes(row[1]))


def names(connection: Connection, key: str, prefix: str) -> list[str]:
    """The names with this prefix of batches of the log whose commit has begun."""
    return [name for (name,) in connection.execute(_NAMES, (key, prefix))]


def parts(connection: Connection, upload: int) -> list[str]:
    """The names of the parts with that upload number."""
    return [name for (name,) in connection.execute(_PARTS, (upload,))]


def piece(connection: Connection, upload: int, name: str, number: int) -> bytes | None:
    """One piece of a part; None after the last one."""
    row = connection.execute(_PIECE, (upload, name, number), binary=True).fetchone()
    return None if row is None else bytes(row[0])


def forget(connection: Connection, term: Term, key: str, name: str) -> None:
    """Delete a batch, unless the term is over."""
    connection.execute(_FORGET, (*term, key, name))


def forget_log(connection: Connection, key: str) -> None:
    """Delete all batches of a log."""
    connection.execute(_FORGET_LOG, (key,))
