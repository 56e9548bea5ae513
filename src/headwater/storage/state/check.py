"""Checks the state of a data directory without changing anything.

It checks a copy: SQLite cannot open a WAL on a read-only medium, and on any other medium it recovers the WAL by
writing.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...core.errors import StorageCorrupted, StorageUnavailable
from ...core.state import StateStore
from ...formats.newer import WrittenByNewer
from ..catalog.directories import left_over
from ..disk.system import make_directory, make_file
from ..home.copy_file import home_of
from ..memory import MemoryState
from .data_directory import refuse_missing
from .files import SHARED_MEMORY, STATE_NAME, files_of, witness_path
from .journal import JOURNAL
from .last_confirmed import read_slots
from .recovery import open_journaled

logger = logging.getLogger("headwater.storage")

COPIES_MAX = 5
_MOVED = re.compile("; the old files are in .*")


@dataclass
class StateCheck:
    """The result of a check of the state."""

    entries: int = 0
    problems: list[str] = field(default_factory=list)
    """The damage; empty if the state is sound."""
    notes: list[str] = field(default_factory=list)
    """Harmless findings, or those that repair themselves."""
    newer: list[str] = field(default_factory=list)
    """Parts written by a newer headwater: not damaged, and not checked."""


@contextmanager
def looking_at_state(directory: Path) -> Iterator[tuple[StateStore, StateCheck]]:
    """A copy of the state, and the result of its check; an empty state if it cannot be used."""
    report = StateCheck()
    with tempfile.TemporaryDirectory(prefix="headwater-check-") as place:
        copy = Path(place) / STATE_NAME
        copy_files(directory / STATE_NAME, copy)
        try:
            home_of(directory)
            refuse_missing(directory)
            with _noting(report, place, directory):
                state = open_journaled(Path(place), fatal=_never)
        except WrittenByNewer as error:
            report.newer.append(str(error).replace(place, str(directory)))
            yield MemoryState(), report
            return
        except (StorageCorrupted, StorageUnavailable) as error:
            report.problems.append(str(error).replace(place, str(directory)))
            yield MemoryState(), report
            return
        with closing(state):
            report.entries = state.count()
            report.notes += _notes(directory, state)
            # in the copy, old files were moved away
            report.notes += [_MOVED.sub("", note.replace(place, str(directory))) for note in state.mended]
            yield state, report


@contextmanager
def _noting(report: StateCheck, place: str, directory: Path) -> Iterator[None]:
    """Note lines of the log about the copy, which would name its temporary files."""

    def note(record: logging.LogRecord) -> bool:
        if place not in (line := record.getMessage()):
            return True
        report.notes.append(line.replace(place, str(directory)))
        return False

    logger.addFilter(note)
    try:
        yield
    finally:
        logger.removeFilter(note)


def _notes(directory: Path, state: StateStore) -> Iterator[str]:
    for path in left_over(directory, state):
        yield f"{path}: this directory is unknown to the state; remove it if you do not need its contents"
    witness = witness_path(directory / STATE_NAME)
    if not witness.exists():
        yield f"{STATE_NAME} was written by 0.1.0, without checksums; the next start adds them"
    elif None in read_slots(witness):
        yield f"{witness.name}: one of its two slots cannot be read; the next change rewrites it"


def copy_files(source: Path, target: Path) -> None:
    """Copy a consistent snapshot of a state's files and journal, retrying while another process changes them."""
    for _ in range(COPIES_MAX):
        pairs = _pairs(source, target)
        before = [_stamp(each) for each, _ in pairs]
        shutil.rmtree(target.parent / JOURNAL, ignore_errors=True)
        for each, copy in pairs:
            copy.unlink(missing_ok=True)
            if each.exists():
                make_directory(copy.parent)
                make_file(copy)
                with suppress(FileNotFoundError):
                    shutil.copyfile(each, copy)
        if [_stamp(each) for each, _ in pairs] == before:
            return
    raise StorageUnavailable(f"{source}: it keeps changing; try again when there are no changes")


def _pairs(source: Path, target: Path) -> list[tuple[Path, Path]]:
    """The files to copy, and their targets."""
    journal = source.parent / JOURNAL
    files = zip(files_of(source), files_of(target), strict=True)
    return [(each, copy) for each, copy in files if each.suffix != SHARED_MEMORY] + [
        (each, target.parent / JOURNAL / each.relative_to(journal))
        for each in sorted(journal.rglob("*"))
        if each.is_file()
    ]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


def _never(problem: str) -> None:
    raise AssertionError(problem)
