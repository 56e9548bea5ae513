"""Where and when a run took place: what a number means nothing without."""

from __future__ import annotations

import math
import os
import platform
import sqlite3
import statistics
import subprocess
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from headwater import __version__ as version
from headwater.speedups import BUILD

VOLATILE = frozenset({"tmpfs", "ramfs"})


def describe(directory: Path) -> dict[str, str]:
    """The machine, the versions, the commit and the time, by name."""
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "CPU": f"{_cpu_model()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory_kib / 1024**2:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": f"{filesystem(directory)}, write of 4 KiB + fdatasync {_sync_us(directory):.0f} us (median)",
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "Python": f"{platform.python_version()}, {_addition_ns():.0f} ns for an addition in a loop (least of 20)",
        "Headwater": f"{version}, {BUILD}",
        "SQLite": sqlite3.sqlite_version,
        "UmaDB": _version("umadb"),
    }


def filesystem(directory: Path) -> str:
    """The type of the file system that a directory is on."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    target = directory.resolve()
    return max((point, kind) for point, kind in mounts if target.is_relative_to(point))[1]


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    here = Path(__file__).parent
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown (no git here)"
    return commit.stdout.strip()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _addition_ns() -> float:
    """How fast this interpreter is on this machine: rates of two runs that differ in this compare by it."""
    turns, least = 100_000, math.inf
    for _ in range(20):
        total, began = 0, time.thread_time()
        for turn in range(turns):
            total += turn
        least = min(least, time.thread_time() - began)
    return least / turns * 1e9


def _sync_us(directory: Path) -> float:
    """The median of 50 durable writes into a preallocated file, in us."""
    path, block, times = directory / "sync-probe", b"\1" * 4096, []
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(file, 0, 50 * len(block))
        os.fsync(file)
        for turn in range(50):
            began = time.perf_counter()
            os.pwrite(file, block, turn * len(block))
            os.fdatasync(file)
            times.append(time.perf_counter() - began)
    finally:
        os.close(file)
        path.unlink()
    return statistics.median(times) * 1e6
