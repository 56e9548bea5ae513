"""A process that is stopped before a write, and goes on when another one has the directory, harms nothing of it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.core import Event
from headwater.storage import check_directory
from headwater.storage.disk.locks import LOCK
from headwater.storage.segments import segment_log
from tests.server.running import environment
from tests.storage.builders import engine
from tests.storage.disks import without_directory_locks


@contextmanager
def stopped(data: Path, written: str) -> Iterator[Callable[[], str]]:
    """A process that has the directory, and was stopped before it wrote that; what is yielded lets it go on.

    Its answer is what became of the write.
    """
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.crash.stopped", str(data)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment()) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.stdin.write(f"{written}\n")
            process.stdin.flush()
            assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])

            def go_on() -> str:
                assert process.stdin is not None and process.stdout is not None
                process.send_signal(signal.SIGCONT)
                return process.stdout.readline().strip()

            yield go_on
        finally:
            process.kill()


@pytest.fixture(params=["copied", "next"])
def data(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a log of one event. Its successor copies the newest segment, or begins the next one."""
    if request.param == "next":
        monkeypatch.setattr(segment_log, "COPIED_BYTES_MIN", 0)
        monkeypatch.setattr(segment_log, "COPIED_BYTES_MAX", 0)
    monkeypatch.setattr(fcntl, "flock", without_directory_locks)
    with engine(tmp_path / "data") as one:
        one.create("orders").append([Event("E", id="first")])
        one.state.put("kind", "first", b"")
    return tmp_path / "data"


@pytest.mark.parametrize("restarts", [0, 1], ids=["at once", "after a start that appends nothing"])
def test_what_a_stopped_process_writes_late_is_no_event_and_spoils_none(data: Path, restarts: int) -> None:
    with stopped(data, "late") as go_on:
        (data / LOCK).unlink()
        for _ in range(restarts):
            engine(data).close()
        with engine(data) as successor:
            log = successor.open("orders")
            for name in ("second", "third"):
                log.append([Event("E", id=name)])
            assert go_on() == "OutcomeUnknown"
            log.append([Event("E", id="fourth")])
            assert [each.id for each in log.read()] == ["first", "second", "third", "fourth"]
    report = check_directory(data)
    assert report.is_sound, [log.problems for log in report.logs]
    for _ in range(2):  # after an unclean end, as of META, and a clean one
        with engine(data) as one:
            assert [each.id for each in one.open("orders").read()] == ["first", "second", "third", "fourth"]


def test_what_a_stopped_process_writes_late_spoils_nothing_of_the_state(data: Path) -> None:
    with stopped(data, "state late") as go_on:
        (data / LOCK).unlink()
        with engine(data) as successor:
            for name in ("second", "third"):
                successor.state.put("kind", name, b"")
            assert go_on() == "OutcomeUnknown"
            successor.state.put("kind", "fourth", b"")
    assert check_directory(data).is_sound
    with engine(data) as one:
        assert sorted(key for key, _ in one.state.items("kind")) == ["first", "fourth", "second", "third"]
    assert not list(data.glob("state.damaged-*")), "the journal was made anew"
