"""The scrub: damage on the disk is found though the page cache has good bytes, and no reader gets a damaged event."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import Closed, StorageCorrupted, StorageUnavailable
from headwater.core.query import Query
from headwater.core.watch.notification_types import NotificationType
from headwater.formats.newer import WrittenByNewer
from headwater.storage import Engine, StoredLog, accept_loss
from headwater.storage.disk import disk_image
from headwater.storage.disk.checked_file import with_checksum
from headwater.storage.disk.disk_image import DiskImage
from headwater.storage.maintenance import file_proof
from headwater.storage.maintenance import scrub as scrubbing
from headwater.storage.maintenance.file_proof import STEP_S, FileProver, FileToProve, Proof
from headwater.storage.maintenance.scrub import PLACE_NAME, ScrubPlace
from headwater.storage.maintenance.scrub_files import ScrubFiles
from headwater.storage.maintenance.worker import IndexWorker, do
from headwater.storage.read.mapped_log import MappedLog
from headwater.storage.segments.segment import Segment
from headwater.storage.staging import segments as staged_segments
from headwater.storage.staging.batches import Staging
from tests.management.told import Told
from tests.night import IS_NIGHT
from tests.storage.builders import event, numbers
from tests.storage.test_flips import SCHEMA, made

__all__ = ["made"]

EVENTS = 600


class OtherDisk:
    """What a disk has in the place of the bytes that the page cache has: flipped bits, by file name and offset."""

    def __init__(self) -> None:
        self.flips: dict[Path, dict[int, int]] = {}

    def flip(self, path: Path, offset: int, mask: int = 1) -> None:
        self.flips.setdefault(path, {})[offset] = mask


@pytest.fixture
def other_disk(monkeypatch: pytest.MonkeyPatch) -> OtherDisk:
    """A disk that differs from what is mapped. Jobs are done in this process, and no time is waited for."""
    disk, read, prover = OtherDisk(), DiskImage._read, FileProver()

    def read_other(self: DiskImage, start: int, end: int) -> None:
        read(self, start, end)
        for offset, mask in disk.flips.get(self.path, {}).items():
            if start <= offset < end:
                self.map[offset] ^= mask

    monkeypatch.setattr(DiskImage, "_read", read_other)
    monkeypatch.setattr(IndexWorker, "run", lambda self, job: do(job).problem)
    monkeypatch.setattr(IndexWorker, "prove", lambda self, file: prover.step(file))
    monkeypatch.setattr(scrubbing, "CORE_SHARE", 1e9)
    return disk


def opened(data: Path) -> Engine:
    return Engine(data, maintains=False)


def filled(engine: Engine, events: int = EVENTS) -> StoredLog:
    """A log of some segments, all of them read once."""
    log = engine.create("orders")
    for first in range(1, events, 4):
        log.append([event("T", f"n:{number}", data=b"%08d" % number) for number in range(first, first + 4)])
    engine.maintain()
    assert numbers(log.read()) == list(range(1, events + 1))
    return log


def pass_over(engine: Engine) -> ScrubPlace:
    """One pass of the scrub, from its beginning to its end."""
    engine.scrub.begin()
    engine.scrub.step()
    while engine.scrub.is_under_way:
        engine.scrub.step()
    return engine.scrub.place


def middle_of(segment: Segment, index: int) -> int:
    return int(segment.offsets[index]) + 200


pytestmark = pytest.mark.usefixtures("small_segments")


def test_damage_behind_the_page_cache_is_found_and_not_served(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        log = filled(engine)
        segment = log.frames.segments[1]
        other_disk.flip(segment.path, middle_of(segment, 2))
        place = pass_over(engine)

        low, high = segment.firsts[2], segment.firsts[3] - 1
        assert [(each.first, each.last) for each in place.damaged] == [(low, high)]
        with pytest.raises(StorageCorrupted, match=f"events {low} to {high} are damaged"):
            list(log.read(after=low - 1))
        with pytest.raises(StorageCorrupted):
            list(log.read(Query.where(tags=[f"n:{low}"])))
        assert numbers(log.read(after=high)) == list(range(high + 1, EVENTS + 1))
        assert engine.unavailable().keys() == {"orders"}


def test_what_was_damaged_is_not_served_after_a_restart(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        segment = filled(engine).frames.segments[1]
        other_disk.flip(segment.path, middle_of(segment, 2))
        pass_over(engine)
    with opened(data) as engine, pytest.raises(StorageCorrupted):
        list(engine.open("orders").read())


def test_what_was_mended_while_the_server_was_stopped_is_served_again(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        segment = filled(engine).frames.segments[1]
        other_disk.flip(segment.path, middle_of(segment, 2))
        pass_over(engine)
    other_disk.flips.clear()
    with opened(data) as engine:
        log = engine.open("orders")
        assert pass_over(engine).damaged == []
        assert numbers(log.read()) == list(range(1, EVENTS + 1))
        assert engine.unavailable() == {}


def test_each_damaged_frame_of_a_segment_is_found(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        segment = filled(engine).frames.segments[0]
        for index in (1, 2, 5):
            other_disk.flip(segment.path, middle_of(segment, index))
        found = [(each.first, each.last) for each in pass_over(engine).damaged]
        assert found == [(segment.firsts[1], segment.firsts[3] - 1), (segment.firsts[5], segment.firsts[6] - 1)]


def test_a_damaged_header_of_a_segment_stops_all_of_it(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        log = filled(engine)
        segment = log.frames.segments[1]
        other_disk.flip(segment.path, 9)
        found = pass_over(engine).damaged
        assert [(each.first, each.last) for each in found] == [(segment.first, segment.last)]
        for number in (segment.first, segment.last):
            with pytest.raises(StorageCorrupted):
                list(log.read(from_=number, limit=1))


def test_the_last_frame_of_an_open_log_is_no_torn_tail(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        segment = filled(engine).frames.segments[-1]
        other_disk.flip(segment.path, middle_of(segment, len(segment.offsets) - 1))
        assert [each.last for each in pass_over(engine).damaged] == [EVENTS]


def test_logs_that_are_not_open_are_proved_and_stay_closed(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        segment = filled(engine).frames.segments[1]
    other_disk.flip(segment.path, middle_of(segment, 0))
    with opened(data) as engine:
        assert len(pass_over(engine).damaged) == 1
        assert engine.opened() == []
        with pytest.raises(StorageCorrupted):
            list(engine.open("orders").read())


def test_a_flip_that_a_second_read_does_not_show_is_no_damage(
    data: Path, other_disk: OtherDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = DiskImage._read

    def read_once(self: DiskImage, start: int, end: int) -> None:
        read(self, start, end)
        other_disk.flips.pop(self.path, None)

    monkeypatch.setattr(DiskImage, "_read", read_once)
    with opened(data) as engine:
        log = filled(engine)
        for segment in log.frames.segments:
            other_disk.flip(segment.path, middle_of(segment, 1))
        assert pass_over(engine).damaged == []
        assert other_disk.flips == {}


def test_every_page_that_cannot_be_read_is_damage(
    data: Path, other_disk: OtherDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.preadv
    with opened(data) as engine:
        segment = filled(engine).frames.segments[0]
        index = segment.index_of(50)
        bad = segment.offsets[index] // mmap.PAGESIZE * mmap.PAGESIZE

        def fail(fd: int, buffers: list[memoryview], offset: int) -> int:
            is_it = os.path.samestat(os.fstat(fd), segment.path.stat())
            if is_it and offset <= bad < offset + len(buffers[0]):
                raise OSError(5, "Input/output error")
            return read(fd, buffers, offset)

        monkeypatch.setattr(os, "preadv", fail)
        (damaged,) = pass_over(engine).damaged
        assert damaged.problem == "Input/output error"
        assert 1 < damaged.first <= segment.firsts[index] <= damaged.last


def test_a_place_survives_a_restart(data: Path, other_disk: OtherDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(data) as engine:
        filled(engine)
    with opened(data) as engine:
        expected = pass_over(engine)
    proved: list[str] = []
    prove = IndexWorker.prove

    def prove_one(self: IndexWorker, file: FileToProve) -> Proof:
        proof = prove(self, file)
        proved.extend([file.path] if proof.is_done else [])
        return proof

    monkeypatch.setattr(IndexWorker, "prove", prove_one)
    monkeypatch.setattr(scrubbing, "STEP_S", 0.0)
    with opened(data) as engine:
        engine.scrub.begin()
        while len(proved) < 5:
            engine.scrub.step()
        assert engine.scrub.is_under_way
    with opened(data) as engine:
        assert engine.scrub.is_under_way
        assert pass_over(engine).files == expected.files
    assert len(proved) == len(set(proved)) == expected.files


def test_a_place_that_is_damaged_begins_the_scrub_again(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        filled(engine)
        pass_over(engine)
    (data / PLACE_NAME).write_bytes(b"{}")
    with opened(data) as engine:
        assert engine.scrub.place == ScrubPlace()


def test_the_scrub_rests_so_long_that_it_takes_no_more_than_its_share_of_a_core(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    cpu_s = 0.0

    def prove(self: IndexWorker, file: FileToProve) -> Proof:
        nonlocal cpu_s, now
        cpu_s, now = cpu_s + 0.04, now + STEP_S
        return Proof(is_done=cpu_s > 10, cpu_s=0.04)

    class Clock:
        monotonic = staticmethod(lambda: now)
        thread_time = staticmethod(lambda: 0.0)

    monkeypatch.setattr(IndexWorker, "prove", prove)
    monkeypatch.setattr(scrubbing, "time", Clock)
    with opened(data) as engine:
        began = now
        engine.scrub.begin()
        while engine.scrub.is_under_way or not engine.scrub.place.ended_at:
            engine.scrub.step()
            now += 1
            if now - began > 60:
                assert cpu_s / (now - began) <= 0.031


def test_a_pass_begins_when_it_is_due(data: Path, other_disk: OtherDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbing, "SETTLED_S", 0.0)
    now = 10_000_000
    with Engine(data, maintains=False, clock=lambda: now, scrub_ms=1000) as engine:
        filled(engine, 20)
        while engine.scrub.is_under_way or not engine.scrub.place.ended_at:
            engine.scrub.step()
        now += 999
        engine.scrub.step()
        assert engine.scrub.place.began_at == 10_000_000
        now += 1
        engine.scrub.step()
        assert engine.scrub.place.began_at == 10_001_000


def test_a_server_without_a_period_proves_nothing_by_itself(
    data: Path, other_disk: OtherDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "SETTLED_S", 0.0)
    with Engine(data, maintains=False, scrub_ms=0) as engine:
        engine.scrub.step()
        assert engine.scrub.place == ScrubPlace()
        assert pass_over(engine).files > 0


def test_what_a_pass_finds_is_notified(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        told = Told(engine.bus)
        segment = filled(engine).frames.segments[1]
        other_disk.flip(segment.path, middle_of(segment, 2))
        place = pass_over(engine)
        expected = {
            "path": segment.path.relative_to(data).as_posix(),
            "problem": "the checksum does not match",
            "first": segment.firsts[2],
            "last": segment.firsts[3] - 1,
        }
        assert told.of(NotificationType.SCRUB_DAMAGED) == [expected]
        (ended,) = told.of(NotificationType.SCRUB_ENDED)
        assert (ended["files"], ended["bytes"], ended["damaged"]) == (place.files, place.bytes, 1)
        other_disk.flips.clear()
        pass_over(engine)
        assert told.of(NotificationType.SCRUB_MENDED) == [expected]
        assert len(told.of(NotificationType.SCRUB_DAMAGED)) == 1


def test_no_other_process_reads_what_is_damaged_on_the_disk(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        log = filled(engine)
        mapped = MappedLog(log.directory)
        mapped.refresh(log.head(), log.distrusted)
        assert sum(batch.num_rows for batch in mapped.scan(0, EVENTS)) == EVENTS
        under_way = mapped.scan(0, EVENTS, batch_events=1)
        next(under_way)

        segment = log.frames.segments[1]
        other_disk.flip(segment.path, middle_of(segment, 2))
        pass_over(engine)
        mapped.refresh(log.head(), log.distrusted)
        low, high = segment.firsts[2], segment.firsts[3] - 1
        for batches in (under_way, mapped.scan(low - 1, high), mapped.scan(0, EVENTS, query=Query.where(types=["T"]))):
            with pytest.raises(StorageCorrupted, match=f"events {low} to {high} are damaged"):
                list(batches)
        assert mapped.lend(0, EVENTS) is None
        assert sum(batch.num_rows for batch in mapped.scan(high, EVENTS)) == EVENTS - high

        other_disk.flips.clear()
        pass_over(engine)
        mapped.refresh(log.head(), log.distrusted)
        assert sum(batch.num_rows for batch in mapped.scan(0, EVENTS)) == EVENTS
        mapped.close()


def kind_of(path: Path) -> str:
    return f"{path.parent.name}/*{path.suffix}" if path.suffix != ".json" else path.name


@pytest.fixture(scope="module")
def every_kind(made: Path, tmp_path_factory: pytest.TempPathFactory) -> list[FileToProve]:
    """Files of every kind: those of a part that is staged as segments, too."""
    data = shutil.copytree(made, tmp_path_factory.mktemp("kinds") / "data")
    with pytest.MonkeyPatch.context() as patch, opened(data) as engine:
        patch.setattr(staged_segments, "FRAME_BYTES", 1000)
        part = Staging(engine.open("sound").directory).stage("v", 1, 0, 0, SCHEMA)
        for _ in range(3):
            part.write(pa.record_batch([["E"] * 50, [b"x" * 100] * 50, [None] * 50], schema=SCHEMA))
        part.close()
    with opened(data) as engine:
        files = ScrubFiles(data, engine.state, engine._open_frames)
        found = [files.described(path, (0, 0)) for path in files.behind("") if path.suffix != ".sqlite"]
    return [file for file in found if file is not None]


@settings(max_examples=1000 if IS_NIGHT else 100, deadline=None)
@given(choice=st.data())
def test_a_flip_of_any_byte_that_has_a_checksum_is_found(every_kind: list[FileToProve], choice: st.DataObject) -> None:
    file = choice.draw(st.sampled_from(every_kind), "file")
    path = Path(file.path)
    content = path.read_bytes()
    offset = choice.draw(st.integers(0, len(content) - 1), "offset")
    mask = 1 << choice.draw(st.integers(0, 7), "bit")
    prover = FileProver()
    read = DiskImage._read
    with pytest.MonkeyPatch.context() as patch:

        def read_other(self: DiskImage, start: int, end: int) -> None:
            read(self, start, end)
            if self.path == path and start <= offset < end:
                self.map[offset] ^= mask

        patch.setattr(DiskImage, "_read", read_other)
        while not (proof := prover.step(file)).is_done:
            pass
    FLIPS[kind_of(path), bool(proof.damages)] += 1
    assert proof.damages or is_unproved(path, content, offset)


FLIPS: Counter[tuple[str, bool]] = Counter()
"""How many flips were found, and not, by kind of file."""


def is_unproved(path: Path, content: bytes, offset: int) -> bool:
    """Whether no checksum has that byte: it says nothing."""
    if path.suffix == ".log":
        return not any(content[offset // 8 * 8 : offset // 8 * 8 + 64])  # behind the last frame
    if path.suffix in (".postings", ".ids", ".places"):
        return 12 <= offset < 16
    return path.suffix == ".witness"  # the other slot says the same


@pytest.fixture
def loop_disk(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A file system on a loop device, and the file behind it."""
    image, mounted = tmp_path / "disk.img", tmp_path / "mounted"
    image.write_bytes(b"")
    with open(image, "r+b") as file:
        file.truncate(64 * 1024 * 1024)
    mounted.mkdir()
    try:
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no loop device can be mounted")
    try:
        yield image, mounted / "data"
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)


