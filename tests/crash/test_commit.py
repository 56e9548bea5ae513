"""A commit of staged batches that ends anywhere, and is tried again: every row is in the log once, in order."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core import LocalLog, LogSettings, Mark, WriterState
from headwater.core.errors import StorageCorrupted
from headwater.core.limits import EventColumns, check_append
from headwater.storage import Engine, StoredLog, accept_loss, backup, check_directory, restore
from headwater.storage.append.writer_table import WRITERS_NAME
from headwater.storage.segments import segment_log
from headwater.storage.staging import commit as commit_module
from headwater.storage.staging import segments
from headwater.storage.staging.batches import STAGED, Staging
from headwater.storage.staging.commit import commit_staged

from ..builders import event
from .committer import NAME, WRITER, small, stages_of
from .faults import FaultyDisk
from .witness import ROOT

SCHEMA = pa.schema({"type": pa.string(), "data": pa.binary(), "id": pa.string()})
PARTS, ROWS = 2, 160
ROUNDS = 40 if os.environ.get("HEADWATER_TEST_PROFILE") == "long" else 6


@pytest.fixture(autouse=True)
def small_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.formats.arrow import events as events_module

    monkeypatch.setattr(events_module, "APPEND_EVENTS_MAX", events_module.APPEND_EVENTS_MAX)
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES_MIN", segment_log.SEGMENT_BYTES_MIN)
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES_MAX", segment_log.SEGMENT_BYTES_MAX)
    monkeypatch.setattr(commit_module, "ADOPTED_BYTES_MIN", commit_module.ADOPTED_BYTES_MIN)
    small()


@pytest.fixture
def as_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are staged as files that become segments: three of each, of two or three frames."""
    monkeypatch.setattr(segments, "FRAME_BYTES", 3000)
    monkeypatch.setattr(segments, "STAGED_SEGMENT_EVENTS_MAX", 70)


FORMS = pytest.mark.parametrize("form", ["rows", "segments"])


def form_of(request: pytest.FixtureRequest, form: str) -> None:
    if form == "segments":
        request.getfixturevalue("as_segments")


def id_of(batch: int, part: int, row: int) -> str:
    return f"{batch}.{part}.{row}"


def ids_of(batch: int) -> list[str]:
    return [id_of(batch, part, row) for part in range(PARTS) for row in range(ROWS)]


def stage(log: StoredLog, batch: int) -> None:
    staging = Staging(log.directory)
    for part in range(PARTS):
        writer = staging.stage(WRITER, batch, part, 0, SCHEMA)
        for start in range(0, ROWS, 50):
            ids = [id_of(batch, part, row) for row in range(start, min(start + 50, ROWS))]
            arrays = [pa.array(["E"] * len(ids)), pa.array([id.encode() * 5 for id in ids]), pa.array(ids)]
            writer.write(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        writer.close()


def staged(directory: Path, batches: int) -> None:
    with Engine(directory, maintains=False) as engine:
        log = engine.create(NAME)
        log.append([event("before")])
        for batch in range(1, batches + 1):
            stage(log, batch)


def commit(directory: Path, last: int, step: int = 0, operation: int = 0) -> int:
    command = [sys.executable, "-m", "tests.crash.committer", str(directory), str(last), str(step), str(operation)]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=100).returncode


def finish(log: StoredLog) -> None:
    """Commit what is left of the first batch."""
    commit_staged(log, log.directory, WRITER, 1, stages_of(log.directory, 1))


