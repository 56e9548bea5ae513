"""The benchmarks run, small: they check their answers, and a change of the engine must not break them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [
        "benchmarks append_batches append_conditional read_tag scan recovery trim --events 10000 --repeat 1 --quick",
        "benchmarks notifications --events 10000 --repeat 1 --quick",
        "benchmarks.profile_append 2000",
        "benchmarks.idle_logs --logs 3 --seconds 0.1",
        "benchmarks.listeners --rounds 2 --slice-s 0.05",
        "benchmarks.client_http --rounds 2 --requests 20",
        "benchmarks.bursts --rounds 2 --connections 50",
        "benchmarks.decisions --rounds 2 --decisions 5",
        "benchmarks.hotpath tag conditional arrow --events 10000",
        "benchmarks.versions . projection-entity --rounds 1",
        "benchmarks.homes commands lag --round-trip-ms 1 --events 1000 --seconds 0.05 --repeat 1",
    ],
    ids=[
        "questions",
        "notifications",
        "profile",
        "idle_logs",
        "listeners",
        "client_http",
        "bursts",
        "decisions",
        "hotpath",
        "versions",
        "homes",
    ],
)
def test_it_runs_and_its_answers_are_right(command: str, tmp_path: Path) -> None:
    arguments = command.split()
    where = (
        ["--directory", str(tmp_path)]
        if arguments[0]
        in ("benchmarks", "benchmarks.idle_logs", "benchmarks.hotpath", "benchmarks.versions", "benchmarks.homes")
        else []
    )
    done = subprocess.run(
        [sys.executable, "-m", *arguments, *where], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr or done.stdout
