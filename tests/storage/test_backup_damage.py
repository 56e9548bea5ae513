"""A backup of what is damaged, and a backup that was damaged: it is told, with numbers, and never served in silence."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.cli.storage import backup as backup_command
from headwater.cli.storage import check as check_command
from headwater.cli.storage import restore as restore_command
from headwater.core.errors import StorageCorrupted, StorageUnavailable
from headwater.storage import accept_loss, backup, check_directory, restore
from headwater.storage.backup import _Copy
from headwater.storage.disk.summed_copy import FileSum, copy_summed
from headwater.storage.repair.manifest import MANIFEST, read_manifest
from headwater.storage.segments.meta import HISTORY, read_meta
from headwater.storage.segments.recovery import SegmentScan
from headwater.storage.segments.segment import Segment

from .builders import change, engine, event, fill, log_directory, numbers

pytestmark = pytest.mark.usefixtures("small_segments", "in_line")


@pytest.fixture
def two(data: Path) -> Path:
    """A data directory of two logs, one of them with sealed segments and history."""
    with engine(data) as one:
        fill(one.create("orders"), 150)
        fill(one.create("sound"), 20)
        one.open("orders").trim(60)  # before the postings of its segments could be merged
        one.maintain()
        one.maintain()
    return data


@pytest.fixture
def made(two: Path, tmp_path: Path) -> Path:
    """A sound backup of it."""
    backup(two, tmp_path / "backup")
    return tmp_path / "backup"


def segments(data: Path) -> list[Path]:
    return sorted(log_directory(data).glob("log/*.log"))


def flip(path: Path, at: int) -> None:
    change(path, at, bytes([path.read_bytes()[at] ^ 4]))


@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_range_is_told_with_its_numbers_and_the_other_logs_are_whole(
    two: Path, tmp_path: Path, which: int
) -> None:
    path = segments(two)[which]
    flip(path, 10_000 if which == 0 else 700)
    found = CliRunner().invoke(backup_command, [str(tmp_path / "backup"), "--data", str(two)])
    assert found.exit_code == 1, found.output
    assert "orders is damaged:" in found.output and "are damaged (" in found.output and str(path) in found.output
    assert "sound is damaged" not in found.output
    assert not check_directory(tmp_path / "backup").is_sound
    with pytest.raises(StorageCorrupted, match="log orders was damaged when it was backed up"):
        restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    restored = CliRunner().invoke(
        restore_command, [str(tmp_path / "backup"), str(tmp_path / "restored"), "--accept-damage"]
    )
    assert restored.exit_code == 0 and "orders is damaged:" in restored.output, restored.output
    with engine(tmp_path / "restored") as one:
        assert numbers(one.open("sound").read()) == list(range(1, 21))
        with pytest.raises(StorageCorrupted):
            list(one.open("orders").read())
    ((first, last),) = accept_loss(tmp_path / "restored", "orders")
    with engine(tmp_path / "restored") as one:
        lost = range(first, last + 1)
        assert numbers(one.open("orders").read()) == [n for n in range(60, 151) if n not in lost]
        assert one.open("orders").append([event()]).first > 1 << 20


def test_durable_events_behind_damage_are_not_cut_off_in_silence(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        for _ in range(20):
            log.append([event()])
        offset = log.frames.segments[-1].offsets[10]
    flip(segments(data)[-1], offset + 60)
    report = backup(data, tmp_path / "backup")
    assert report.logs == {"orders": 20}
    assert "events 11 to 11 are damaged" in report.damaged["orders"][0]


@pytest.mark.parametrize("pattern", ["history/*.postings", "META.json", "log/*.log"])
def test_a_log_without_one_of_its_files_is_told(two: Path, tmp_path: Path, pattern: str) -> None:
    sorted(log_directory(two).glob(pattern))[0].unlink()
    report = backup(two, tmp_path / "backup")
    assert report.logs["sound"] == 20
    assert ("orders" in report.damaged) == (pattern != "META.json"), "META.json is made again from the state"
    assert "sound" not in report.damaged


def test_a_file_that_the_disk_does_not_give_is_told(two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = segments(two)[0]

    def copying(source: Path, target: Path, **how: bool) -> FileSum:
        found = copy_summed(source, target, **how)
        if source == failing:
            with open(target, "r+b") as file:
                file.truncate(4096)
            raise OSError(errno.EIO, "Input/output error")
        return found

    monkeypatch.setattr(sys.modules["headwater.storage.backup"], "copy_summed", copying)
    report = backup(two, tmp_path / "backup")
    assert "Input/output error after 4096 bytes" in report.damaged["orders"][0]
    assert any("are damaged" in problem for problem in report.damaged["orders"])
    assert list(report.damaged) == ["orders"]


def _flip(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def _cut(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 8)


def _swap(path: Path) -> None:
    other = next(each for each in sorted(path.parent.glob(f"*{path.suffix}")) if each != path)
    aside = path.with_suffix(".aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


def _older(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_flip, _cut, _older, Path.unlink])
@pytest.mark.parametrize("pattern", ["logs/*/log/*.log", "logs/*/idx/*.places", "logs/*/META.json", "state.sqlite"])
def test_a_file_of_a_backup_that_is_not_what_was_copied_is_refused(
    made: Path, tmp_path: Path, harm: Callable[[Path], None], pattern: str
) -> None:
    harm(sorted(made.glob(pattern))[0])
    found = CliRunner().invoke(check_command, [str(made)])
    assert found.exit_code == 5, found.output
    with pytest.raises(StorageCorrupted):
        restore(made, tmp_path / "restored")
    with pytest.raises(StorageUnavailable, match="interrupted backup or restore"):
        engine(tmp_path / "restored")
    with pytest.raises(StorageUnavailable, match="interrupted backup or restore"):
        backup(tmp_path / "restored", tmp_path / "again")


def test_swapped_and_added_files_of_a_backup_are_told_and_an_added_one_is_not_restored(
    made: Path, tmp_path: Path
) -> None:
    added = log_directory(made) / "idx" / f"{1:020d}-{2:020d}.postings"
    shutil.copyfile(sorted(log_directory(made).glob("idx/*.postings"))[0], added)
    assert any("does not belong to the backup" in problem for problem in check_directory(made).problems)
    restore(made, tmp_path / "restored")
    assert not (log_directory(tmp_path / "restored") / "idx" / added.name).exists()
    _swap(segments(made)[0])
    with pytest.raises(StorageCorrupted, match=r"expected \d+ bytes, got \d+"):
        restore(made, tmp_path / "other")


def test_a_restore_that_is_killed_leaves_no_data_directory(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _Copy.file

    def killed(self: _Copy, source: Path, relative: Path, **how: bool) -> FileSum | None:
        if relative.suffix == ".log":
            raise KeyboardInterrupt
        return real(self, source, relative, **how)

    monkeypatch.setattr(_Copy, "file", killed)
    with pytest.raises(KeyboardInterrupt):
        restore(made, tmp_path / "restored")
    with pytest.raises(StorageUnavailable, match="interrupted backup or restore"):
        engine(tmp_path / "restored")


def _has_no_sums(made: Path) -> None:
    """As 0.1.0 made it."""
    heads = read_manifest(made).logs
    (made / MANIFEST).write_text(f'{{"created_at": 1, "logs": {json.dumps(heads)}, "format": 1}}')


def test_a_backup_without_sums_is_restored_and_told_as_unproved(made: Path, tmp_path: Path) -> None:
    _has_no_sums(made)
    report = check_directory(made)
    assert report.is_sound and "cannot be detected" in report.notes[0]
    found = CliRunner().invoke(restore_command, [str(made), str(tmp_path / "restored")])
    assert found.exit_code == 0 and "without file checksums" in found.output
    with engine(tmp_path / "restored") as one:
        assert numbers(one.open("orders").read()) == list(range(60, 151))


def test_what_is_no_whole_backup_is_not_checked_as_one(two: Path) -> None:
    found = CliRunner().invoke(check_command, [str(two)])
    assert isinstance(found.exception, StorageUnavailable) and "not a complete backup" in str(found.exception)


def test_frames_that_the_server_writes_while_the_file_is_read_are_no_damage(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first half of a frame was read before it was written, and the frame behind it after it was."""
    with engine(data) as one:
        log = one.create("orders")
        for _ in range(20):
            log.append([event()])
        segment = log.frames.segments[-1]
        offset = segment.offsets[18]

        def copying(source: Path, target: Path, **how: bool) -> FileSum:
            found = copy_summed(source, target, **how)
            if source == segment.path and not target.with_suffix(".read").exists():
                target.with_suffix(".read").touch()
                change(target, offset, bytes(64))
            return found

        monkeypatch.setattr(sys.modules["headwater.storage.backup"], "copy_summed", copying)
        report = backup(data, tmp_path / "backup")
    assert report.logs == {"orders": 20} and not report.damaged


