"""The lease that a process left when it was killed: the next one gives it back, where it can know that it is dead."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headwater.homes.last_lease import NAME, LastLease
from headwater.storage.disk import system
from headwater.storage.frames.frame_log import Term

TERM = Term(3, 2**61)


def test_a_lease_is_found_by_the_next_process_until_it_is_forgotten(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    assert LastLease(directory).found() is None
    LastLease(directory).keep(TERM)
    assert LastLease(directory).found() == TERM
    LastLease(directory).keep(Term(4, 1))
    assert LastLease(directory).found() == Term(4, 1)
    LastLease(directory).forget()
    LastLease(directory).forget()
    assert LastLease(directory).found() is None


def test_a_copied_directory_has_no_lease(tmp_path: Path) -> None:
    LastLease(tmp_path / "a").keep(TERM)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert LastLease(tmp_path / "b").found() is None


def test_a_snapshot_of_the_file_system_has_no_lease(tmp_path: Path) -> None:
    LastLease(tmp_path).keep(TERM)
    file = tmp_path / NAME
    entry = json.loads(file.read_bytes())
    assert entry["device"] == file.stat().st_dev
    file.write_text(json.dumps(entry | {"device": entry["device"] + 1}))  # as the same inode is found elsewhere
    assert LastLease(tmp_path).found() is None


@pytest.mark.parametrize("boot", ["another", ""])
def test_a_machine_that_was_started_again_or_does_not_say_has_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str
) -> None:
    LastLease(tmp_path).keep(TERM)
    (tmp_path / "boot").write_text(boot)
    monkeypatch.setattr(system, "BOOT", tmp_path / "boot")
    assert LastLease(tmp_path).found() is None


def test_what_cannot_be_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / NAME).write_bytes(b"{")
    assert LastLease(tmp_path).found() is None
    monkeypatch.setattr(system, "BOOT", tmp_path / "missing")
    LastLease(tmp_path).keep(TERM)
    assert LastLease(tmp_path).found() is None