def test_a_bit_that_flips_below_a_cached_page_is_found(
    loop_disk: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    image, data = loop_disk
    monkeypatch.setattr(scrubbing, "CORE_SHARE", 1e9)
    with opened(data) as engine:
        log = filled(engine, 40)
        segment = log.frames.segments[0]
        subprocess.run(["sync", "-f", str(data)], check=True)
        start = segment.offsets[2]
        written = bytes(segment.buffer[start : start + 512])
        with open(image, "r+b") as disk, mmap.mmap(disk.fileno(), 0) as bytes_of_disk:
            at = bytes_of_disk.find(written)
            assert at > 0 and bytes_of_disk.find(written, at + 1) < 0
            bytes_of_disk[at + 200] ^= 1

        assert numbers(log.read()) == list(range(1, 41)), "the page cache has it as it was"
        place = pass_over(engine)
        assert [each.first for each in place.damaged] == [segment.firsts[2]]
        assert place.unproved_bytes == 0
        with pytest.raises(StorageCorrupted):
            list(log.read())


def test_what_is_read_through_the_page_cache_counts_as_unproved(
    data: Path, other_disk: OtherDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.storage.disk import disk_image

    monkeypatch.setattr(disk_image, "_DIRECT", 0)
    with opened(data) as engine:
        filled(engine)
        place = pass_over(engine)
        assert place.unproved_bytes == place.bytes > 0


@pytest.mark.parametrize("trouble", [StorageUnavailable("the worker process died repeatedly"), Closed("worker")])
def test_a_file_that_cannot_be_proved_now_stays_damaged(
    data: Path, other_disk: OtherDisk, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    with opened(data) as engine:
        log = filled(engine)
        segment = log.frames.segments[1]
        other_disk.flip(segment.path, middle_of(segment, 2))
        [damaged] = pass_over(engine).damaged

        def fails(self: IndexWorker, file: FileToProve) -> Proof:
            raise trouble

        monkeypatch.setattr(IndexWorker, "prove", fails)
        engine.scrub.begin()
        for _ in range(5):
            engine.scrub.step()
        assert engine.scrub.place.damaged == [damaged]
        with pytest.raises(StorageCorrupted):
            list(log.read(after=damaged.first - 1))


def test_a_segment_that_the_disk_does_not_give_is_damaged_as_a_whole(
    data: Path, other_disk: OtherDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(data) as engine:
        segment = filled(engine).frames.segments[1]

        def gives_nothing(path: Path) -> DiskImage:
            if path == segment.path:
                raise OSError(errno.EIO, "Input/output error")
            return DiskImage(path)

        monkeypatch.setattr(file_proof, "DiskImage", gives_nothing)
        [damaged] = pass_over(engine).damaged
        assert (damaged.first, damaged.last, damaged.problem) == (segment.first, segment.last, "Input/output error")


def test_damage_behind_a_loss_that_was_accepted_is_found(
    data: Path, other_disk: OtherDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_image, "PIECE_BYTES", 4096)  # so that the next whole frame is not read yet
    with opened(data) as engine:
        log = engine.create("orders")
        for _ in range(40):
            log.append([event("T", data=bytes(5000))])
        engine.maintain()
        first = log.frames.segments[1]
        path, lost, later = first.path, middle_of(first, 1), middle_of(first, 2)
        low, last = first.firsts[1], first.last
    with path.open("r+b") as file:
        file.seek(lost)
        file.write(b"\1")
    assert accept_loss(data, "orders") == [(low, low)]
    with opened(data) as engine:
        other_disk.flip(path, later)
        assert [(each.first, each.last) for each in pass_over(engine).damaged] == [(low, last)]


def test_the_place_of_a_newer_version_is_refused_and_stays(data: Path, other_disk: OtherDisk) -> None:
    with opened(data) as engine:
        filled(engine)
        pass_over(engine)
    newer = with_checksum(b'{"format":2,"more":[1]}')
    (data / PLACE_NAME).write_bytes(newer)
    for _ in range(2):
        with pytest.raises(WrittenByNewer, match="format 2"):
            opened(data)
    assert (data / PLACE_NAME).read_bytes() == newer
    (data / PLACE_NAME).unlink()
    with opened(data) as engine:
        assert engine.scrub.place == ScrubPlace()


def test_a_place_that_cannot_be_read_begins_the_scrub_again(data: Path) -> None:
    with opened(data):
        pass
    (data / PLACE_NAME).mkdir()
    with opened(data) as engine:
        assert engine.scrub.place == ScrubPlace()


def test_reads_that_come_short_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "file", os.preadv
    path.write_bytes(content := os.urandom(100_000))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: read(fd, [buffers[0][:5000]], at))
    image = DiskImage(path)
    assert list(image.fill(image.size))
    assert bytes(image.content) == content
    image.close()
