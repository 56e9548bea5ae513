"""Looking at the state of a data directory without changing anything, and taking what is left of it for all there was.

What is looked at is a copy: SQLite cannot open a WAL on a read-only medium, and recovers one elsewhere by writing.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import EventLogError, StorageCorrupted, StorageUnavailable
from ..core.state import StateStore
from .disk import sync_directory
from .engine import STATE_NAME, lock_directory, refuse_missing
from .log_directories import EVERY_LOG, FLOOR_KIND, LOGS, beyond, left_over
from .memory import MemoryState
from .meta import META_NAME, read_meta
from .private import make_directory, make_file
from .state import SqliteState
from .state_files import SHARED_MEMORY, files_of, is_plain, make_state, plain_entries, witness_path
from .state_rows import Entry, all_rows, damage_of, is_sound, read_only
from .witness import read_slots, read_witness

COPIES_MAX = 5


@dataclass
class StateCheck:
    """What was found in the state."""

    entries: int = 0
    problems: list[str] = field(default_factory=list)
    """What is damaged; empty if the state is sound."""
    notes: list[str] = field(default_factory=list)
    """What is worth knowing but mends itself, or hurts nothing."""


@contextmanager
def looking_at_state(directory: Path) -> Iterator[tuple[StateStore, StateCheck]]:
    """A copy of the state, and what was found in it; an empty state where it cannot be used."""
    report = StateCheck()
    with tempfile.TemporaryDirectory(prefix="headwater-check-") as place:
        copy = Path(place) / STATE_NAME
        _copy_files(directory / STATE_NAME, copy)
        try:
            refuse_missing(directory)
            state = SqliteState(copy)
        except (StorageCorrupted, StorageUnavailable) as error:
            report.problems.append(str(error).replace(place, str(directory)))
            yield MemoryState(), report
            return
        with closing(state):
            report.entries = state.count()
            report.notes += _notes(directory, state)
            yield state, report


def accept_state_loss(directory: Path) -> list[str]:
    """Make a state of all entries that are sound; answers what is given up. The old files are kept beside it.

    That there were users is not given up: without one, nobody is let in. Nor does a log that is made from now on give
    a number again that a deleted one of its name may have had: it begins above all of them, as after a restore.
    Raises StorageUnavailable.
    """
    path = directory / STATE_NAME
    with closing(lock_directory(directory)):
        aside = directory / f"state.lost-{time.time_ns() // 1_000_000}"
        make_directory(aside)
        _copy_files(path, aside / STATE_NAME)
        entries, given_up = _salvaged(aside / STATE_NAME)
        entries = [*_without(entries, FLOOR_KIND, EVERY_LOG), _floor(directory, entries)]
        serial, had_users = _confirmed(path)
        new = directory / "state.new" / STATE_NAME
        shutil.rmtree(new.parent, ignore_errors=True)
        make_directory(new.parent)
        make_state(new, entries, serial + 1, had_users)
        for old in files_of(path)[1:4]:  # they are of the old file
            old.unlink(missing_ok=True)
        os.replace(new, path)
        os.replace(witness_path(new), witness_path(path))
        shutil.rmtree(new.parent)
        sync_directory(directory)
        SqliteState(path).close()
        return [*given_up, f"whatever else was lost; the old files are in {aside}"]


def _notes(directory: Path, state: StateStore) -> Iterator[str]:
    for path in left_over(directory, state):
        yield f"{path}: the state does not know this directory; remove it if nobody needs it"
    witness = witness_path(directory / STATE_NAME)
    if not witness.exists():
        yield f"{STATE_NAME} is of 0.1.0, which guards nothing in it; the next start brings it up to date"
    elif None in read_slots(witness):
        yield f"{witness.name}: one of its two slots cannot be read; the next change writes it anew"


def _copy_files(source: Path, target: Path) -> None:
    """The files of a state, of one moment: they are copied again while somebody changes them."""
    pairs = [
        (each, copy)
        for each, copy in zip(files_of(source), files_of(target), strict=True)
        if each.suffix != SHARED_MEMORY
    ]
    for _ in range(COPIES_MAX):
        before = [_stamp(each) for each, _ in pairs]
        for each, copy in pairs:
            copy.unlink(missing_ok=True)
            if each.exists():
                make_file(copy)
                with suppress(FileNotFoundError):
                    shutil.copyfile(each, copy)
        if [_stamp(each) for each, _ in pairs] == before:
            return
    raise StorageUnavailable(f"{source}: it changes all the time; try again when nobody changes it")


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


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
