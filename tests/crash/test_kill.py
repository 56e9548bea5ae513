"""kill -9 in the middle of everything: whatever was acknowledged is there."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from headwater.storage import Engine

from .witness import Witness, Writer
from .writer import NAME

ROUNDS = 60 if os.environ.get("HEADWATER_TEST_PROFILE") == "long" else 5


def test_what_was_acknowledged_survives_being_killed(tmp_path: Path) -> None:
    """Rounds on one directory. Every other time only a copy is looked at, so that the next writer finds it unclean."""
    chance, witness, directory = random.Random(17), Witness(), tmp_path / "data"
    for round in range(ROUNDS):
        Writer(directory, round).kill_after(chance.randrange(1, 250), witness)
        looked_at = directory
        if round % 2:
            looked_at = tmp_path / f"copy{round}"
            shutil.copytree(directory, looked_at, ignore=shutil.ignore_patterns("*.sock"))
        with Engine(looked_at) as engine:
            witness.check(engine.open(NAME))
            assert engine.open(NAME).head() >= max(witness.ids, default=0)


def test_a_writer_killed_at_its_start_leaves_a_directory_that_opens(tmp_path: Path) -> None:
    for round in range(4):
        Writer(tmp_path, round).kill_after(round % 2, Witness())
        with Engine(tmp_path) as engine:
            assert engine.create(NAME).info().first_retained >= 1


def test_losing_the_index_after_a_kill_loses_nothing(tmp_path: Path) -> None:
    witness = Witness()
    Writer(tmp_path, 0).kill_after(150, witness)
    for index in tmp_path.glob("logs/*/idx"):
        shutil.rmtree(index)
    with Engine(tmp_path) as engine:
        witness.check(engine.open(NAME))


@pytest.mark.parametrize(
    "fault", ["sync:2", "sync:3", "sync:25", "write:1", "write:30", "write:30:100", "write:30:900"]
)
def test_a_failed_write_or_sync_ends_the_process_and_loses_nothing_acknowledged(tmp_path: Path, fault: str) -> None:
    witness = Witness()
    Writer(tmp_path, 0).kill_after(60, witness)
    code, complaint = Writer(tmp_path, 1, fault).await_end(witness)
    if code == 1:  # it was not an append: nothing has changed, so the engine goes on, and this process ends by itself
        assert "cannot create the next segment: Input/output error" in complaint
    else:
        assert code == -signal.SIGABRT
        assert "writing failed" in complaint and "restart to recover" in complaint
    with Engine(tmp_path) as engine:
        witness.check(engine.open(NAME))
    Writer(tmp_path, 2).kill_after(60, witness)
    with Engine(tmp_path) as engine:
        witness.check(engine.open(NAME))


@pytest.mark.parametrize("fault", ["sync:0", "sync:1"])
def test_what_cannot_be_synced_after_a_kill_is_not_opened(tmp_path: Path, fault: str) -> None:
    """First the journal of the state, then the log: a killed process may have written what it had not synced."""
    witness = Witness()
    Writer(tmp_path, 0).kill_after(60, witness)
    code, complaint = Writer(tmp_path, 1, fault).await_end(witness)
    assert code == 1
    assert "Input/output error" in complaint
    with Engine(tmp_path) as engine:
        witness.check(engine.open(NAME))
