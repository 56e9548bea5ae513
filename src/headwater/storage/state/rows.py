"""The rows of the state in SQLite, and their guards: a checksum of each row, and one of all rows.

SQLite has no checksums of its own. So each row has a guard, 64 bits of two CRCs over its content, checked on every
read; a corrupted value is reported, never used. A summary row is replaced by each transaction: its `digest` is the sum
of the guards of all rows, which detects vanished or resurrected rows; its `serial` counts the transactions, for
`storage.state.last_confirmed`. Any process can update the sum in its transaction, from the guards that it removes and
adds.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import google_crc32c

GUARDED_VERSION = 2
"""From this version on, rows have guards."""
SCHEMA_VERSION = 3
"""From this version on, the state is the image of a journal, if there is one: older code must not write it."""
ENTRIES = (
    "CREATE TABLE entries (kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, "
    "guard INTEGER NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID"
)
SUMMARY = (
    "CREATE TABLE summary (id INTEGER PRIMARY KEY, serial INTEGER NOT NULL, digest INTEGER NOT NULL, "
    "had_users INTEGER NOT NULL, crc INTEGER NOT NULL)"
)
PROBLEMS_MAX = 20
_ROW = struct.Struct("<IIQ")
_SUMMARY = struct.Struct("<qqq")
_crc32c: Callable[[bytes], int] = google_crc32c.value
_HALF, _MODULUS = 2**63, 2**64


Entry = tuple[str, str, bytes, int]
"""Kind, key, value, version."""


class Summary(NamedTuple):
    """The stored summary of all rows."""

    serial: int
    """The number of transactions."""
    digest: int
    had_users: int
    """0 or 1."""
    crc: int

    @property
    def is_sound(self) -> bool:
        """Whether it is intact. In a damaged file any field may have any type."""
        return all(isinstance(value, int) for value in self) and self == summary_of(*self[:3])


class Examined(NamedTuple):
    """The result of examining a state. If there are problems, none of it may be used."""

    summary: Summary
    rows: int
    problems: list[str]


def summary_of(serial: int, digest: int, had_users: int) -> Summary:
    """The summary with these values. Numbers are taken modulo 2**64, signed."""
    digest = (digest + _HALF) % _MODULUS - _HALF
    return Summary(serial, digest, had_users, _crc32c(_SUMMARY.pack(serial, digest, had_users)))


def guard_of(kind: str, key: str, value: bytes, version: int) -> int:
    """The guard of a row, signed: CRC-32 above CRC32C of its four fields and their lengths."""
    name, place = kind.encode(), key.encode()
    content = _ROW.pack(len(name), len(place), version) + name + place + value
    return ((crc32(content) << 32) | _crc32c(content)) - _HALF


def is_sound(kind: str, key: str, value: bytes, version: int, guard: int) -> bool:
    """Whether a row is intact. In a damaged file any field may have any type."""
    try:
        return version > 0 and guard == guard_of(kind, key, value, version)
    except (AttributeError, TypeError, UnicodeEncodeError, struct.error):
        return False


def schema_version(connection: sqlite3.Connection) -> int:
    """PRAGMA user_version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def journal_of(connection: sqlite3.Connection) -> int:
    """PRAGMA application_id: the journal whose image it is; 0 if there is none."""
    (journal,) = connection.execute("PRAGMA application_id").fetchone()
    return int(journal)


def read_only(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, not even on close, and reads texts whatever their bytes."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=10)
    connection.text_factory = _text
    return connection


def examine(connection: sqlite3.Connection) -> Examined:
    """Check everything in one snapshot: pages, schema, every row and the summary. Raises sqlite3.Error."""
    connection.execute("BEGIN")
    try:
        problems = [str(problem) for (problem,) in connection.execute(f"PRAGMA quick_check({PROBLEMS_MAX})")]
        if problems != ["ok"]:
            return Examined(_NOTHING, 0, problems)
        schema = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema ORDER BY name")]
        if schema != [ENTRIES, SUMMARY]:
            return Examined(_NOTHING, 0, ["the tables are not declared as expected"])
        return _examine_rows(connection)
    finally:
        connection.execute("ROLLBACK")


def all_rows(connection: sqlite3.Connection, order: str = "ASC") -> Iterable[tuple[str, str, bytes, int, int]]:
    """Every row, sound or not, in that order."""
    return connection.execute(
        f"SELECT kind, key, value, version, guard FROM entries ORDER BY kind {order}, key {order}"
    )


def damage_of(kind: object, key: object) -> str:
    """The description of an unsound row."""
    return f"the entry of kind {kind!r} and key {key!r} is not what was stored"


_NOTHING = summary_of(0, 0, 0)


def _examine_rows(connection: sqlite3.Connection) -> Examined:
    problems: list[str] = []
    count = total = 0
    for row in all_rows(connection):
        count += 1
        if is_sound(*row):
            total += row[4]
        elif len(problems) < PROBLEMS_MAX:
            problems.append(damage_of(row[0], row[1]))
    found = [Summary(*row) for row in connection.execute("SELECT serial, digest, had_users, crc FROM summary")]
    if len(found) != 1 or not found[0].is_sound:
        return Examined(_NOTHING, count, [*problems, "the summary is damaged"])
    if not problems and found[0].digest != summary_of(0, total, 0).digest:
        problems.append("some entries are missing or outdated: the rows are not the ones last written")
    return Examined(found[0], count, problems)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")
