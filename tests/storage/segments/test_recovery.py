"""Opening after a crash: a torn tail is cut, damage to what was durable is refused, nothing is made up."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from headwater.core import Event
from headwater.core.errors import StorageCorrupted, StorageUnavailable
from headwater.storage import Engine, accept_loss, check_directory
from headwater.storage.disk.system import Disk
from headwater.storage.frames.encoding import Chain
from headwater.storage.frames.layout import HEADER_BYTES
from headwater.storage.segments.meta import CleanStop
from headwater.storage.segments.recovery import open_segments
from headwater.storage.segments.segment import SEGMENT_HEADER_BYTES, Segment, segment_header, segment_name

from ..builders import (
    LOG_ID,
    SEED,
    chained,
    change,
    content,
    crashed,
    encoded,
    engine,
    event,
    fill,
    log_directory,
    numbers,
)
from ..disks import BrokenDisk

ROOM = 16 * 1024


class Image:
    """One segment with a few frames, as bytes that can be damaged, and its opening."""

    def __init__(self, directory: Path, sizes: tuple[int, ...] = (1, 2, 1)) -> None:
        self.path = directory / segment_name(1)
        self.frames = chained(sizes, data=b"x" * 30)
        self.offsets = [SEGMENT_HEADER_BYTES]
        for frame in self.frames:
            self.offsets.append(self.offsets[-1] + frame.length)
        self.whole = segment_header(LOG_ID, 1, SEED) + b"".join(map(content, self.frames))
        self.end = len(self.whole)
        self.whole += bytes(ROOM - self.end)

    def open(self, found: bytes, *, known_durable: int = 0, lost: tuple[tuple[int, int], ...] = ()) -> Segment:
        self.path.write_bytes(found)
        directory = self.path.parent
        (segment,) = open_segments(
            directory,
            directory,
            LOG_ID,
            clean=None,
            known_durable=known_durable,
            first_retained=1,
            gaps=lost,
            disk=Disk(),
        )
        segment.close()
        return segment

    def patched(self, offset: int, piece: bytes) -> bytes:
        return self.whole[:offset] + piece + self.whole[offset + len(piece) :]

    def flipped(self, offset: int) -> bytes:
        """One byte is another, whatever it was: ids are random."""
        return self.patched(offset, bytes([self.whole[offset] ^ 0xFF]))


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


def assert_ready(image: Image, segment: Segment, last: int) -> None:
    """The segment ends with that event, and nothing but zeros follows, in the file too."""
    assert segment.last == last
    end = image.offsets[[0, *(frame.last for frame in image.frames)].index(last)]
    assert segment.end == end
    on_disk = image.path.read_bytes()
    assert on_disk == image.whole[:end] + bytes(ROOM - end)
    assert bytes(segment.buffer) == on_disk


def test_a_whole_segment_is_left_as_it_is(image: Image) -> None:
    assert_ready(image, image.open(image.whole), 4)
    assert_ready(image, image.open(image.whole, known_durable=4), 4)


def test_a_tail_that_is_cut_at_any_byte_is_cut_to_the_last_whole_frame(image: Image) -> None:
    """What follows the cut was never written: zeros. The last frame was never durable."""
    for length in range(image.offsets[2], image.end):
        segment = image.open(image.whole[:length] + bytes(ROOM - length))
        assert_ready(image, segment, 4 if not any(image.whole[length : image.end]) else 3)


def test_a_file_that_ends_at_any_byte_of_its_last_frame_opens(image: Image) -> None:
    for length in range(image.offsets[2], image.end, 3):
        assert image.open(image.whole[:length]).last == 3


def test_any_flipped_byte_of_the_last_frame_cuts_it(image: Image) -> None:
    for position in range(image.offsets[2], image.end):
        segment = image.open(image.patched(position, bytes([image.whole[position] ^ 0x41])))
        assert_ready(image, segment, 3)


def test_any_flipped_byte_of_a_durable_frame_refuses_to_open(image: Image) -> None:
    """The second frame is durable, because the third was written after it."""
    for position in range(image.offsets[1], image.offsets[2]):
        with pytest.raises(StorageCorrupted) as refused:
            image.open(image.patched(position, bytes([image.whole[position] ^ 0x41])))
        assert "events 2 to 3 are damaged" in refused.value.problem
        assert "headwater restore" in refused.value.remedy
        assert "--accept-loss" in refused.value.remedy


@pytest.mark.parametrize("count", [1, 8, 64, HEADER_BYTES, HEADER_BYTES + 20])
def test_zeros_anywhere_in_a_durable_frame_refuse_to_open(image: Image, count: int) -> None:
    for position in range(image.offsets[1], image.offsets[2] - count, 5):
        zeroed = image.patched(position, bytes(count))
        if zeroed == image.whole:
            continue
        with pytest.raises(StorageCorrupted, match="events 2 to 3 are damaged"):
            image.open(zeroed)


def test_a_durable_frame_that_is_all_zeros_refuses_to_open(image: Image) -> None:
    with pytest.raises(StorageCorrupted, match="events 2 to 3 are damaged"):
        image.open(image.patched(image.offsets[1], bytes(image.frames[1].length)))


def test_a_consumer_that_acknowledged_the_last_event_makes_it_durable(image: Image) -> None:
    for found in (
        image.flipped(image.offsets[2] + 20),
        image.patched(image.offsets[2], bytes(image.frames[2].length)),
        image.whole[: image.offsets[2]],
    ):
        with pytest.raises(StorageCorrupted, match="events 4 to 4 are damaged"):
            image.open(found, known_durable=4)
        assert image.open(found, known_durable=4, lost=((4, 4),)).last == 3


def test_a_torn_tail_whose_first_page_was_lost_is_cut(tmp_path: Path) -> None:
    image = Image(tmp_path, (1, 1, 60))
    start = image.offsets[2]
    segment = image.open(image.patched(start, bytes(4096 - start)))
    assert_ready(image, segment, 2)


def test_frames_behind_a_torn_one_that_were_written_with_it_are_cut_too(tmp_path: Path) -> None:
    """Three frames of one write: none was known to be durable when the others were made."""
    image = Image(tmp_path)
    image.frames = []
    crc = 0
    for number in (1, 2, 3):
        chain = (SEED, 1, crc, 0, 7)
        image.frames.append(encoded([event()], number, chain=Chain(*chain)))
        crc = image.frames[-1].crc
    lengths = [SEGMENT_HEADER_BYTES]
    for frame in image.frames:
        lengths.append(lengths[-1] + frame.length)
    image.offsets = lengths
    whole = segment_header(LOG_ID, 1, SEED) + b"".join(map(content, image.frames))
    image.whole = whole + bytes(ROOM - len(whole))
    segment = image.open(image.flipped(lengths[1] + 50))
    assert_ready(image, segment, 1)


@pytest.mark.parametrize("garbage", [b"\x01", b"HWF1", b"HWF1" + bytes(300), b"\xff" * 5000])
@pytest.mark.parametrize("distance", [0, 1, 8, 3000])
def test_garbage_behind_the_end_is_cut(image: Image, garbage: bytes, distance: int) -> None:
    assert_ready(image, image.open(image.patched(image.end + distance, garbage)), 4)


def test_a_whole_frame_of_another_chain_behind_the_end_is_cut(image: Image) -> None:
    stray = encoded([event()], 5, chain=Chain(SEED, 1, 12345, 0, 7))
    assert_ready(image, image.open(image.patched(image.end, content(stray))), 4)


def test_a_repeated_frame_behind_the_end_is_cut(image: Image) -> None:
    assert_ready(image, image.open(image.patched(image.end, content(image.frames[0]))), 4)


def test_random_damage_behind_what_is_durable_never_stops_a_log(image: Image) -> None:
    chance = random.Random(1)
    for _ in range(300):
        start = chance.randrange(image.offsets[2], ROOM - 10)
        piece = chance.randbytes(chance.randrange(1, min(3000, ROOM - start)))
        assert image.open(image.patched(start, piece)).last in (3, 4)


def test_a_recovered_segment_is_on_disk_before_it_is_served(image: Image) -> None:
    """What a killed process had written, but not synced, must not vanish after readers have seen it."""
    image.path.write_bytes(image.whole)
    disk = BrokenDisk()
    directory = image.path.parent
    (segment,) = open_segments(
        directory, directory, LOG_ID, clean=None, known_durable=0, first_retained=1, gaps=(), disk=disk
    )
    segment.close()
    assert disk.syncs == 1


def test_a_segment_without_a_frame_is_what_a_crash_after_its_creation_leaves(image: Image) -> None:
    assert image.open(segment_header(LOG_ID, 1, SEED) + bytes(ROOM)).last == 0


def test_a_frame_of_a_newer_format_refuses_to_open(image: Image) -> None:
    rest = bytearray(content(image.frames[2]))[8:]
    struct.pack_into("<H", rest, 8, 9)
    newer = b"HWF1" + struct.pack("<I", google_crc32c.extend(SEED, bytes(rest))) + bytes(rest)
    with pytest.raises(StorageUnavailable, match=r"format version 9.*use a newer headwater"):
        image.open(image.patched(image.offsets[2], newer))


# The clean stop.


def clean(image: Image, **changes: int) -> CleanStop:
    ending = {"head": 4, "end": image.end, "crc": image.frames[-1].crc, **changes}
    return CleanStop(ending["head"], image.path.name, ending["end"], ending["crc"])


def open_after_clean_stop(image: Image, found: bytes, stop: CleanStop) -> Segment:
    image.path.write_bytes(found)
    directory = image.path.parent
    (segment,) = open_segments(
        directory,
        directory,
        LOG_ID,
        clean=stop,
        known_durable=stop.head,
        first_retained=1,
        gaps=(),
        disk=Disk(),
    )
    segment.close()
    return segment


def test_after_a_clean_stop_the_end_is_where_it_was(image: Image) -> None:
    segment = open_after_clean_stop(image, image.whole, clean(image))
    assert (segment.last, segment.end, segment.last_crc) == (4, image.end, image.frames[-1].crc)


@pytest.mark.parametrize("frame", [0, 1, 2])
def test_after_a_clean_stop_a_changed_header_is_noticed(image: Image, frame: int) -> None:
    with pytest.raises(StorageCorrupted):
        open_after_clean_stop(image, image.patched(image.offsets[frame] + 9, b"\x7f"), clean(image))


def test_after_a_clean_stop_missing_frames_are_noticed(image: Image) -> None:
    for kept in (1, 2):
        shorter = image.whole[: image.offsets[kept]]
        with pytest.raises(StorageCorrupted, match=f"events {image.frames[kept].first} to 4 are damaged"):
            open_after_clean_stop(image, shorter + bytes(ROOM - len(shorter)), clean(image))


def test_after_a_clean_stop_damage_to_a_body_is_noticed_when_it_is_read(image: Image) -> None:
    segment = open_after_clean_stop(image, image.flipped(image.offsets[1] - 20), clean(image))
    with pytest.raises(StorageCorrupted, match="events 1 to 1 are damaged"):
        segment.frame(0)
    assert segment.frame(1).first == 2


# Whole logs.


def appended(log_numbers: range, target: Engine) -> None:
    for number in log_numbers:
        target.open("orders").append([event("E", f"n:{number}", id=str(number))])


@pytest.fixture
def five(data: Path, tmp_path: Path) -> Path:
    """What a crash leaves of a log of five events, a frame each."""
    with engine(data) as one:
        one.create("orders")
        appended(range(1, 6), one)
        return crashed(data, tmp_path / "crashed")


def damage(directory: Path, *places: int, name: str = "orders") -> None:
    """Flip a byte in each of these frames (by index) of the log's only segment."""
    copy = directory.with_name("look")
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("*.sock"))
    with engine(copy) as look:
        segment = look.open(name).frames.segments[0]
        offsets = [segment.offsets[place] for place in places]
        file_name = segment.path.name
    shutil.rmtree(copy)
    for offset in offsets:
        change(log_directory(directory, name) / "log" / file_name, offset + 40, b"\xee\xee")


