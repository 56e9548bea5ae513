"""The state store in SQLite: consumers, users, settings, whatever is small and must be remembered.

WAL, so that another process (the command line) may read and write beside the server.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from ..core.errors import StateConflict, StorageCorrupted, StorageUnavailable
from ..core.state import StateEntry
from .refusals import refusing

SCHEMA_VERSION = 1
_CANNOT_WRITE = "what the server must remember cannot be written down"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
    kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID
"""
_PUT = """
INSERT INTO entry VALUES (?, ?, ?, ?)
ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, version = excluded.version
"""


class SqliteState:
    """A StateStore in one SQLite file. Safe to call from any thread."""

    def __init__(self, path: Path) -> None:
        """Open it, or make it. Raises StorageUnavailable, StorageCorrupted."""
        self._path = path
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
            with ExitStack() as opened:  # what cannot be used is not left open
                opened.callback(self._connection.close)
                self._connection.execute("PRAGMA journal_mode = WAL")
                (version,) = self._connection.execute("PRAGMA user_version").fetchone()
                if version > SCHEMA_VERSION:
                    raise StorageUnavailable(f"{path}: schema {version} is newer; use a newer headwater")
                self._connection.execute(_SCHEMA)
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                opened.pop_all()
        except sqlite3.OperationalError as error:
            raise StorageUnavailable(f"{path}: {error}; check that the directory may be written") from None
        except sqlite3.DatabaseError as error:
            raise StorageCorrupted(str(path), str(error), "restore a backup (headwater restore)") from None

    def get(self, kind: str, key: str) -> StateEntry | None:
        """See StateStore."""
        with self._lock:
            return self._get(kind, key)

    def put(
        self, kind: str, key: str, value: bytes, expected_version: int | None = None, *, is_durable: bool = True
    ) -> int:
        """See StateStore."""
        with self._lock, refusing(self._path, _CANNOT_WRITE), self._transaction(is_durable):
            version = self._expect(kind, key, expected_version) + 1
            self._connection.execute(_PUT, (kind, key, value, version))
            return version

    def delete(self, kind: str, key: str, expected_version: int | None = None) -> bool:
        """See StateStore."""
        with self._lock, refusing(self._path, _CANNOT_WRITE), self._transaction():
            self._expect(kind, key, expected_version)
            found = self._connection.execute("DELETE FROM entry WHERE kind = ? AND key = ?", (kind, key))
            return found.rowcount > 0

    def items(self, kind: str, prefix: str = "") -> Iterator[tuple[str, StateEntry]]:
        """See StateStore."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT key, value, version FROM entry WHERE kind = ? AND substr(key, 1, ?) = ? ORDER BY key",
                (kind, len(prefix), prefix),
            ).fetchall()
        return ((key, StateEntry(value, version)) for key, value, version in rows)

    def changes(self) -> int:
        """A number that moves when another process has changed something."""
        with self._lock:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            return int(version)

    def flush(self) -> None:
        """See StateStore. A durable transaction syncs the whole WAL, and so what came before it."""
        self.put("flush", "", b"")

    def copy_to(self, path: Path) -> None:
        """A consistent copy in another file, while others go on."""
        with self._lock, closing(sqlite3.connect(path)) as target:
            self._connection.backup(target)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _transaction(self, is_durable: bool = True) -> _Transaction:
        return _Transaction(self._connection, is_durable)

    def _get(self, kind: str, key: str) -> StateEntry | None:
        row = self._connection.execute(
            "SELECT value, version FROM entry WHERE kind = ? AND key = ?", (kind, key)
        ).fetchone()
        return StateEntry(*row) if row else None

    def _expect(self, kind: str, key: str, expected_version: int | None) -> int:
        entry = self._get(kind, key)
        version = entry.version if entry else 0
        if expected_version is not None and expected_version != version:
            raise StateConflict(kind, key, expected_version, version)
        return version


class _Transaction:
    """BEGIN IMMEDIATE ... COMMIT, so that a read in it still holds when it writes."""

    def __init__(self, connection: sqlite3.Connection, is_durable: bool) -> None:
        self._connection, self._is_durable = connection, is_durable

    def __enter__(self) -> None:
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if self._is_durable else 'NORMAL'}")
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._connection.execute("COMMIT")
                return
            except sqlite3.Error:
                self._roll_back()
                raise
        self._roll_back()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:  # SQLite has done so itself where the disk is full, say
            self._connection.execute("ROLLBACK")
