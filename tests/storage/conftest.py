"""Set-up of the storage tests: small segments, and a watch over what is left open."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.storage.index import index
from headwater.storage.maintenance.worker import IndexWorker, do
from headwater.storage.segments import segment_log

from .builders import Fatal


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of 8 to 16 KiB and at most 200 events, so that few events make many of them."""
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES_MIN", 8 * 1024)
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES_MAX", 16 * 1024)
    monkeypatch.setattr(segment_log, "SEGMENT_EVENTS_MAX", 200)
    monkeypatch.setattr(index, "PART_EVENTS_MAX", 120)


@pytest.fixture
def in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the worker's jobs here, because a process takes a second to start."""
    monkeypatch.setattr(IndexWorker, "run", lambda self, job: do(job).problem)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory to be."""
    return tmp_path / "data"


@pytest.fixture
def fatal() -> Fatal:
    """In the place of the end of the process."""
    return Fatal()


@pytest.fixture
def open_files() -> Callable[[], int]:
    """How many file descriptors this process has, garbage not counted."""

    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    return count
