"""The memory of appends that wait: one budget for all logs of a process, and for the commits of staged batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core.errors import EventLogError, Overloaded, TooLarge
from headwater.core.event import Event
from headwater.core.limits import APPEND_BYTES_MAX, check_append
from headwater.core.log import AppendRequest
from headwater.core.settings import LogSettings
from headwater.core.shared_bytes import FREE_BYTES, KIB, MIB, SharedBytes
from headwater.storage import Engine
from headwater.storage.append.append_memory import append_bytes_max, needed_bytes, never_fits
from headwater.storage.segments.segment_log import SegmentLog
from headwater.storage.staging.batches import Staging
from headwater.storage.staging.commit import commit_staged

SETTINGS = LogSettings(event_bytes_max=64 * MIB)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While it is not set, and once `hold` was called, no log writes anything."""
    may_write = threading.Event()
    may_write.set()
    write = SegmentLog.append_frames

    def waits(*arguments: object, **options: object) -> object:
        assert may_write.wait(120)
        return write(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentLog, "append_frames", waits)
    yield may_write
    may_write.set()


def test_a_hundred_logs_that_do_not_write_hold_one_budget(tmp_path: Path, away: threading.Event) -> None:
    waiting = SharedBytes(64 * MIB)
    payload, answered = bytes(MIB - 64), threading.Semaphore(0)
    with Engine(tmp_path, waiting=waiting) as engine:
        logs = [engine.create(f"log-{number}", SETTINGS) for number in range(100)]
        away.clear()
        taken = refused = 0
        for _ in range(60):
            for log in logs:
                columns = check_append([Event(type="E", data=payload)], SETTINGS.event_bytes_max)
                try:
                    log.submit(AppendRequest(columns, None, None, lambda done: answered.release(len(done))))
                    taken += 1
                except Overloaded:
                    refused += 1
        held = sum(log.statistics.queued_bytes for log in logs)
        away.set()
        for _ in range(taken):
            assert answered.acquire(timeout=60)
        assert held <= waiting.bytes_max + 100 * FREE_BYTES, f"{held // MIB} MiB are held"
        assert 16 <= taken <= 35 and refused == waiting.refused == 6000 - taken
        for log in logs:
            log.append([Event(type="E", data=payload)])
        assert waiting.bytes == 0


def test_an_append_that_never_fits_is_too_large_with_the_number_and_the_start_says_so(tmp_path: Path) -> None:
    waiting = SharedBytes(16 * MIB)
    most = append_bytes_max(waiting)
    assert most == 4 * MIB + 32 * KIB
    warning = never_fits(waiting)
    assert warning is not None and f"appends larger than {most} bytes never fit" in warning
    assert never_fits(SharedBytes(needed_bytes())) is None
    with Engine(tmp_path, waiting=waiting) as engine:
        log = engine.create("orders", SETTINGS)
        with pytest.raises(TooLarge, match=f"given, at most {most} are allowed"):
            log.append([Event(type="E", data=bytes(5 * MIB))])
        log.append([Event(type="E", data=bytes(4 * MIB))])


def test_the_largest_append_fits_an_engine_that_is_given_no_budget(tmp_path: Path) -> None:
    with Engine(tmp_path) as engine:
        log = engine.create("orders", SETTINGS)
        log.append([Event(type="E", data=bytes(APPEND_BYTES_MAX - 128))])
        assert engine.waiting.bytes == 0


def staged(staging: Staging, batch: int, rows: int, size: int) -> None:
    schema = pa.schema([("type", pa.string()), ("data", pa.binary())])
    with_rows = pa.RecordBatch.from_arrays(
        [pa.array(["E"] * rows), pa.array([bytes(size)] * rows, pa.binary())], schema=schema
    )
    stage = staging.stage("w", batch, 0, 0, schema)
    for at in range(0, rows, 4):
        stage.write(with_rows.slice(at, 4))
    stage.close()


def test_a_staged_batch_larger_than_the_budget_is_committed_in_appends_that_fit(tmp_path: Path) -> None:
    waiting = SharedBytes(16 * MIB)
    most = 0
    with Engine(tmp_path, waiting=waiting) as engine:
        log = engine.create("orders", LogSettings(partitions=2, event_bytes_max=MIB))
        log.watch(lambda: None)
        staging = Staging(log.directory, log.settings)
        staged(staging, 1, 96, 512 * KIB)

        def step(_: str) -> None:
            nonlocal most
            most = max(most, waiting.bytes)

        try:
            committed = commit_staged(log, log.directory, "w", 1, ["0-0"], step=step)
        except EventLogError as error:
            raise AssertionError(error) from error
        assert committed.events == 96
        assert 0 < most <= waiting.bytes_max
        assert log.statistics.appends >= 48, "each append has a sixteenth of the budget"
        assert waiting.bytes == 0
