"""Taking what is left of a damaged state for all: wherever that is interrupted, doing it again gives the same."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.core.errors import DiskFull, StorageCorrupted
from headwater.storage import SqliteState, accept_state_loss, check_directory
from headwater.storage.state.data_directory import open_state
from headwater.storage.state.files import STATE_NAME, witness_path

STEPS = [(os, name) for name in ("open", "mkdir", "unlink", "rmdir", "rename", "replace", "fsync", "link")] + [
    (shutil, "copyfile")
]
STEPS_MAX = 300


class Killed(BaseException):
    """The process ended here."""


class Steps:
    """Counts what is asked of the system, and lets nothing be done from one step on (or, that step alone)."""

    def __init__(self, fatal: int, error: Callable[[], BaseException], *, is_for_good: bool) -> None:
        self.done, self._fatal, self._error, self._is_for_good = 0, fatal, error, is_for_good

    def step(self) -> None:
        self.done += 1
        if self.done == self._fatal or (self._is_for_good and self.done > self._fatal):
            raise self._error()


@contextmanager
def failing(steps: Steps) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in STEPS:
            patch.setattr(module, name, _counted(getattr(module, name), steps))
        yield


def _counted(original: Callable[..., Any], steps: Steps) -> Callable[..., Any]:
    def counted(*arguments: Any, **more: Any) -> Any:
        steps.step()
        return original(*arguments, **more)

    return counted


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A state of which one entry is damaged, and whose newest entries are in its WAL alone."""
    live = tmp_path / "live"
    (live / "logs").mkdir(parents=True)
    with closing(SqliteState(live / STATE_NAME)) as state:
        for number in range(5):
            state.put("consumer", f"c-{number}", str(number).encode())
        state.put("user", "alice", b"{}")
    with closing(sqlite3.connect(live / STATE_NAME, isolation_level=None)) as connection:
        connection.execute("UPDATE entries SET value = x'00' WHERE key = 'c-1'")
    with closing(sqlite3.connect(live / STATE_NAME, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE entries SET version = 7 WHERE key = 'c-2'")
        shutil.copytree(live, tmp_path / "damaged", ignore=shutil.ignore_patterns("*.sock"))
    assert (tmp_path / "damaged" / f"{STATE_NAME}-wal").stat().st_size
    return tmp_path / "damaged"


def outcome(directory: Path) -> object:
    """What is there for a server, and which files."""
    report = check_directory(directory)
    assert report.is_sound, report
    with closing(open_state(directory)) as state:
        kinds = ("consumer", "user", "log-floor")
        entries = {kind: {key: entry.value for key, entry in state.items(kind)} for kind in kinds}
        names = {path.name.partition("-1")[0] for path in directory.iterdir()} - {f"{STATE_NAME}-shm", "lock"}
        return entries, state.had_users(), names - {f"{STATE_NAME}-wal"}


def copied(source: Path, target: Path) -> Path:
    return shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))


def test_a_loss_that_is_accepted_again_after_a_kill_at_any_step_is_the_same(damaged: Path, tmp_path: Path) -> None:
    whole = copied(damaged, tmp_path / "whole")
    told = [line.partition("; the old")[0] for line in accept_state_loss(whole)]
    expected = outcome(whole)
    in_between = 0
    for fatal in range(1, STEPS_MAX):
        killed = copied(damaged, tmp_path / f"killed-{fatal}")
        steps = Steps(fatal, Killed, is_for_good=True)
        with failing(steps):
            try:
                accept_state_loss(killed)
                break
            except Killed:
                pass
        if (killed / "state.accepted").exists():
            in_between += 1
            with pytest.raises(StorageCorrupted, match=r"was interrupted; .*headwater check --accept-state-loss"):
                open_state(killed)
            assert "interrupted" in check_directory(killed).state.problems[0]
        elif len(list(killed.glob("state.lost-*"))) == 1:  # it was done, but for the last look at it
            assert outcome(killed) == expected
            continue
        assert [line.partition("; the old")[0] for line in accept_state_loss(killed)] == told
        assert outcome(killed) == expected, fatal
        (lost,) = killed.glob("state.lost-*")
        assert (lost / f"{STATE_NAME}-wal").read_bytes() == (damaged / f"{STATE_NAME}-wal").read_bytes()
        shutil.rmtree(killed)
    else:
        pytest.fail("it never came to its end")
    assert in_between > 3


def test_a_disk_that_is_full_at_any_step_leaves_the_state_as_it_was_and_nothing_beside_it(
    damaged: Path, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in damaged.iterdir() if path.is_file()}
    refused = 0
    for fatal in range(3, STEPS_MAX):  # the first two are the locks
        full = copied(damaged, tmp_path / f"full-{fatal}")
        steps = Steps(fatal, lambda: OSError(28, "No space left on device"), is_for_good=False)
        with failing(steps):
            try:
                accept_state_loss(full)
            except DiskFull:
                refused += 1
        if steps.done < fatal:
            break
        if not (full / "state.accepted").exists() and not list(full.glob("state.lost-*")):
            assert not (full / "state.new").exists()
            found = {path.name: path.read_bytes() for path in full.iterdir() if path.is_file()}
            assert {name: found[name] for name in before if not name.endswith("-shm")} == {
                name: content for name, content in before.items() if not name.endswith("-shm")
            }
        shutil.rmtree(full)
    else:
        pytest.fail("it never came to its end")
    assert refused > 5


def test_the_witness_of_the_new_state_outranks_that_of_the_old(damaged: Path) -> None:
    before = witness_path(damaged / STATE_NAME).read_bytes()
    accept_state_loss(damaged)
    assert witness_path(damaged / STATE_NAME).read_bytes() != before
