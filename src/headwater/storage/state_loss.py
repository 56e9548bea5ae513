"""Taking what is left of a damaged state for all there was, so that it can be done again wherever it was interrupted.

All that is to become of it is made in a directory of its own. That gets another name when it is complete: until then
the state is as it was, and is looked at anew; from then on the new one is put in its place, by steps of which each may
have been done before. In between nobody opens the state (`engine.refuse_missing`).
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

from ..core.errors import EventLogError, StorageCorrupted
from ..formats.decoders import json_decoder
from .disk import sync_directory, write_whole
from .engine import STATE_NAME, lock_directory
from .log_directories import EVERY_LOG, FLOOR_KIND, LOGS, beyond
from .meta import META_NAME, read_meta
from .private import make_directory
from .refusals import refusing
from .state import SqliteState
from .state_check import copy_files
from .state_files import ACCEPTED, files_of, is_plain, make_state, plain_entries, witness_path
from .state_rows import Entry, all_rows, damage_of, is_sound, read_only
from .witness import read_witness

UNFINISHED = "state.new"
_OLD, _TOLD = "old", "told.json"
"""In the directory of the new state: the files of the old one, and what is told."""
_DONE = "accepted"
"""What that directory is called beside the old files when nothing but what was told is left in it."""


class _Told(msgspec.Struct):
    aside: str
    """The name of the directory in which the old files are kept."""
    given_up: list[str]


def accept_state_loss(directory: Path) -> list[str]:
    """Make a state of all entries that are sound; answers what is given up. The old files are kept beside it.

    That there were users is not given up: without one, nobody is let in. Nor does a log that is made from now on give
    a number again that a deleted one of its name may have had: it begins above all of them, as after a restore.
    If it was interrupted, it is finished. Raises StorageUnavailable, DiskFull: then the state is as it was, or this is
    to be done again.
    """
    with closing(lock_directory(directory)), refusing(directory, "a new state cannot be made"):
        if not (directory / ACCEPTED).exists():
            shutil.rmtree(directory / UNFINISHED, ignore_errors=True)  # of one that was interrupted
            try:
                _prepare(directory, directory / UNFINISHED)
                os.rename(directory / UNFINISHED, directory / ACCEPTED)
            except BaseException:
                shutil.rmtree(directory / UNFINISHED, ignore_errors=True)
                raise
            sync_directory(directory)
        told = _put_in_place(directory, directory / ACCEPTED)
        SqliteState(directory / STATE_NAME).close()
        return [*told.given_up, f"whatever else was lost; the old files are in {directory / told.aside}"]


def _prepare(directory: Path, new: Path) -> None:
    """Make the new state, durably, with the files of the old one and what is to be told."""
    path, old = directory / STATE_NAME, new / _OLD
    make_directory(old)
    copy_files(path, old / STATE_NAME)
    for each in old.iterdir():
        _sync(each)
    sync_directory(old)
    entries, given_up = _salvaged(old / STATE_NAME)
    entries = [*_without(entries, FLOOR_KIND, EVERY_LOG), _floor(directory, entries)]
    serial, had_users = _confirmed(path)
    make_state(new / STATE_NAME, entries, serial + 1, had_users)
    told = _Told(f"state.lost-{time.time_ns() // 1_000_000}", given_up)
    write_whole(new / _TOLD, msgspec.json.encode(told))


def _put_in_place(directory: Path, new: Path) -> _Told:
    """Replace the state by the new one, or go on doing so."""
    path = directory / STATE_NAME
    told = json_decoder(_Told).decode((new / _TOLD).read_bytes())
    if (new / _OLD).exists():
        os.rename(new / _OLD, directory / told.aside)
        sync_directory(directory)  # before anything of the old state goes
    if (new / STATE_NAME).exists():
        for old in files_of(path)[1:4]:  # they are of the old file
            old.unlink(missing_ok=True)
        sync_directory(directory)
        os.replace(new / STATE_NAME, path)
    if witness_path(new / STATE_NAME).exists():
        os.replace(witness_path(new / STATE_NAME), witness_path(path))
    sync_directory(directory)
    os.rename(new, directory / told.aside / _DONE)  # one step: with it, all is done
    sync_directory(directory)
    return told


def _sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _salvaged(path: Path) -> tuple[list[Entry], list[str]]:
    """All entries that are sound, and what is said of the others."""
    found: dict[tuple[str, str], Entry] = {}
    lost: dict[str, None] = {}
    if not path.exists():
        return [], [f"{STATE_NAME}, which is missing"]
    with closing(read_only(path)) as connection:
        for order in ("ASC", "DESC"):  # what cannot be reached from one end may be from the other
            try:
                if is_plain(connection):
                    return plain_entries(connection), []
                for row in all_rows(connection, order):
                    if is_sound(*row):
                        found[row[0], row[1]] = row[:4]
                    else:
                        lost[damage_of(row[0], row[1])] = None
            except sqlite3.Error as error:
                lost[f"{STATE_NAME}: {error}"] = None
    return list(found.values()), list(lost)


def _floor(directory: Path, entries: Iterable[Entry]) -> Entry:
    """The number above which each new log begins: how far the logs went that are forgotten is not known."""
    highest = 0
    for kind, _, value, _ in entries:
        if kind == FLOOR_KIND and value.isdigit():
            highest = max(highest, int(value))
    for each in (directory / LOGS).glob(f"*/{META_NAME}"):
        with suppress(EventLogError, OSError):  # whoever opens it is told
            highest = max(highest, read_meta(each.parent).floor)
    return FLOOR_KIND, EVERY_LOG, str(beyond(highest)).encode(), 1


def _without(entries: Iterable[Entry], kind: str, key: str) -> Iterator[Entry]:
    return (entry for entry in entries if entry[:2] != (kind, key))


def _confirmed(path: Path) -> tuple[int, bool]:
    """The last change that was confirmed, and whether there were users; where nobody can say so, there were."""
    try:
        return read_witness(witness_path(path))
    except StorageCorrupted:
        return time.time_ns() // 1_000_000, True