@pytest.mark.parametrize("cut", ["its last frame", "all of it"])
def test_events_that_a_backup_has_lost_at_its_end_are_missed(made: Path, tmp_path: Path, cut: str) -> None:
    """By the head in the manifest: a segment that is cut at a frame looks like one that ended there."""
    newest = segments(made)[-1]
    first = int(newest.stem)
    if cut == "all of it":
        newest.unlink()
    else:
        segment = Segment(newest, bytes.fromhex(read_meta(log_directory(made)).segments_id))
        SegmentScan(segment, []).run()
        first, end = segment.firsts[-1], segment.offsets[-1]
        os.truncate(newest, end)
    _has_no_sums(made)
    with pytest.raises(StorageCorrupted, match=f"events {first} to 150 are missing"):
        restore(made, tmp_path / "refused")
    target = tmp_path / "target"
    assert f"events {first} to 150 are missing" in restore(made, target, accepts_damage=True).damaged["orders"][0]
    with engine(target) as one, pytest.raises(StorageCorrupted, match=f"{first} to 150 are"):
        one.open("orders")
    assert accept_loss(target, "orders") == [(first, 150)]
    with engine(target) as one:
        assert numbers(one.open("orders").read()) == list(range(60, first))


def test_history_that_is_merged_while_it_is_copied_is_whole_in_the_backup(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    copy = _Copy.file

    def merges_first(self: _Copy, source: Path, relative: Path, **how: bool) -> FileSum | None:
        if HISTORY in source.parts and not copied:
            copied.append(source.name)
            source.rename(source.with_name(source.name.replace("-", "-0", 1)))
        return copy(self, source, relative, **how)

    monkeypatch.setattr(_Copy, "file", merges_first)
    backup(two, tmp_path / "backup")
    assert copied
    there = {path.name for path in (log_directory(two) / HISTORY).glob("*.postings")}
    assert there == {path.name for path in (log_directory(tmp_path / "backup") / HISTORY).glob("*.postings")}


def test_a_state_that_a_start_rebuilds_is_not_to_be_restored_or_given_up(data: Path, tmp_path: Path) -> None:
    with engine(data) as opened:
        fill(opened.create("whole"), 3)
    change(data / "state.sqlite", 5, b"?")
    with pytest.raises(StorageCorrupted, match=r"file is not a database; nothing is lost: start \(or restart\)"):
        backup(data, tmp_path / "backup")
    with engine(data) as opened:
        assert opened.open("whole").head() == 3
    assert not backup(data, tmp_path / "second").damaged
    change(data / "state.sqlite", 5, b"?")
    shutil.rmtree(data / "journal")
    with pytest.raises(StorageCorrupted, match="--accept-state-loss"):
        backup(data, tmp_path / "again")
