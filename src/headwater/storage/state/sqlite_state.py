"""The state store in SQLite: consumers, users, settings and other small durable data.

It uses WAL mode, so that another process (the command line) may read and write at the same time as the server. The
content is verified at opening (`storage.state.rows`, `storage.state.last_confirmed`), and each row again on every read.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ...core.errors import StateConflict, StorageCorrupted, StorageUnavailable
from ...core.state import USER_KIND, StateEntry, StateStore
from ..disk.system import make_file, tighten
from .files import Proven, begin, files_of, prove, translated, translating, witness_path
from .last_confirmed import REMEDY, LastConfirmed, make_witness
from .rows import (
    GUARDED_VERSION,
    SCHEMA_VERSION,
    Entry,
    Summary,
    damage_of,
    examine,
    guard_of,
    is_sound,
    journal_of,
    read_only,
    schema_version,
    summary_of,
)

logger = logging.getLogger("headwater.storage")

_PUT = """
INSERT INTO entries VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, version = excluded.version, guard = excluded.guard
"""
_DELETE = "DELETE FROM entries WHERE kind = ? AND key = ?"
_SUM_UP = """
UPDATE summary SET serial = ?, digest = ?, had_users = ?, crc = ?
WHERE id = 1 AND serial = ? AND digest = ? AND had_users = ? AND crc = ?
"""
"""By its key, because a search for the row would cost more than the change."""
_FIND = "SELECT value, version, guard FROM entries WHERE kind = ? AND key = ?"
_ITEMS = """
SELECT kind, key, value, version, guard FROM entries WHERE kind = ? AND substr(key, 1, ?) = ? ORDER BY key
"""
_AFTER = """
SELECT kind, key, value, version, guard FROM entries WHERE (kind, key) > (?, ?) ORDER BY kind, key LIMIT ?
"""
_CHECKPOINT_PAGES = 2000
"""Twice SQLite's default: each change writes two pages, its own and the summary's."""
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _safely(method: Callable[Concatenate[SqliteState, _P], _R]) -> Callable[Concatenate[SqliteState, _P], _R]:
    """A method of the state. One runs at a time, and errors of SQLite and the system become errors of the core."""

    @wraps(method)
    def safe(self: SqliteState, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self._lock:
            if self._is_closed:
                raise StorageUnavailable(f"{self.path}: the state is closed")
            try:
                return method(self, *args, **kwargs)
            except (sqlite3.Error, OSError) as error:
                raise translated(self.path, error) from None

    return safe


class SqliteState(StateStore):
    """A StateStore in one SQLite file, with its witness next to it. Safe to call from any thread."""

    def __init__(self, path: Path, *, has_journal: bool = False, proven: Proven | None = None) -> None:
        """Open it, create it, or upgrade a state of 0.1.0.

        `has_journal`: it may lack the last confirmed changes, because it follows a journal. `proven`: the result of
        `prove`.
        Raises StorageUnavailable, StorageCorrupted: nothing was changed.
        """
        self.path = path
        self._lock = threading.Lock()
        self._is_durable: bool | None = None
        self._summed_up: Summary | None = None
        """The summary written by the last change; still current if no other process has changed anything."""
        self._has_changed = self._is_closed = False
        version = (proven or prove(path, has_journal=has_journal)).version
        with translating(path), ExitStack() as opened:  # an unusable one is not left open
            make_file(path)  # before SQLite creates it with only the umask; its other files get the mode of this one
            for each in files_of(path):
                tighten(each)
            self._connection = sqlite3.connect(
                path.absolute(), check_same_thread=False, isolation_level=None, timeout=10
            )
            opened.callback(self._connection.close)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            if version < GUARDED_VERSION:
                begin(self._connection, witness_path(path))
            self._cursor = self._connection.cursor()
            self._last_confirmed = LastConfirmed(witness_path(path))
            opened.callback(self._last_confirmed.close)
            if version < GUARDED_VERSION:
                self.flush()
            opened.pop_all()

    @_safely
    def get(self, kind: str, key: str) -> StateEntry | None:
        """See StateStore. This and the methods below raise StorageCorrupted, StorageUnavailable."""
        value, version, _ = self._find(kind, key)
        return StateEntry(value, version) if version else None

    @_safely
    def put(
        self, kind: str, key: str, value: bytes, expected_version: int | None = None, *, is_durable: bool = True
    ) -> int:
        with _Change(self, is_durable):
            version, old_guard = self._expect(kind, key, expected_version)
            guard = guard_of(kind, key, value, version + 1)
            self._cursor.execute(_PUT, (kind, key, value, version + 1, guard))
            self._sum_up(guard - old_guard, had_users=1 if kind == USER_KIND else None)
            return version + 1

    @_safely
    def delete(self, kind: str, key: str, expected_version: int | None = None) -> bool:
        with _Change(self):
            version, old_guard = self._expect(kind, key, expected_version)
            if version:
                self._cursor.execute(_DELETE, (kind, key))
                self._sum_up(-old_guard)
            return version > 0

    @_safely
    def delete_all(self, kind: str, keys: Iterable[str]) -> int:
        with _Change(self):
            guards = []
            for key in keys:
                version, guard = self._expect(kind, key, None)
                if version:
                    self._cursor.execute(_DELETE, (kind, key))
                    guards.append(guard)
            if guards:
                self._sum_up(-sum(guards))
            return len(guards)

    @_safely
    def items(self, kind: str, prefix: str = "") -> Iterator[tuple[str, StateEntry]]:
        rows = self._cursor.execute(_ITEMS, (kind, len(prefix), prefix)).fetchall()
        for row in rows:
            if not is_sound(*row):
                raise StorageCorrupted(str(self.path), damage_of(row[0], row[1]), REMEDY)
        return iter([(row[1], StateEntry(row[2], row[3])) for row in rows])

    @_safely
    def count(self) -> int:
        """The number of entries."""
        (count,) = self._connection.execute("SELECT count(*) FROM entries").fetchone()
        return int(count)

    @_safely
    def had_users(self) -> bool:
        return bool(self._summary().had_users)

    @_safely
    def keep_had_users(self, had_users: bool) -> None:
        with _Change(self):
            self._sum_up(0, had_users=int(had_users))

    @property
    def serial(self) -> int:
        """The number of the last change. Raises StorageCorrupted, StorageUnavailable."""
        return self._summed().serial

    @property
    def digest(self) -> int:
        """The digest of all entries: see `rows`. Raises StorageCorrupted, StorageUnavailable."""
        return self._summed().digest

    @property
    def file_bytes(self) -> int:
        """The bytes of its main file, without the WAL."""
        return self.path.stat().st_size

    @_safely
    def after(self, kind: str, key: str, *, count: int, size: int) -> list[Entry]:
        """The entries after that one, by kind and key: at most `count`, with values of about `size` bytes together."""
        found: list[Entry] = []
        for row in self._cursor.execute(_AFTER, (kind, key, count)):
            if not is_sound(*row):
                raise StorageCorrupted(str(self.path), damage_of(row[0], row[1]), REMEDY)
            found.append(row[:4])
            size -= len(row[2])
            if size <= 0:
                break
        return found

    @_safely
    def apply(self, entries: Iterable[Entry], serial: int, had_users: bool, *, is_durable: bool = False) -> None:
        """Apply these entries as one change with that number; entries of version 0 are deleted.

        The number comes from a journal, which already has the change, so the witness is not updated.
        """
        with _Change(self, is_durable, confirms=False):
            change = 0
            for kind, key, value, version in entries:
                _, known, old_guard = self._find(kind, key)
                if version:
                    guard = guard_of(kind, key, value, version)
                    self._cursor.execute(_PUT, (kind, key, value, version, guard))
                    change += guard - old_guard
                elif known:
                    self._cursor.execute(_DELETE, (kind, key))
                    change -= old_guard
            last = self._summary()
            self._summed_up = summary_of(serial, last.digest + change, int(had_users))
            self._cursor.execute(_SUM_UP, (*self._summed_up, *last))

    @_safely
    def belong_to(self, journal: int) -> None:
        """Make it the image of that journal (32 bits, signed; 0: none), durably with the next change.

        Versions without journals do not use it.
        """
        if schema_version(self._connection) < SCHEMA_VERSION:
            self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        if journal_of(self._connection) != journal:
            self._connection.execute(f"PRAGMA application_id = {journal}")

    @_safely
    def confirm(self, serial: int, had_users: bool) -> None:
        """Record the change with that number as durable in a journal."""
        self._tell(serial, had_users)

    @_safely
    def flush(self) -> None:
        """See StateStore. A durable transaction syncs the whole WAL, with all earlier ones."""
        with _Change(self):
            self._sum_up(0)

    @_safely
    def copy_to(self, path: Path) -> None:
        """Make a consistent, verified copy in another file, with its own witness, while others continue."""
        copy_state(self.path, path)

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._is_closed = True
            self._connection.close()
            self._last_confirmed.close()

    def _find(self, kind: str, key: str) -> tuple[bytes, int, int]:
        """Value, version and guard; zeros if there is no such entry."""
        row: tuple[bytes, int, int] | None = self._cursor.execute(_FIND, (kind, key)).fetchone()
        if row is None:
            return b"", 0, 0
        if not is_sound(kind, key, *row):
            raise StorageCorrupted(str(self.path), damage_of(kind, key), REMEDY)
        return row

    def _expect(self, kind: str, key: str, expected_version: int | None) -> tuple[int, int]:
        _, version, guard = self._find(kind, key)
        if expected_version is not None and expected_version != version:
            raise StateConflict(kind, key, expected_version, version)
        return version, guard

    def _summary(self) -> Summary:
        row = self._cursor.execute("SELECT serial, digest, had_users, crc FROM summary").fetchone()
        if not row or not (summary := Summary(*row)).is_sound:
            raise StorageCorrupted(str(self.path), "the summary is damaged", REMEDY)
        return summary

    def _sum_up(self, change: int, had_users: int | None = None) -> None:
        """End a change: write the next serial number and the updated digest."""
        last, self._has_changed = self._summed_up, True
        if last is None or not self._follow(last, change, had_users):  # another process has changed something
            self._follow(self._summary(), change, had_users)

    def _follow(self, last: Summary, change: int, had_users: int | None) -> bool:
        serial, digest, had, _ = last
        self._summed_up = summary_of(serial + 1, digest + change, had if had_users is None else had_users)
        return self._cursor.execute(_SUM_UP, (*self._summed_up, *last)).rowcount == 1

    @_safely
    def _summed(self) -> Summary:
        return self._summed_up or self._summary()

    def _tell(self, serial: int, had_users: bool) -> None:
        """Record the confirmed change in the witness."""
        try:
            self._last_confirmed.tell(serial, had_users)
        except OSError as error:  # the change is durable anyway, and the next one is recorded too
            logger.error("%s: %s; a loss of state could go unnoticed", self._last_confirmed.path, error.strerror)


class _Change:
    """BEGIN IMMEDIATE ... COMMIT, so that its reads still hold when it writes; then updates the witness."""

    def __init__(self, state: SqliteState, is_durable: bool = True, confirms: bool = True) -> None:
        self._state, self._is_durable, self._confirms = state, is_durable, confirms

    def __enter__(self) -> None:
        state = self._state
        if self._is_durable is not state._is_durable:
            state._cursor.execute(f"PRAGMA synchronous = {'FULL' if self._is_durable else 'NORMAL'}")
            state._is_durable = self._is_durable
        state._cursor.execute("BEGIN IMMEDIATE")
        state._has_changed = False

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        state = self._state
        try:
            if not kind:
                state._cursor.execute("COMMIT")
        finally:
            if state._connection.in_transaction:  # if space runs out, SQLite has ended it itself
                state._cursor.execute("ROLLBACK")
                kind = kind or BaseException
            if kind:
                state._summed_up = None
        if self._is_durable and self._confirms and state._has_changed and not kind:
            assert state._summed_up is not None
            state._tell(state._summed_up.serial, bool(state._summed_up.had_users))


def copy_state(source: Path, target: Path, *, has_journal: bool = False) -> None:
    """Make a consistent, verified copy in another file, with its own witness, while others continue.

    `has_journal`: the copy may lack the last confirmed changes, as its source may.
    The source stays unchanged, even one of 0.1.0; the copy has the newest schema. Raises StorageUnavailable,
    StorageCorrupted.
    """
    prove(source, has_journal=has_journal)
    with translating(source):
        make_file(target)
        with (
            closing(read_only(source)) as original,
            closing(sqlite3.connect(target.absolute(), isolation_level=None)) as copy,
        ):
            original.backup(copy)
            if schema_version(copy) >= GUARDED_VERSION:
                summary = examine(copy).summary
                make_witness(witness_path(target), summary.serial, bool(summary.had_users))
    SqliteState(target).close()