def check_whole(log: StoredLog, batches: int) -> None:
    """Every row of every batch is there once, in order, and the writer's state says so."""
    events = [each for each in log.read() if each.type == "E"]
    assert [each.id for each in events] == [id for batch in range(1, batches + 1) for id in ids_of(batch)]
    numbers = [each.sequence_number for each in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    state = log.writer(WRITER)
    assert state is not None
    assert state == WriterState(WRITER, batches, PARTS * ROWS, numbers[-PARTS * ROWS], numbers[-1], PARTS * ROWS, True)


@FORMS
def test_a_commit_that_ends_at_any_step_is_finished_by_the_next(
    request: pytest.FixtureRequest, form: str, tmp_path: Path
) -> None:
    form_of(request, form)
    staged(tmp_path / "staged", 1)
    for step in range(1, 50):
        directory = tmp_path / f"step{step}"
        shutil.copytree(tmp_path / "staged", directory, ignore=shutil.ignore_patterns("*.sock"))
        ended = commit(directory, 1, step)
        assert ended in (0, 9)
        if ended == 0:
            break
        with Engine(directory, maintains=False) as engine:
            finish(engine.open(NAME))
            check_whole(engine.open(NAME), 1)
            assert not list(engine.open(NAME).directory.glob(f"{STAGED}/*/*/*"))
    assert step > 5, "a manifest, some appends, a removal"


def test_a_segment_is_taken_whole_or_not_at_all_wherever_a_process_ends(tmp_path: Path, as_segments: None) -> None:
    """Before each write, sync, link and rename of the first two."""
    staged(tmp_path / "staged", 1)
    heads: list[int] = []
    for operation in range(1, 16):
        directory = crashed_copy(tmp_path / "staged", tmp_path / f"operation{operation}")
        assert commit(directory, 1, operation=operation) == 9
        with Engine(directory, maintains=False) as engine:
            log = engine.open(NAME)
            heads.append(log.head())
            assert [each.id for each in log.read() if each.type == "E"] == ids_of(1)[: log.head() - 1]
            between = log.append([event("between")]).last
            finish(log)
            found = list(log.read())
            assert [each.id for each in found if each.type == "E"] == ids_of(1)
            assert [each.sequence_number for each in found] == list(range(1, len(found) + 1))
            assert found[between - 1].type == "between"
            assert not list(log.directory.glob(f"{STAGED}/*/*/*"))
        assert check_directory(directory).is_sound
    assert len(set(heads)) == 3, "none, one and two were taken"


@FORMS
def test_commits_that_are_killed_at_random_moments_are_exactly_once(
    request: pytest.FixtureRequest, form: str, tmp_path: Path
) -> None:
    form_of(request, form)
    batches, chance, directory = 6, random.Random(5), tmp_path / "data"
    staged(directory, batches)
    command = [sys.executable, "-m", "tests.crash.committer", str(directory), str(batches)]
    for round in range(ROUNDS):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            for _ in range(round % 3):
                process.stdout.readline()
            time.sleep(chance.uniform(0, 0.05) if round % 3 else chance.uniform(0.2, 0.6))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if round % 2:
            for index in directory.glob("logs/*/idx"):
                shutil.rmtree(index)
    assert commit(directory, batches) == 0
    with Engine(directory, maintains=False) as engine:
        check_whole(engine.open(NAME), batches)


@FORMS
def test_a_full_disk_in_the_middle_of_a_commit_leaves_nothing_half_known(
    request: pytest.FixtureRequest, form: str, tmp_path: Path
) -> None:
    form_of(request, form)
    from headwater.core.errors import DiskFull

    staged(tmp_path, 2)
    disk = FaultyDisk()

    def fill_up(name: str) -> None:
        if name == "appended":
            disk.free = 0

    with Engine(tmp_path, maintains=False, disk=disk) as engine:
        log = engine.open(NAME)
        for _ in range(3):
            with pytest.raises(DiskFull):
                commit_staged(log, log.directory, WRITER, 1, stages_of(log.directory, 1), step=fill_up)
            state = log.writer(WRITER)
            assert state is not None
            assert state.events == state.rows == sum(each.type == "E" for each in log.read())
            disk.free = None
        commit_staged(log, log.directory, WRITER, 1, [])
        commit_staged(log, log.directory, WRITER, 2, stages_of(log.directory, 2))
        check_whole(log, 2)


# The table of writers, through whatever happens to the log.


def columns(count: int) -> EventColumns:
    return check_append([event("M", data=bytes(500)) for _ in range(count)], LogSettings().event_bytes_max)


def with_marks(log: LocalLog) -> list[WriterState]:
    for batch in range(60):
        log.append_columns(columns(5), mark=Mark("a", batch, 5, True))
        log.append_columns(columns(5), mark=Mark("b", batch // 2, 5 + batch % 2, batch % 2 == 1))
    log.append_columns(EventColumns.none(), mark=Mark("empty", 3, 0, True))
    log.append([event("last")])
    return log.writers()


def crashed_copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))
    return target


def without_index(directory: Path) -> None:
    for path in directory.glob("logs/*/idx"):
        shutil.rmtree(path)


@pytest.mark.parametrize("harm", [lambda _: None, without_index])
@pytest.mark.parametrize("maintained", [False, True])
def test_the_writers_are_known_after_a_crash(tmp_path: Path, harm: Callable[[Path], None], maintained: bool) -> None:
    with Engine(tmp_path / "live", maintains=False) as engine:
        states = with_marks(engine.create(NAME))
        if maintained:
            engine.maintain()
        copy = crashed_copy(tmp_path / "live", tmp_path / "copy")
    harm(copy)
    for _ in range(2):
        with Engine(copy, maintains=False) as engine:
            assert engine.open(NAME).writers() == states
            assert engine.open(NAME).append_columns(columns(1), mark=Mark("empty", 3, 1, True)).was_stored


def test_the_writers_are_known_after_their_events_are_trimmed(tmp_path: Path) -> None:
    with Engine(tmp_path / "live", maintains=False) as engine:
        log = engine.create(NAME, LogSettings(keeps_history=False))
        states = with_marks(log)
        while log.frames.segments[-1].first <= states[1].last:  # until no frame with a mark is in the newest segment
            log.append([event("later", data=bytes(3000))])
        log.trim(log.head())
        engine.maintain()
        engine.maintain()
        assert log.frames.segments[0].first > states[0].last
        copy = crashed_copy(tmp_path / "live", tmp_path / "copy")
    with Engine(copy, maintains=False) as engine:
        assert engine.open(NAME).writers() == states


def test_a_restored_log_knows_the_writers_as_of_the_backup(tmp_path: Path) -> None:
    with Engine(tmp_path / "live", maintains=False) as engine:
        states = with_marks(engine.create(NAME))
        backup(tmp_path / "live", tmp_path / "backup")
        engine.open(NAME).append_columns(columns(1), mark=Mark("a", 99, 1, True))
    restore(tmp_path / "backup", tmp_path / "restored")
    assert check_directory(tmp_path / "restored").is_sound
    with Engine(tmp_path / "restored", maintains=False) as engine:
        log = engine.open(NAME)
        assert log.writers() == states
        assert log.append_columns(columns(1), mark=Mark("a", 59, 5, True)).was_stored
        appended = log.append_columns(columns(1), mark=Mark("a", 60, 1, True))
        assert appended.first == 10**12 + 1
    with Engine(tmp_path / "restored", maintains=False) as engine:
        assert engine.open(NAME).writer("a") == WriterState("a", 60, 1, appended.first, appended.first, 1, True)


@FORMS
def test_a_commit_that_a_backup_cut_in_two_is_finished_after_the_restore(
    request: pytest.FixtureRequest, form: str, tmp_path: Path
) -> None:
    form_of(request, form)
    staged(tmp_path / "live", 1)
    steps: list[str] = []

    def back_up_once(name: str) -> None:
        steps.append(name)
        if steps.count("appended") == 2 and not (tmp_path / "backup").exists():
            backup(tmp_path / "live", tmp_path / "backup")

    with Engine(tmp_path / "live", maintains=False) as engine:
        log = engine.open(NAME)
        commit_staged(log, log.directory, WRITER, 1, stages_of(log.directory, 1), step=back_up_once)
    restore(tmp_path / "backup", tmp_path / "restored")
    with Engine(tmp_path / "restored", maintains=False) as engine:
        log = engine.open(NAME)
        state = log.writer(WRITER)
        assert state is not None and not state.is_complete
        commit_staged(log, log.directory, WRITER, 1, [])
        assert [each.id for each in log.read() if each.type == "E"] == ids_of(1)


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"format":1,"upto":0,"crc":1,"writers":[]}'])
def test_a_lost_table_is_damage_and_its_loss_can_be_accepted(tmp_path: Path, content: bytes | None) -> None:
    with Engine(tmp_path, maintains=False) as engine:
        states = with_marks(engine.create(NAME))
    (path,) = tmp_path.glob(f"logs/*/{WRITERS_NAME}")
    path.unlink() if content is None else path.write_bytes(content)
    assert not check_directory(tmp_path).is_sound
    with Engine(tmp_path, maintains=False) as engine, pytest.raises(StorageCorrupted, match="--accept-loss"):
        engine.open(NAME)
    assert accept_loss(tmp_path, NAME) == []
    assert check_directory(tmp_path).is_sound
    with Engine(tmp_path, maintains=False) as engine:
        assert engine.open(NAME).writers() == states  # those without events are in the state


