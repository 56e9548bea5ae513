"""Accepts the loss of a damaged state: rebuilds it from the sound entries.

It can be interrupted at any point and repeated. The new state is made in a separate directory, which is renamed when
complete. Until then the state is unchanged, and a repetition starts over. From then on, the new state replaces the old
one in idempotent steps. During these steps the state cannot be opened (`data_directory.refuse_missing`).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from ...core.errors import EventLogError, StorageCorrupted
from ...formats.decoders import json_decoder
from ...formats.newer import WrittenByNewer
from ..catalog.directories import EVERY_LOG, FLOOR_KIND, LOGS, beyond
from ..disk.system import make_directory, refusing, sync_directory, write_whole
from ..segments.meta import META_NAME, read_meta
from .check import copy_files
from .data_directory import lock_directory, no_data, refuse_foreign
from .files import ACCEPTED, STATE_NAME, files_of, is_plain, make_state, plain_entries, witness_path
from .journal import JOURNAL, EntryRecord, salvaged
from .journal_snapshot import entry_of
from .last_confirmed import read_witness
from .rows import SCHEMA_VERSION, Entry, Summary, all_rows, damage_of, is_sound, read_only, schema_version
from .sqlite_state import SqliteState

UNFINISHED = "state.new"
_OLD, _TOLD = "old", "told.json"
"""The names, in the directory of the new state, of the files of the old one and of the report."""
_DONE = "accepted"
"""The name of that directory next to the old files when only the report is left in it."""


class _Told(msgspec.Struct):
    aside: str
    """The name of the directory with the old files."""
    given_up: list[str]


def accept_state_loss(directory: Path) -> list[str]:
    """Rebuild the state from all intact entries. Returns a list of what is given up. The old files are kept next to it.

    The fact that there were users is kept: without a user, every request is refused. New logs do not reissue numbers
    of a deleted log with the same name: they begin above all of them, as after a restore.
    If an earlier call was interrupted, it is completed. Raises StorageUnavailable (no data directory, or
    WrittenByNewer: nothing of it is lost), DiskFull: the state is unchanged, or this must be repeated.
    """
    refuse_foreign(directory)
    if not any((directory / name).exists() for name in (STATE_NAME, JOURNAL, LOGS, ACCEPTED)):
        raise no_data(directory)
    with closing(lock_directory(directory)), refusing(directory, "cannot create a new state"):
        if not (directory / ACCEPTED).exists():
            shutil.rmtree(directory / UNFINISHED, ignore_errors=True)  # from an interrupted start
            try:
                _prepare(directory, directory / UNFINISHED)
                os.rename(directory / UNFINISHED, directory / ACCEPTED)
            except BaseException:
                shutil.rmtree(directory / UNFINISHED, ignore_errors=True)
                raise
            sync_directory(directory)
        told = _put_in_place(directory, directory / ACCEPTED)
        SqliteState(directory / STATE_NAME).close()
        return [*told.given_up, f"everything else was lost; the old files are in {directory / told.aside}"]


def _prepare(directory: Path, new: Path) -> None:
    """Durably make the new state, with the files of the old one and the report."""
    path, old = directory / STATE_NAME, new / _OLD
    make_directory(old)
    copy_files(path, old / STATE_NAME)
    for each in old.rglob("*"):
        if each.is_file():
            _sync(each)
        else:
            sync_directory(each)
    sync_directory(old)
    entries, given_up = _salvaged(old)
    entries = [*_without(entries, FLOOR_KIND, EVERY_LOG), _floor(directory, entries)]
    serial, had_users = _confirmed(path)
    make_state(new / STATE_NAME, entries, serial + 1, had_users)
    told = _Told(f"state.lost-{time.time_ns() // 1_000_000}", given_up)
    write_whole(new / _TOLD, msgspec.json.encode(told))


def _put_in_place(directory: Path, new: Path) -> _Told:
    """Replace the state by the new one, or resume doing so."""
    path = directory / STATE_NAME
    told = json_decoder(_Told).decode((new / _TOLD).read_bytes())
    if (new / _OLD).exists():
        os.rename(new / _OLD, directory / told.aside)
        sync_directory(directory)  # before any part of the old state is removed
    if (new / STATE_NAME).exists():
        shutil.rmtree(directory / JOURNAL, ignore_errors=True)  # the next start makes one from the new state
        for old in files_of(path)[1:4]:  # they belong to the old file
            old.unlink(missing_ok=True)
        sync_directory(directory)
        os.replace(new / STATE_NAME, path)
    if witness_path(new / STATE_NAME).exists():
        os.replace(witness_path(new / STATE_NAME), witness_path(path))
    sync_directory(directory)
    os.rename(new, directory / told.aside / _DONE)  # a single step: after it, everything is done
    sync_directory(directory)
    return told


def _sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _salvaged(directory: Path) -> tuple[list[Entry], list[str]]:
    """All sound entries, and descriptions of the others: from the image first, then from the journal."""
    found, lost, serial, hurt = _salvaged_rows(directory / STATE_NAME)
    if (directory / JOURNAL).exists():
        written, problems = salvaged(directory / JOURNAL)
        lost += problems
        for number, record in written:
            if not isinstance(record, EntryRecord):
                continue
            if serial is None or number > serial or (record.kind, record.key) in hurt:
                if record.version:
                    found[record.kind, record.key] = entry_of(record)
                else:
                    found.pop((record.kind, record.key), None)
        end = max(serial or 0, written[-1].number if written else 0)
        confirmed, _ = _confirmed(directory / STATE_NAME)
        if end < confirmed:
            lost.append(f"changes {end + 1} to {confirmed} of the state")
    return list(found.values()), lost


def _salvaged_rows(path: Path) -> tuple[dict[tuple[str, str], Entry], list[str], int | None, set[tuple[str, str]]]:
    """The sound rows, descriptions of the others, the last change in them, and the names of the unsound ones.

    The last change: None if unknown. Raises WrittenByNewer.
    """
    found: dict[tuple[str, str], Entry] = {}
    hurt: set[tuple[str, str]] = set()
    lost: dict[str, None] = {}
    if not path.exists():
        return {}, [f"{STATE_NAME}, which is missing"], None, hurt
    with closing(read_only(path)) as connection:
        for order in ("ASC", "DESC"):  # rows unreachable from one end may be reachable from the other
            try:
                if (version := schema_version(connection)) > SCHEMA_VERSION:
                    raise WrittenByNewer(path, f"schema {version}; this version supports up to {SCHEMA_VERSION}")
                if is_plain(connection):
                    return {entry[:2]: entry for entry in plain_entries(connection)}, [], None, hurt
                for row in all_rows(connection, order):
                    if is_sound(*row):
                        found[row[0], row[1]] = row[:4]
                    else:
                        lost[damage_of(row[0], row[1])] = None
                        hurt.add((row[0], row[1]))
            except sqlite3.Error as error:
                lost[f"{STATE_NAME}: {error}"] = None
        return found, list(lost), _serial(connection), hurt


def _serial(connection: sqlite3.Connection) -> int | None:
    try:
        rows = connection.execute("SELECT serial, digest, had_users, crc FROM summary").fetchall()
    except sqlite3.Error:
        return None
    return next((row[0] for row in rows if Summary(*row).is_sound), None)


def _floor(directory: Path, entries: Iterable[Entry]) -> Entry:
    """The number above which each new log begins: the ends of forgotten logs are unknown."""
    highest = 0
    for kind, _, value, _ in entries:
        if kind == FLOOR_KIND and value.isdigit():
            highest = max(highest, int(value))
    for each in (directory / LOGS).glob(f"*/{META_NAME}"):
        with suppress(EventLogError, OSError):  # opening it raises the error
            highest = max(highest, read_meta(each.parent).floor)
    return FLOOR_KIND, EVERY_LOG, str(beyond(highest)).encode(), 1


def _without(entries: Iterable[Entry], kind: str, key: str) -> Iterator[Entry]:
    return (entry for entry in entries if entry[:2] != (kind, key))


def _confirmed(path: Path) -> tuple[int, bool]:
    """The last confirmed change, and whether there were users; if that is unknown, True."""
    try:
        return read_witness(witness_path(path))
    except StorageCorrupted:
        return time.time_ns() // 1_000_000, True
