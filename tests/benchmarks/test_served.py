"""Servers over sockets are compared in slices, in turn; their answers are checked, and their clients' CPU is shown."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks.measure import CPU, Aim, Case, Outcome, Sample, cpu_seconds
from benchmarks.served.contenders import BESIDE, HEADWATER, PURE, SAME, UMADB, python_of
from benchmarks.served.rows import ROWS
from benchmarks.served.turns import halves

ROOT = Path(__file__).parents[2]
SLICES = 2


@pytest.mark.timeout(400)
def test_every_row_is_answered_by_every_contender(tmp_path: Path) -> None:
    sizes = f"--events 10000 --slices {SLICES} --slice-s 0.02 --same --pure --beside . --json {tmp_path}/result.json"
    arguments = [sys.executable, "-m", "benchmarks.served", *sizes.split(), "--directory", str(tmp_path / "files")]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stderr or done.stdout
    found = json.loads((tmp_path / "result.json").read_text())
    cases = {case["case"]: case["samples"] for case in found["questions"][0]["cases"]}
    assert list(cases) == [row.title for row in ROWS.values()]
    expected = [HEADWATER, SAME, PURE, BESIDE] + ([UMADB] if find_spec("umadb") else [])
    for title, samples in cases.items():
        if samples or "on other cores" not in title:
            assert list(samples) == expected, title
        for contender, its in samples.items():
            assert len(its) == SLICES, (title, contender)
            assert all(min(each["value"], each["cpu_us"], each["client_us"]) > 0 for each in its), (title, contender)
    assert "between two servers of this build" in found["run"]["spread"]
    assert {"commit", "CPU", "Headwater", BESIDE} <= set(found["machine"])
    assert not list((tmp_path / "files").iterdir()), "everything that was made for the run is gone"


def test_another_checkouts_server_is_used_by_its_own_client(tmp_path: Path) -> None:
    """The client of another version may fall back to a slower format with it."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    (programs / "headwater").write_text("from headwater.cli.main import main\nmain()\n")
    sizes = f"head --events 1000 --slices {SLICES} --slice-s 0.02 --beside {tmp_path} --directory {tmp_path}/files"
    arguments = [sys.executable, "-m", "benchmarks.served", *sizes.split()]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr or done.stdout
    calls = (tmp_path / "calls").read_text()
    assert "headwater serve" in calls
    assert "benchmarks.served.clients" in calls


def test_a_checkout_without_an_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"expected .*/\.venv/bin/python, got no such program: `make setup`"):
        python_of(tmp_path)


def test_two_threads_of_a_core_are_not_two_cores() -> None:
    """Linux numbers them 0 and 4, or 0 and 1."""
    assert halves(range(8), lambda cpu: str(cpu % 4)) == ([0, 4, 1, 5], [2, 6, 3, 7])
    assert halves(range(8), lambda cpu: str(cpu // 2)) == ([0, 1, 2, 3], [4, 5, 6, 7])


def test_ratios_are_of_neighbours() -> None:
    """The machine became four times as fast between the rounds: no ratio has one slice of each."""
    ours = [Sample(10, 40), Sample(40, 10)]
    theirs = [Sample(5, 80), Sample(20, 20)]
    outcome = Outcome(Case("work", "1/s", {}), {"headwater": ours, "other": theirs})
    assert outcome.ratios("other") == [2, 2]
    assert outcome.cpu_ratios("other") == [0.5, 0.5]
    assert outcome.is_met(Aim(CPU, 10)) and not outcome.is_met(Aim(CPU, 9)), "the least slice counts"


def test_cpu_time_of_another_process_includes_threads_that_ended() -> None:
    burn = """
import threading, time
def run():
    while time.thread_time() < 0.05: pass
thread = threading.Thread(target=run)
thread.start()
thread.join()
print("ended", flush=True)
input()
"""
    command = [sys.executable, "-c", burn]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ended\n"
        assert cpu_seconds(process.pid) >= 0.05
        process.stdin.close()