def test_a_mark_in_damaged_frames_goes_with_their_events(tmp_path: Path) -> None:
    with Engine(tmp_path / "live", maintains=False) as engine:
        log = engine.create(NAME)
        for batch in range(3):
            log.append_columns(columns(2), mark=Mark("a", batch, 2, True))
        ends = list(log.frames.segments[-1].offsets)
        log.append([event("after")])
        copy = crashed_copy(tmp_path / "live", tmp_path / "copy")
    (path,) = copy.glob("logs/*/log/*.log")
    content = bytearray(path.read_bytes())
    content[ends[2] + 300] ^= 1
    path.write_bytes(content)
    (copy / "LOCK").unlink()
    assert accept_loss(copy, NAME) == [(5, 6)]
    with Engine(copy, maintains=False) as engine:
        assert engine.open(NAME).writer("a") == WriterState("a", 1, 2, 3, 4, 2, True)


def test_what_the_table_vouches_for_is_not_cut_as_a_torn_tail(tmp_path: Path) -> None:
    with Engine(tmp_path / "live", maintains=False) as engine:
        log = engine.create(NAME)
        log.append_columns(columns(2), mark=Mark("a", 0, 2, True))
        log.writer_table.save()
        offset = log.frames.segments[-1].offsets[0]
        copy = crashed_copy(tmp_path / "live", tmp_path / "copy")
    (path,) = copy.glob("logs/*/log/*.log")
    content = bytearray(path.read_bytes())
    content[offset + 300] ^= 1
    path.write_bytes(content)
    with Engine(copy, maintains=False) as engine, pytest.raises(StorageCorrupted, match="events 1 to 2 are damaged"):
        engine.open(NAME)
