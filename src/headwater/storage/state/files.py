"""The files of the state: they are verified before use, created, or upgraded.

A read-only connection verifies them first, so that a refused state stays unchanged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from ...core.errors import StorageCorrupted
from ...core.state import USER_KIND
from ...formats.newer import WrittenByNewer
from ..disk.system import make_file, refusal_of
from . import rows
from .last_confirmed import REMEDY, make_witness, read_witness

STATE_NAME = "state.sqlite"
"""The file, in the data directory."""
_CANNOT_USE = "the server's state cannot be read or written"
PLAIN_SCHEMA_VERSION = 1
"""The schema of 0.1.0: no guards and no witness."""
ACCEPTED = "state.accepted"
"""The directory of a new state that will replace a damaged one: see `loss`."""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT)
"""SQLITE_ERROR is a missing table or column: all statements are our own, so the schema is at fault."""


SHARED_MEMORY = ".sqlite-shm"
"""The suffix of SQLite's shared-memory file, which has no content of its own."""


def witness_path(path: Path) -> Path:
    """The path of a state's witness."""
    return path.with_suffix(".witness")


def changes_path(path: Path) -> Path:
    """The path of a state's WAL, where SQLite stores changes before it writes them to its main file."""
    return Path(f"{path}-wal")


def journal_path(path: Path) -> Path:
    """The path of SQLite's rollback journal, used only during the first start, before the state has its WAL."""
    return Path(f"{path}-journal")


def files_of(path: Path) -> tuple[Path, ...]:
    """All files of a state: SQLite's file, its three companions, and the witness."""
    return path, changes_path(path), Path(f"{path}-shm"), journal_path(path), witness_path(path)


class Proven(NamedTuple):
    """The result of a successful verification."""

    version: int
    """The version of the schema; 0 if there is no state yet."""
    serial: int = 0
    """The serial number of the last change; 0 in a schema without serial numbers."""
    journal: int = 0
    """The journal whose image it is; 0 if there is none."""


def prove(path: Path, *, has_journal: bool = False) -> Proven:
    """Verify that the state has everything confirmed.

    `has_journal`: it may lack the last confirmed changes.
    Changes nothing, except after an interrupted first start. Raises WrittenByNewer, StorageCorrupted.
    """
    witness = witness_path(path)
    confirmed = read_witness(witness).serial if witness.exists() else 0  # before the state, which others may change
    if not path.exists() or not path.stat().st_size:
        if confirmed and not has_journal:
            raise StorageCorrupted(str(path), f"it is missing, but its change {confirmed} was confirmed", REMEDY)
        return Proven(0)
    _roll_back(path)
    with translating(path), closing(rows.read_only(path)) as connection:
        version = rows.schema_version(connection)
        if version > rows.SCHEMA_VERSION:
            raise WrittenByNewer(path, f"schema {version}; this version supports up to {rows.SCHEMA_VERSION}")
        if version >= rows.GUARDED_VERSION:
            serial = _prove_guarded(path, connection, has_journal)
            return Proven(version, serial, rows.journal_of(connection))
        if confirmed:
            problem = (
                f"it has schema {version}, but change {confirmed} with a newer schema was confirmed: everything is lost"
            )
            raise StorageCorrupted(str(path), problem, REMEDY)
        return Proven(_prove_plain(path, connection))


def _roll_back(path: Path) -> None:
    """Let SQLite roll back a first start interrupted by a power cut, which a reader cannot do."""
    if journal_path(path).exists():
        with (
            translating(path),
            closing(sqlite3.connect(path.absolute(), isolation_level=None, timeout=10)) as connection,
        ):
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _prove_guarded(path: Path, connection: sqlite3.Connection, has_journal: bool) -> int:
    confirmed = read_witness(witness_path(path)).serial
    found = rows.examine(connection)
    if found.problems:
        raise StorageCorrupted(str(path), "; ".join(found.problems), REMEDY)
    if found.summary.serial < confirmed and not has_journal:
        problem = (
            f"it ends with change {found.summary.serial}, but change {confirmed} was confirmed: some changes are lost"
        )
        raise StorageCorrupted(str(path), problem, REMEDY)
    return found.summary.serial


def _prove_plain(path: Path, connection: sqlite3.Connection) -> int:
    problems = [str(problem) for (problem,) in connection.execute("PRAGMA quick_check")]
    if problems != ["ok"]:
        raise StorageCorrupted(str(path), "; ".join(problems), REMEDY)
    tables = _tables(connection)
    if tables not in ([], ["entry"]):
        raise StorageCorrupted(str(path), f"tables {', '.join(tables)} exist, but there is no schema version", REMEDY)
    return PLAIN_SCHEMA_VERSION if tables else 0


def is_plain(connection: sqlite3.Connection) -> bool:
    """Whether it is a state written by 0.1.0. Raises sqlite3.Error."""
    return _tables(connection) == ["entry"]


def plain_entries(connection: sqlite3.Connection) -> list[rows.Entry]:
    """All entries of a state of 0.1.0. Raises sqlite3.Error."""
    return connection.execute("SELECT kind, key, value, version FROM entry").fetchall()


def begin(connection: sqlite3.Connection, witness: Path) -> None:
    """Create the tables atomically, with the entries of 0.1.0 if there are any."""
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if "entries" not in _tables(connection):  # otherwise another process has done it
            plain = plain_entries(connection) if is_plain(connection) else []
            connection.execute("DROP TABLE IF EXISTS entry")
            had_users = any(row[0] == USER_KIND for row in plain)
            _fill(connection, plain, 0, had_users)
            make_witness(witness, 0, had_users)  # before the first change that it must record
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _fill(connection: sqlite3.Connection, entries: Iterable[rows.Entry], serial: int, had_users: bool) -> None:
    kept = [(*entry, rows.guard_of(*entry)) for entry in entries]
    summary = rows.summary_of(serial, sum(row[4] for row in kept), int(had_users))
    connection.execute(rows.ENTRIES)
    connection.execute(rows.SUMMARY)
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", kept)
    connection.execute("INSERT INTO summary VALUES (1, ?, ?, ?, ?)", summary)
    connection.execute(f"PRAGMA user_version = {rows.GUARDED_VERSION}")


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]


def make_state(path: Path, entries: Iterable[rows.Entry], serial: int, had_users: bool) -> None:
    """Durably create a new state of these entries, and its witness. Raises StorageUnavailable."""
    with translating(path):
        make_file(path)
        with closing(sqlite3.connect(path.absolute(), isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            _fill(connection, entries, serial, had_users)
            connection.execute("COMMIT")
        make_witness(witness_path(path), serial, had_users)


@contextmanager
def translating(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the system about a state into errors of the core."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise translated(path, error) from None
    except UnicodeDecodeError:  # in the message of an error of SQLite, which quotes what is damaged
        raise StorageCorrupted(str(path), "the database is malformed", REMEDY) from None


def translated(path: Path, error: sqlite3.Error | OSError) -> Exception:
    """The error of the core for an error of SQLite or the system about a state."""
    if isinstance(error, sqlite3.ProgrammingError):  # closed: the caller's mistake
        return error
    code = sqlite3.SQLITE_OK if isinstance(error, OSError) else getattr(error, "sqlite_errorcode", None)
    if code is None or code & 0xFF in _DAMAGE:  # none: a text that is not UTF-8
        return StorageCorrupted(str(path), str(error), REMEDY)
    return refusal_of(error, path, _CANNOT_USE)
