"""Files that are given up when a disk is full, and made again when it has room."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headwater.core.errors import DiskFull, StorageUnavailable
from headwater.core.settings import LogSettings
from headwater.storage import Engine
from headwater.storage.disk import ballast
from headwater.storage.disk.ballast import BALLAST, FILE_BYTES, fill, give_up, make_way, with_ballast
from headwater.storage.disk.system import Disk
from headwater.storage.segments.meta import Meta

from ..builders import engine, event
from ..disks import FullDisk


class LargeDisk(Disk):
    def size_bytes(self, directory: Path) -> int:
        return 1 << 40


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / BALLAST).glob("*"))


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with three files of ballast; what is freed counts as free at once."""
    monkeypatch.setattr(ballast, "WAITING_S", 0.0)
    for _ in range(3):
        assert fill(tmp_path, LargeDisk(), 0, 3 * FILE_BYTES)
    assert not fill(tmp_path, LargeDisk(), 0, 3 * FILE_BYTES)
    assert names(tmp_path) == ["00", "01", "02"]
    return tmp_path


class Step:
    """Finds no space so many times."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error, self.tries = times, error, 0

    def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self.times:
            raise self.error
        return "done"


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), OSError(errno.EDQUOT, "quota"), DiskFull("/data", 0, 1)]
)
def test_a_step_that_finds_no_space_is_tried_once_more(loaded: Path, error: Exception) -> None:
    assert with_ballast(loaded, Step(1, error)) == "done"
    assert names(loaded) == ["00", "01"]
    with pytest.raises(type(error)):
        with_ballast(loaded, Step(2, error))
    assert names(loaded) == ["00"]


def test_other_errors_cost_nothing(loaded: Path) -> None:
    step = Step(1, OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        with_ballast(loaded, step)
    assert step.tries == 1 and len(names(loaded)) == 3


def test_without_ballast_a_step_fails_as_it_did(tmp_path: Path) -> None:
    step = Step(1, DiskFull("/data", 0, 1))
    with pytest.raises(DiskFull):
        with_ballast(tmp_path, step)
    assert step.tries == 1


def test_it_is_made_where_the_reserve_stays_free_and_of_a_small_disk_takes_a_tenth(tmp_path: Path) -> None:
    full = FullDisk(free=3 * FILE_BYTES)
    assert not fill(tmp_path, full, 2 * FILE_BYTES, 16 * FILE_BYTES)
    full.free = 1 << 30
    full.size_bytes = lambda directory: 25 * FILE_BYTES  # type: ignore[method-assign]
    while fill(tmp_path, full, 0, 16 * FILE_BYTES):
        pass
    assert names(tmp_path) == ["00", "01"]


def test_less_of_it_is_kept_where_less_is_asked_for(loaded: Path) -> None:
    (loaded / BALLAST / "01.tmp").write_bytes(b"cut short")
    assert not fill(loaded, LargeDisk(), 0, FILE_BYTES)
    assert names(loaded) == ["00"]
    fill(loaded, LargeDisk(), 0, 0)
    assert names(loaded) == []


def test_a_start_gives_up_no_more_than_it_needs(loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_way(loaded)
    assert len(names(loaded)) == 3
    free = iter([(size, 99) for size in (0, 0, 1, 0, 0, 1, 1 << 30)])
    monkeypatch.setattr(ballast, "_free", lambda directory: next(free))
    make_way(loaded)
    assert names(loaded) == ["00"]


def test_none_is_left(loaded: Path) -> None:
    assert [give_up(loaded) for _ in range(4)] == [True, True, True, False]


def test_an_engine_makes_it_while_it_runs_not_while_it_opens(data: Path) -> None:
    with engine(data, maintains=False, ballast_bytes=2 * FILE_BYTES) as one:
        assert names(data) == []
        one.maintain()
        one.maintain()
        assert names(data) == ["00", "01"]
    with engine(data, maintains=False, ballast_bytes=0) as one:
        one.maintain()
        assert names(data) == []


def test_two_threads_that_give_up_at_once_both_get_space(loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = Path.unlink

    def late(path: Path, missing_ok: bool = False) -> None:
        if path.name == "02":  # the other thread was faster
            unlink(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", late)
    assert give_up(loaded)
    assert names(loaded) == ["00"]


def test_what_others_put_there_stays_and_is_not_in_the_way(loaded: Path) -> None:
    others = [loaded / BALLAST / name for name in ("zz", "99.txt", ".keep")]
    others[0].mkdir()
    for path in others[1:]:
        path.touch()
    assert not fill(loaded, LargeDisk(), 0, 3 * FILE_BYTES)
    fill(loaded, LargeDisk(), 0, 0)
    assert names(loaded) == [".keep", "99.txt", "zz"]
    fill(loaded, LargeDisk(), 0, FILE_BYTES)
    assert [give_up(loaded), give_up(loaded)] == [True, False]


def test_the_last_inodes_are_not_taken_for_it(loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = os.statvfs(loaded)[:6] + (ballast.START_INODES,) * 2 + os.statvfs(loaded)[8:]
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(few))
    assert give_up(loaded)
    assert not fill(loaded, LargeDisk(), 0, 3 * FILE_BYTES)
    assert names(loaded) == ["00", "01"]


def test_ballast_beside_the_data_directory_is_not_its_own(loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(meta: Meta, directory: Path) -> None:
        raise OSError(errno.ENOSPC, "full")

    with engine(loaded / "data") as one:
        log = one.create("orders", LogSettings())
        log.append([event(), event()])
        with monkeypatch.context() as full:
            full.setattr(Meta, "write", refused)
            with pytest.raises(DiskFull):
                log.trim(2)
    assert len(names(loaded)) == 3


def test_a_folder_of_other_programs_is_refused_though_it_is_called_ballast(tmp_path: Path) -> None:
    (tmp_path / BALLAST).mkdir()
    (tmp_path / BALLAST / "tanks.csv").touch()
    with pytest.raises(StorageUnavailable, match=r"not a data directory \(it contains 'ballast/tanks.csv'"):
        Engine(tmp_path)
    assert names(tmp_path) == ["tanks.csv"]
