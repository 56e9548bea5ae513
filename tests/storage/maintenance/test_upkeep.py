"""Maintenance passes over logs at which nothing changed, and over no other."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from headwater.storage import Engine
from headwater.storage.catalog.backup_lock import backing_up
from headwater.storage.maintenance import tasks

from ..builders import engine, event, log_directory

pytestmark = pytest.mark.usefixtures("small_segments")


def locks_of_a_round(one: Engine, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a round of maintenance, with retention, locks or unlocks a file."""
    calls: list[int] = []
    with monkeypatch.context() as patch:
        flock = fcntl.flock
        patch.setattr(fcntl, "flock", lambda file, operation: (calls.append(operation), flock(file, operation)))
        one.maintain()
    return len(calls)


def settle(one: Engine) -> None:
    for _ in range(3):
        one.maintain()


def test_an_idle_log_costs_a_round_no_lock(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(data) as one:
        settle(one)
        without_logs = locks_of_a_round(one, monkeypatch)
        logs = [one.create(f"log{number}") for number in range(5)]
        for log in logs:
            log.append([event()])
        settle(one)
        assert locks_of_a_round(one, monkeypatch) == without_logs
        logs[0].append([event()])
        assert locks_of_a_round(one, monkeypatch) > without_logs


@pytest.mark.usefixtures("in_line")
def test_a_trim_of_an_idle_log_gives_its_space_back(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        for _ in range(150):
            log.append([event()])
        settle(one)
        segments = len(log.frames.segments)
        log.trim(log.head() + 1)
        settle(one)
        assert len(log.frames.segments) == 1 < segments


@pytest.mark.usefixtures("in_line")
def test_what_could_not_be_done_is_tried_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("no")

    with engine(data) as one:
        log = one.create("orders")
        for _ in range(150):
            log.append([event()])
        with monkeypatch.context() as patch:
            patch.setattr(tasks, "drop_leftovers", fails)
            settle(one)
        stray = log_directory(data) / "idx" / f"{1:020d}-{1:020d}.postings"
        stray.touch()
        with backing_up(data):
            settle(one)
        assert stray.exists()
        one.maintain()
        assert not stray.exists()
