"""Every way in which a user names a directory to be filled: one of other programs is refused and stays as it is."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.core import Event
from headwater.core.errors import EventLogError
from headwater.decisions import DirectorySnapshots
from headwater.spark.archive.errors import NotAnArchive
from headwater.spark.archive.table import ArchiveTable
from headwater.spark.jobs.import_.job import Import
from headwater.spark.jobs.import_.quarantine import note_none
from headwater.spark.projection.table import Definition, NotAProjection, StateTable
from headwater.storage import Engine, backup, restore
from headwater.storage.state.data_directory import open_state

INCARNATION = "0" * 32


def _serve(directory: Path) -> None:
    Engine(directory, maintains=False, reserve_bytes=0).close()


def _user(directory: Path) -> None:
    open_state(directory).close()


def _source(directory: Path) -> Path:
    source = directory.parent / "source"
    if not source.exists():
        with Engine(source, maintains=False, reserve_bytes=0) as engine:
            engine.create("orders").append([Event("E")])
    return source


def _backup(directory: Path) -> None:
    backup(_source(directory), directory)


def _restore(directory: Path) -> None:
    copy = directory.parent / "copy"
    if not copy.exists():
        backup(_source(directory), copy)
    restore(copy, directory)


def _snapshots(directory: Path) -> None:
    DirectorySnapshots(directory).save("0" * 64, b"state")


def _quarantine(directory: Path) -> None:
    Import(file=(__file__,), log="orders", quarantine=str(directory))
    note_none(str(directory), "writer", 0)


def _archive(directory: Path) -> None:
    ArchiveTable.create(directory, "orders", INCARNATION, 1)


def _projection(directory: Path) -> None:
    StateTable.create(directory, Definition("orders", INCARNATION, "tag", "fold", "{}", 1, 4))


DOORS: dict[str, Callable[[Path], None]] = {
    "serve": _serve, "user": _user, "backup": _backup, "restore": _restore, "snapshots": _snapshots,
    "quarantine": _quarantine, "archive": _archive, "projection": _projection,
}  # fmt: skip
REFUSED = (EventLogError, NotAnArchive, NotAProjection)


def looks(directory: Path) -> list[tuple[str, int, int]]:
    """Names, modes and times of a directory and what it holds."""
    found = [(path, path.lstat()) for path in (directory, *sorted(directory.rglob("*")))]
    return [(path.name, stat.S_IMODE(each.st_mode), each.st_mtime_ns) for path, each in found]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("mode", [0o755, 0o2775])
def test_a_directory_of_others_is_refused_and_stays_as_it_is(door: str, mode: int, tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    (directory / "photos").mkdir(parents=True)
    (directory / "photos" / "a.jpg").write_bytes(b"x")
    (directory / "notes.txt").write_bytes(b"x")
    directory.chmod(mode)
    before = looks(directory)
    with pytest.raises(REFUSED):
        DOORS[door](directory)
    assert looks(directory) == before


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("is_file_system", [False, True])
def test_an_empty_directory_is_taken_and_a_shared_one_stays_shared(
    door: str, is_file_system: bool, tmp_path: Path
) -> None:
    directory = tmp_path / "empty"
    directory.mkdir()
    if is_file_system:
        (directory / "lost+found").mkdir()
    directory.chmod(0o2775)
    for _ in range(1 if door in ("backup", "restore") else 2):  # the second time it holds our own files
        DOORS[door](directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o2775
    assert len(list(directory.iterdir())) > is_file_system
