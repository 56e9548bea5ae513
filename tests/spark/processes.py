"""Processes that tests start, find and kill: by their ids, with all that they have started themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"


def start(arguments: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
    """Python with these arguments, in a session of its own, that finds the package and the tests."""
    environment = os.environ | {
        "PYTHONPATH": f"{SOURCES}{os.pathsep}{ROOT}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with output.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, *arguments], env=environment, stdout=file, stderr=file, cwd=ROOT, start_new_session=True
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for it and all its descendants at one instant: Java and the Python workers as well."""
    family = [process.pid, *descendants(process.pid)]
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)  # so that none of them does anything when it misses another
    for pid in {*family, *descendants(process.pid)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(pid, []))
    for each in found:
        found += children.get(each, [])
    return found


def wait_for(condition, process: subprocess.Popen[bytes] | None = None, seconds: float = 120) -> None:
    """Wait until it holds. Raises AssertionError where it never does, or where the process that should do it ended."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, f"the process ended with {process.poll()}"
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
