"""Checks of a whole archive: what is damaged, gone or twice is found; older files get checksums."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from headwater.spark.archive import checks, staging
from headwater.spark.archive.checks import adopt, check
from headwater.spark.archive.compaction import compact
from headwater.spark.archive.errors import ArchiveUnreadable
from headwater.spark.archive.snapshot import Snapshot, snapshot
from headwater.spark.commandline import main

from ...parquet_damage import flip_in
from ..archive_tables import CLAIM, archive, stage


def paths(root: Path) -> list[Path]:
    return [Path(file.path) for file in snapshot(root).files]


def test_a_whole_archive_is_good(tmp_path: Path) -> None:
    archive(tmp_path, 200, batches=4, files=2)
    found = check(tmp_path)
    assert (found.log, found.files, found.events, found.unproved) == ("orders", 8, 200, 0)
    assert found.is_whole and found.gaps == []


def test_an_empty_archive_is_good(tmp_path: Path) -> None:
    archive(tmp_path)
    assert check(tmp_path).is_whole


def test_each_damaged_file_is_named_and_the_others_are_checked(tmp_path: Path) -> None:
    archive(tmp_path, 200, batches=4)
    first, second, third, _ = paths(tmp_path)
    flip_in(first, "data")
    second.unlink()
    third.write_bytes(third.read_bytes() + b"\0")
    found = check(tmp_path)
    assert [path.name in problem for path, problem in zip((first, second, third), found.problems, strict=True)] == [
        True
    ] * 3
    assert (found.files, found.events, found.gaps) == (4, 50, [])


def test_numbers_that_are_not_there_are_told(tmp_path: Path) -> None:
    table = archive(tmp_path, 50)
    staged = stage(tmp_path, 60, [*range(61, 71), *range(81, 91)], count=lambda after, upto: 20)
    assert staged
    table.commit(staged.files, 50, 100, CLAIM)
    assert check(tmp_path).gaps == [(51, 60), (71, 80), (91, 100)]
    assert check(tmp_path).is_whole


def test_a_number_that_is_there_twice_is_a_problem(tmp_path: Path) -> None:
    table = archive(tmp_path, 50)
    staged = stage(tmp_path, 40, range(41, 61))
    assert staged
    table.commit(staged.files, 50, 60, CLAIM)
    assert ["event 41 occurs twice" in problem for problem in check(tmp_path).problems] == [True]


def test_older_files_are_unproved_until_they_are_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "add_checksums", lambda path: path)
    archive(tmp_path, 200, batches=3, each_ms=600_000)
    monkeypatch.undo()
    before = check(tmp_path)
    assert before.is_whole and before.unproved == before.files > 3
    assert adopt(tmp_path) == before.files
    after = check(tmp_path)
    assert after.is_whole
    assert (after.files, after.events, after.unproved, after.gaps) == (before.files, before.events, 0, [])
    assert adopt(tmp_path) == 0


def test_a_damaged_older_file_is_not_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "add_checksums", lambda path: path)
    archive(tmp_path, 50)
    monkeypatch.undo()
    (path,) = paths(tmp_path)
    flip_in(path, "id")
    with pytest.raises(ArchiveUnreadable, match="a page does not match its checksum"):
        adopt(tmp_path)
    assert paths(tmp_path) == [path]


def test_files_that_are_compacted_meanwhile_are_adopted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "add_checksums", lambda path: path)
    archive(tmp_path, 200, batches=8, each_ms=1_200_000)
    monkeypatch.undo()
    listed: list[Snapshot] = []

    def compacted_then(path: Path, version: int | None = None) -> Snapshot:
        listed.append(snapshot(path, version))
        if len(listed) == 1:
            compact(tmp_path, before=date(2100, 1, 1))
        return listed[-1]

    monkeypatch.setattr(checks, "snapshot", compacted_then)
    adopt(tmp_path)
    monkeypatch.undo()
    after = check(tmp_path)
    assert (after.problems, after.events, after.unproved) == ([], 200, 0)


def test_an_older_file_in_the_place_of_another_is_not_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "add_checksums", lambda path: path)
    archive(tmp_path, 50, batches=2)
    monkeypatch.undo()
    first, second = paths(tmp_path)
    first.write_bytes(second.read_bytes())
    with pytest.raises(ArchiveUnreadable, match="it has 25 events, 26 to 50, but the table lists 25, 1 to 25"):
        adopt(tmp_path)


def test_the_command_ends_with_1_where_something_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive(tmp_path, 50)
    assert main(["archive", "check", str(tmp_path)], "pipeline") == 0
    assert capsys.readouterr().out.endswith("OK\n")
    (path,) = paths(tmp_path)
    flip_in(path, "data")
    assert main(["archive", "check", str(tmp_path), "--json"], "pipeline") == 1
    assert path.name in capsys.readouterr().out
    assert main(["archive", "check", str(tmp_path)], "pipeline") == 1
    told = capsys.readouterr()
    assert path.name in told.err and told.out.endswith("NOT OK: see the problems above\n")