def test_everything_acknowledged_is_there_after_a_crash(five: Path) -> None:
    with engine(five) as again:
        log = again.open("orders")
        assert numbers(log.read()) == [1, 2, 3, 4, 5]
        appended(range(6, 8), again)
        assert numbers(log.read()) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("places", "left"),
    [((1,), [1, 3, 4, 5]), ((1, 2), [1, 4, 5]), ((0,), [2, 3, 4, 5]), ((0, 2), [2, 4, 5]), ((3,), [1, 2, 3, 5])],
)
def test_accepted_losses_are_read_over_in_every_direction(five: Path, places: tuple[int, ...], left: list[int]) -> None:
    damage(five, *places)
    with engine(five) as refusing, pytest.raises(StorageCorrupted):
        refusing.open("orders")
    given_up = accept_loss(five, "orders")
    lost = [number for low, high in given_up for number in range(low, high + 1)]
    assert lost == [place + 1 for place in places]
    assert accept_loss(five, "orders") == []
    assert check_directory(five).is_sound
    for _ in range(3):  # clean and unclean stops
        with engine(five) as again:
            log = again.open("orders")
            assert numbers(log.read()) == left
            assert numbers(log.read(backwards=True)) == left[::-1]
            assert [numbers(log.read(from_=number)) for number in range(1, 6)] == [
                [each for each in left if each >= number] for number in range(1, 6)
            ]
            assert log.info().events == len(left)
            next_number = log.head() + 1
            assert next_number not in lost and next_number > 5
            log.append([event(id=str(next_number))])
            left = [*left, next_number]
            assert numbers(log.read()) == left
    assert check_directory(five).is_sound


