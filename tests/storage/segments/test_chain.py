"""Frames and segments that are whole, but not those that were written: each one has the checksum of the one before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headwater.core import SequencedEvent
from headwater.core.errors import StorageCorrupted
from headwater.storage import accept_loss, check_directory
from headwater.storage.disk.system import Disk
from headwater.storage.home.replicated_log import open_copy
from headwater.storage.read.mapped_log import MappedLog
from headwater.storage.segments.meta import read_meta
from headwater.storage.segments.recovery import SegmentScan
from headwater.storage.segments.segment import Segment

from .. import builders
from ..builders import change, crashed, engine, fill, log_directory, numbers

pytestmark = pytest.mark.usefixtures("small_segments", "in_line")


@pytest.fixture
def forked(data: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A directory, and the same one as a second server went on with it."""
    return builders.forked(data, tmp_path / "other")


def segments(data: Path) -> list[Segment]:
    log = log_directory(data)
    found = [Segment(path, bytes.fromhex(read_meta(log).segments_id)) for path in sorted((log / "log").glob("*.log"))]
    for segment in found:
        SegmentScan(segment, ()).run()
    return found


def put(data: Path, other: Path, which: int, index: int) -> int:
    """Write a frame of the other directory over the one at its place; answers its number."""
    ours, theirs = segments(data)[which], segments(other)[which]
    index %= len(ours.offsets)
    assert list(ours.offsets) == list(theirs.offsets), "a frame fits where the other one was"
    frame = theirs.frame(index)
    change(ours.path, frame.offset, bytes(theirs.buffer[frame.offset : frame.offset + frame.length]))
    return frame.first


def read_all(data: Path) -> list[SequencedEvent]:
    with engine(data) as one:
        return list(one.open("orders").read())


FRAMES = [(0, 20), (1, 0), (1, 5), (1, -1), (-1, 0), (-1, 3), (-1, -1)]


@pytest.mark.parametrize(("which", "index"), FRAMES)
@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_whole_frame_of_another_server_is_damage_for_check_and_for_the_server(
    forked: tuple[Path, Path], which: int, index: int, is_indexed: bool
) -> None:
    data, other = forked
    number = put(data, other, which, index)
    if not is_indexed:
        shutil.rmtree(log_directory(data) / "idx")
    assert "does not follow" in str(check_directory(data).logs[0].problems)
    for _ in range(2):
        with pytest.raises(StorageCorrupted, match="does not follow"):
            read_all(data)
    given_up = [n for first, last in accept_loss(data, "orders") for n in range(first, last + 1)]
    assert given_up and abs(given_up[0] - number) <= 1
    found = read_all(data)
    assert numbers(found) == [n for n in range(1, 151) if n not in given_up]
    assert check_directory(data).is_sound


@pytest.mark.parametrize("index", [-1, -2])
def test_a_frame_that_another_server_wrote_last_is_not_cut_off_in_silence(
    forked: tuple[Path, Path], index: int
) -> None:
    data, other = forked
    put(data, other, -1, index)
    image = crashed(data, data.with_name("image"))
    meta = read_meta(log_directory(image))
    meta.changed(clean=None).write(log_directory(image))
    assert not check_directory(image).is_sound
    with pytest.raises(StorageCorrupted, match="does not follow"):
        read_all(image)


def test_a_frame_in_the_place_of_its_neighbour_is_refused(forked: tuple[Path, Path]) -> None:
    data, _ = forked
    segment = segments(data)[1]
    first, second = segment.frame(4), segment.frame(5)
    assert first.length == second.length
    change(segment.path, second.offset, bytes(segment.buffer[first.offset : first.offset + first.length]))
    assert not check_directory(data).is_sound
    with pytest.raises(StorageCorrupted):
        read_all(data)


@pytest.mark.parametrize("is_indexed", [True, False])
@pytest.mark.parametrize("which", [1, -2])
def test_a_sealed_segment_of_another_server_is_refused_by_the_opening(
    forked: tuple[Path, Path], which: int, is_indexed: bool
) -> None:
    data, other = forked
    shutil.copyfile(segments(other)[which].path, segments(data)[which].path)
    if not is_indexed:
        shutil.rmtree(log_directory(data) / "idx")
    assert "does not follow" in str(check_directory(data).logs[0].problems)
    with engine(data) as one, pytest.raises(StorageCorrupted, match="does not follow"):
        one.open("orders")
    assert accept_loss(data, "orders")
    assert read_all(data)


@pytest.mark.parametrize(("which", "index"), [(1, 5), (-1, 3)])
def test_a_process_that_maps_segments_refuses_it_too(forked: tuple[Path, Path], which: int, index: int) -> None:
    data, other = forked
    put(data, other, which, index)
    mapped = MappedLog(log_directory(data))
    mapped.refresh(150)
    with pytest.raises(StorageCorrupted, match="does not follow"):
        for _ in mapped.scan(0, 150):
            pass


@pytest.mark.parametrize(("which", "index"), [(0, 20), (1, 0), (-1, 3)])
def test_a_copy_ends_before_a_frame_that_does_not_follow(forked: tuple[Path, Path], which: int, index: int) -> None:
    """The rest is fetched from the home."""
    data, other = forked
    shutil.rmtree(log_directory(data) / "idx")
    (log_directory(data) / "idx").mkdir()
    number, log = put(data, other, which, index), log_directory(data)
    log_id = bytes.fromhex(read_meta(log).segments_id)
    opened = open_copy(log / "log", log / "idx", log_id, clean=None, first_retained=1, gaps=(), disk=Disk())
    assert opened[-1].last == number - 1
    for segment in opened:
        segment.close()


def test_damage_of_one_frame_is_no_damage_of_the_next(forked: tuple[Path, Path]) -> None:
    data, _ = forked
    segment = segments(data)[1]
    damaged = segment.frame(5)
    change(segment.path, damaged.offset + 4, b"\x00\x00")  # its checksum
    with engine(data) as one:
        log = one.open("orders")
        assert numbers(log.read(from_=damaged.last + 1))[0] == damaged.last + 1
        with pytest.raises(StorageCorrupted, match="the checksum does not match"):
            list(log.read(from_=damaged.first))


@pytest.mark.parametrize("is_indexed", [True, False])
def test_the_newest_segment_of_another_server_is_refused_by_the_opening(
    data: Path, tmp_path: Path, is_indexed: bool
) -> None:
    """It is as long, and follows the segment before it: only META knows how the log ended."""
    with engine(data) as one:
        fill(one.create("orders"), 150, data=b"a" * 60)
        one.maintain()
    other = crashed(data, tmp_path / "other")
    for directory, payload in ((data, b"a" * 60), (other, b"b" * 60)):
        with engine(directory) as one:
            fill(one.open("orders"), 5, data=payload)
    ours, theirs = segments(data)[-1], segments(other)[-1]
    assert (ours.path.name, ours.end, ours.last) == (theirs.path.name, theirs.end, theirs.last)
    shutil.copyfile(theirs.path, ours.path)
    if not is_indexed:
        shutil.rmtree(log_directory(data) / "idx")
    for _ in range(2):
        with (
            engine(data) as one,
            pytest.raises(StorageCorrupted, match="ended with a different frame when it was closed"),
        ):
            one.open("orders")
    assert "when it was closed" in str(check_directory(data).logs[0].problems)
    assert accept_loss(data, "orders") == [(155, 155)]
    assert numbers(read_all(data)) == list(range(1, 155))
    assert check_directory(data).is_sound