def test_the_loss_of_the_newest_events_leaves_their_numbers_empty_for_ever(five: Path) -> None:
    with engine(five) as before:
        before.open("orders").register_consumer("spark", "archiver", after=5)
    damage(five, 4)
    with engine(five) as refusing, pytest.raises(StorageCorrupted, match="events 5 to 5"):
        refusing.open("orders")
    assert not check_directory(five).is_sound
    assert accept_loss(five, "orders") == [(5, 5)]
    for expected in ([1, 2, 3, 4, 6], [1, 2, 3, 4, 6, 7], [1, 2, 3, 4, 6, 7, 8]):
        with engine(five) as again:
            log = again.open("orders")
            log.append([event()])
            assert numbers(log.read()) == expected
    assert check_directory(five).is_sound


def test_the_loss_of_the_last_events_that_only_a_consumer_knew_of_can_be_accepted(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        appended(range(1, 6), one)
        log.register_consumer("spark", "archiver", after=5)
        image = crashed(data, tmp_path / "crashed")
    damage(image, 4)
    assert not check_directory(image).is_sound
    assert accept_loss(image, "orders") == [(5, 5)]
    with engine(image) as again:
        log = again.open("orders")
        assert numbers(log.read()) == [1, 2, 3, 4]
        assert log.append([event()]).first == 6


def test_the_loss_of_everything_leaves_a_log_that_goes_on(five: Path) -> None:
    with engine(five) as clean_stop:
        clean_stop.open("orders")
    damage(five, 0, 1, 2, 3, 4)
    assert accept_loss(five, "orders") == [(1, 5)]
    for expected in ([6], [6, 7], [6, 7, 8], [6, 7, 8, 9]):
        with engine(five) as again:
            log = again.open("orders")
            assert log.append([event()]).first == expected[-1]
            assert numbers(log.read()) == expected
    assert check_directory(five).is_sound


def test_losses_in_sealed_segments_can_be_accepted(data: Path, small_segments: None) -> None:
    with engine(data) as one:
        log = one.create("orders")
        appended(range(1, 101), one)
        one.maintain()
        sealed = log.frames.segments[1]
        path, victims = sealed.path, [sealed.firsts[3], sealed.firsts[-1]]
        offsets = [sealed.offsets[3], sealed.offsets[-1]]
    for offset in offsets:
        change(path, offset + 40, b"\xee\xee")
    report = check_directory(data)
    assert not report.is_sound
    given_up = accept_loss(data, "orders")
    assert [number for low, high in given_up for number in range(low, high + 1)] == victims
    assert check_directory(data).is_sound, check_directory(data)
    for _ in range(2):
        with engine(data) as again:
            log = again.open("orders")
            expected = [number for number in range(1, 101) if number not in victims]
            assert numbers(log.read()) == expected
            assert numbers(log.read(backwards=True)) == expected[::-1]
    assert check_directory(data).is_sound


def test_zeros_at_the_end_of_a_sealed_segment_are_damage(data: Path, small_segments: None) -> None:
    with engine(data) as one:
        log = one.create("orders")
        appended(range(1, 101), one)
        one.maintain()
        sealed = log.frames.segments[1]
        path, victim, offset, end = sealed.path, sealed.firsts[-1], sealed.offsets[-1], sealed.end
    change(path, offset, bytes(end - offset))
    for derived in (log_directory(data) / "idx").iterdir():
        derived.unlink()
    assert not check_directory(data).is_sound
    with engine(data) as refusing, pytest.raises(StorageCorrupted, match=f"events {victim} to {victim} are damaged"):
        refusing.open("orders")
    assert accept_loss(data, "orders") == [(victim, victim)]
    with engine(data) as again:
        assert numbers(again.open("orders").read()) == [n for n in range(1, 101) if n != victim]
    assert check_directory(data).is_sound


@pytest.mark.parametrize("keeps_index", [True, False])
def test_a_damaged_last_frame_of_a_sealed_segment_is_named(data: Path, small_segments: None, keeps_index: bool) -> None:
    with engine(data) as one:
        log = one.create("orders")
        appended(range(1, 101), one)
        one.maintain()
        sealed = log.frames.segments[1]
        path, victim, offset = sealed.path, sealed.firsts[-1], sealed.offsets[-1]
    change(path, offset, b"XXXX")
    if not keeps_index:
        shutil.rmtree(log_directory(data) / "idx")
        (log_directory(data) / "idx").mkdir()
    with engine(data) as refusing, pytest.raises(StorageCorrupted, match=f"events {victim} to {victim} are damaged"):
        refusing.open("orders")


def test_a_missing_segment_is_noticed(data: Path, small_segments: None) -> None:
    with engine(data) as one:
        log = one.create("orders")
        appended(range(1, 101), one)
        one.maintain()
        path = log.frames.segments[1].path
    path.unlink()
    assert not check_directory(data).is_sound
    with engine(data) as refusing, pytest.raises(StorageCorrupted):
        refusing.open("orders")


def test_a_log_that_cannot_be_opened_leaves_no_file_open(five: Path, open_files: Callable[[], int]) -> None:
    damage(five, 1)
    with engine(five) as refusing:
        before = open_files()
        for _ in range(20):
            with pytest.raises(StorageCorrupted):
                refusing.open("orders")
        assert open_files() <= before + 1
    before = open_files()
    for _ in range(5):
        check_directory(five)
    assert open_files() <= before


def test_events_larger_than_a_page_survive_a_crash(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([Event("E", bytes([number]) * 100_000, id=str(number)) for number in range(20)])
        image = crashed(data, tmp_path / "crashed")
    with engine(image) as again:
        assert [each.data[:1] for each in again.open("orders").read()] == [bytes([number]) for number in range(20)]


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("has_index", [True, False], ids=["index", "no-index"])
@pytest.mark.parametrize("at", [0, -1], ids=["sealed", "newest"])
def test_a_log_with_damage_opens_if_a_sealed_segment_with_its_index_has_it(
    tmp_path: Path, at: int, has_index: bool, is_killed: bool
) -> None:
    data = tmp_path / "data"
    with engine(data) as opened:
        log = opened.create("orders")
        fill(log, 400, per_call=10, data=b"x" * 500)
        opened.maintain()
        assert len(log.frames.segments) > 1
        segment = log.frames.segments[at]
        name, offset, bad = segment.path.name, segment.offsets[1], segment.firsts[1]
        if is_killed:
            data = crashed(data, tmp_path / "killed")
            (data / "LOCK").unlink()
    change(log_directory(data) / "log" / name, offset + 300, b"?")
    if not has_index:
        shutil.rmtree(log_directory(data) / "idx")
    damage = f"events {bad} to {bad + 9} are damaged"
    with engine(data) as opened:
        if at == -1 or not has_index:
            with pytest.raises(StorageCorrupted, match=damage):
                opened.open("orders")
            return
        log = opened.open("orders")
        assert len(list(log.read(after=bad + 9))) == 400 - bad - 9
        with pytest.raises(StorageCorrupted, match=damage):
            list(log.read())
        log.append([Event("new")])
    with engine(data) as opened:  # although the damage was found
        assert opened.open("orders").head() == 401
