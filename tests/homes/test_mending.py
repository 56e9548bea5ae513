"""Damage in a copy is mended from its home: by frames that prove themselves, and by no others."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import google_crc32c
import psycopg
import pytest

from headwater.core.errors import StorageCorrupted, StorageUnavailable
from headwater.core.watch.notification_types import NotificationType
from headwater.homes.postgres.home import PostgresHome
from headwater.storage import Engine, check_directory
from headwater.storage.disk.locks import LockLost
from headwater.storage.disk.system import Disk
from headwater.storage.home.replicated_log import MENDED
from headwater.storage.log import StoredLog
from headwater.storage.maintenance import scrub as scrubbing
from headwater.storage.maintenance.file_proof import FileProver
from headwater.storage.maintenance.scrub import DamagedFile
from headwater.storage.maintenance.worker import IndexWorker, do
from headwater.storage.read.mapped_log import MappedLog
from headwater.storage.segments import segment_log
from headwater.storage.segments.segment import Segment

from ..management.told import Told
from ..storage.builders import change, crashed, numbers
from .test_engine import Serve, Server, add, contents, serve, url
from .test_following import Replica

__all__ = ["serve", "url"]

EVENTS = 60


@pytest.fixture(autouse=True)
def in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments; jobs are done in this process, and no time is waited for."""
    prover = FileProver()
    monkeypatch.setattr(segment_log, "SEGMENT_EVENTS_MAX", 10)
    monkeypatch.setattr(IndexWorker, "run", lambda self, job: do(job).problem)
    monkeypatch.setattr(IndexWorker, "prove", lambda self, file: prover.step(file))
    monkeypatch.setattr(scrubbing, "CORE_SHARE", 1e9)


@pytest.fixture
def one(serve: Serve) -> Server:
    """A primary with some segments, all of them read once."""
    server = serve("one")
    add(server.orders, EVENTS)
    server.engine.maintain()
    assert len(contents(server.orders)) == EVENTS
    return server


@pytest.fixture
def replica(one: Server, url: str, tmp_path: Path) -> Iterator[Replica]:
    """A second server, which follows, and has all of it."""
    replica = Replica(url, crashed(one.directory, tmp_path / "replica"))
    assert len(contents(replica.orders)) == EVENTS
    yield replica
    replica.close()


def pass_over(engine: Engine) -> Sequence[DamagedFile]:
    """One pass of the scrub, and what was to be mended then; answers what is damaged still."""
    engine.scrub.begin()
    engine.scrub.step()
    while engine.scrub.is_under_way:
        engine.scrub.step()
    return look_again(engine)


def look_again(engine: Engine) -> Sequence[DamagedFile]:
    """As if it was time for all that is to be done; answers what is damaged still."""
    scrub = engine.scrub
    scrub._next_at, scrub._to_mend = 0.0, dict.fromkeys(scrub._to_mend, 0.0)
    scrub.step()
    return scrub.place.damaged


def spoil(segment: Segment, *indices: int) -> None:
    """Flip a bit in the payloads of these frames, in memory and on the disk."""
    for index in indices:
        at = int(segment.offsets[index]) + 250
        change(segment.path, at, bytes([segment.buffer[at] ^ 1]))


def expected(count: int = EVENTS) -> list[bytes]:
    return [str(index).encode() for index in range(count)]


@pytest.mark.parametrize("indices", [[0], [4], [9], [2, 3, 7], list(range(10))])
@pytest.mark.parametrize("who", ["one", "replica"])
def test_damaged_events_are_fetched_from_the_home(
    request: pytest.FixtureRequest, replica: Replica, one: Server, who: str, indices: list[int]
) -> None:
    engine = request.getfixturevalue(who).engine
    log, told = engine.open("orders"), Told(engine.bus)
    damaged = log.frames.segments[2]
    whole = damaged.path.read_bytes()
    spoil(damaged, *indices)
    assert damaged.path.read_bytes() != whole
    assert pass_over(engine) == []
    assert damaged.path.read_bytes() == whole
    assert contents(log) == expected()
    assert engine.unavailable() == {} and engine.troubles() == []
    found, mended = told.of(NotificationType.SCRUB_DAMAGED), told.of(NotificationType.SCRUB_MENDED)
    assert mended == [{**each, "source": "home"} for each in found]
    assert engine.scrub.mended == len(found) > 0
    assert not damaged.path.with_name(MENDED).exists()


def test_a_segment_whose_header_is_damaged_is_fetched_whole(one: Server) -> None:
    segment = one.orders.frames.segments[1]
    whole = segment.path.read_bytes()
    change(segment.path, 9, b"\7")
    assert pass_over(one.engine) == []
    assert segment.path.read_bytes() == whole and contents(one.orders) == expected()


def test_neighbours_at_the_border_of_two_segments_are_mended(one: Server) -> None:
    segments = one.orders.frames.segments
    spoil(segments[1], 9)
    spoil(segments[2], 0)
    assert pass_over(one.engine) == []
    assert contents(one.orders) == expected()


def test_the_newest_segment_is_mended_and_goes_on_being_written(serve: Serve, one: Server) -> None:
    add(one.orders, 4, begin=EVENTS)
    segment = one.orders.frames.segments[-1]
    spoil(segment, 1, 3)
    assert pass_over(one.engine) == []
    assert one.orders.frames.segments[-1].path == segment.path
    add(one.orders, 14, begin=EVENTS + 4)
    assert contents(one.orders) == expected(EVENTS + 18)
    assert [each.first for each in one.orders.frames.segments] == [1, 11, 21, 31, 41, 51, 61, 71]
    one.close()
    assert contents(serve("one").orders) == expected(EVENTS + 18)


def test_events_are_appended_while_the_newest_segment_is_mended_again_and_again(one: Server) -> None:
    log, stopping, count = one.orders, threading.Event(), EVENTS

    def append() -> None:
        nonlocal count
        while not stopping.is_set():
            add(log, 1, begin=count)
            count += 1

    appending = threading.Thread(target=append)
    appending.start()
    mended = 0
    while mended < 5:
        segment = log.frames.segments[-1]
        if len(segment.offsets) > 2:
            spoil(segment, 1)
            assert pass_over(one.engine) == []
            mended += 1
    stopping.set()
    appending.join()
    assert contents(log) == expected(count)
    assert one.engine.scrub.mended >= 5


def test_an_append_goes_into_no_segment_with_damage(one: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    add(one.orders, 4, begin=EVENTS)
    monkeypatch.setattr(PostgresHome, "frames", lambda *_: iter(()))
    segment = one.orders.frames.segments[-1]
    spoil(segment, 1)
    assert len(pass_over(one.engine)) == 1
    add(one.orders, 1, begin=EVENTS + 4)
    assert one.orders.frames.segments[-1].first == EVENTS + 5
    monkeypatch.undo()


def test_a_read_that_finds_damage_has_it_mended(one: Server, serve: Serve) -> None:
    segment = one.orders.frames.segments[2]
    one.close()
    spoil(segment, 3)
    again = serve("one")
    with pytest.raises(StorageCorrupted):
        contents(again.orders)
    assert again.engine.unavailable()
    for _ in range(2):
        again.engine.maintain()
    assert contents(again.orders) == expected()
    assert again.engine.unavailable() == {}


def test_a_log_that_is_not_open_is_opened_and_mended(one: Server, serve: Serve) -> None:
    segment = one.orders.frames.segments[2]
    one.close()
    again = serve("one")
    spoil(segment, 3)
    assert again.engine.opened() == []
    assert pass_over(again.engine) == []
    assert contents(again.orders) == expected()


def test_the_journal_is_mended(one: Server) -> None:
    journal = one.engine.state.journal
    segment = journal.frames.segments[-1]
    whole = segment.path.read_bytes()
    spoil(segment, len(segment.offsets) - 2)
    assert pass_over(one.engine) == []
    assert segment.path.read_bytes() == whole
    one.engine.state.put("kind", "key", b"value")


def test_a_home_that_is_away_is_asked_again(one: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PostgresHome, "away", StorageUnavailable("the home is away"))
        segment = one.orders.frames.segments[2]
        spoil(segment, 3)
        assert [(each.first, each.last) for each in pass_over(one.engine)] == [(24, 24)]
        with pytest.raises(StorageCorrupted):
            contents(one.orders)
        assert one.engine.scrub.mended == 0
    assert look_again(one.engine) == []
    assert contents(one.orders) == expected()


@pytest.mark.parametrize("what", ["gone", "flipped", "another", "one too few", "of another number"])
def test_what_the_home_has_not_whole_takes_no_ones_place(one: Server, url: str, what: str) -> None:
    other = one.engine.create("other")
    add(other, EVENTS)
    segment = one.orders.frames.segments[2]
    spoil(segment, 3, 4)
    spoilt = segment.path.read_bytes()
    with psycopg.connect(url, autocommit=True) as connection:
        theirs = bytes(other.frames.segments[2].frame(3)._buffer)
        mine = bytes(one.orders.frames.segments[3].frame(3)._buffer)
        where = "WHERE log = (SELECT id FROM headwater.log WHERE key = %s) AND last = %s"
        given = (one.orders.meta.segments_id, 25 if what == "one too few" else 24)
        if what in ("gone", "one too few"):
            connection.execute(f"DELETE FROM headwater.frame {where}", given)
        elif what == "flipped":
            flipped = "set_byte(content, 250, get_byte(content, 250) # 1)"
            connection.execute(f"UPDATE headwater.frame SET content = {flipped} {where}", given)
        else:
            other_frame = theirs if what == "another" else mine
            connection.execute(f"UPDATE headwater.frame SET content = %s {where}", (other_frame, *given))
    assert [(each.first, each.last) for each in pass_over(one.engine)] == [(24, 25)]
    assert segment.path.read_bytes() == spoilt
    assert not segment.path.with_name(MENDED).exists()
    with pytest.raises(StorageCorrupted):
        contents(one.orders)
    assert numbers(one.orders.read(after=25))[0] == 26


@pytest.mark.parametrize("index", [0, 3, 9])
def test_a_frame_of_another_history_takes_no_ones_place(
    one: Server, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    """It is whole, of the right number and length, and follows the frame before it: but no frame follows it."""
    segment = one.orders.frames.segments[2]
    forged = forge(segment, index)
    monkeypatch.setattr(PostgresHome, "frames", lambda *_: iter([forged]))
    spoil(segment, index)
    number = 21 + index
    assert [(each.first, each.last) for each in pass_over(one.engine)] == [(number, number)]
    with pytest.raises(StorageCorrupted):
        contents(one.orders)


def forge(segment: Segment, index: int) -> bytes:
    """That frame with another payload and a checksum that fits."""
    frame = bytearray(segment.frame(index)._buffer)
    frame[250] ^= 1
    crc = google_crc32c.extend(segment.crc_seed, bytes(frame[8:]))
    frame[4:8] = crc.to_bytes(4, "little")
    return bytes(frame)


class Watched(Disk):
    """Takes an image of the directory before each thing that is done to a file that is being mended."""

    def __init__(self) -> None:
        self.directory: Path | None = None
        self.images: list[Path] = []

    def _shoot(self) -> None:
        if self.directory is not None:
            number = len(self.images)
            self.images.append(crashed(self.directory, self.directory.with_name(f"image-{number}")))

    def allocate(self, fd: int, size: int) -> None:
        self._shoot()
        super().allocate(fd, size)

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        self._shoot()
        super().write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        self._shoot()
        super().sync(fd)

    def rename(self, source: Path, target: Path) -> None:
        self._shoot()
        super().rename(source, target)
        self._shoot()


@pytest.mark.parametrize("which", [2, -1])
def test_a_kill_at_any_step_leaves_the_damaged_file_or_the_whole_one(serve: Serve, which: int) -> None:
    disk = Watched()
    server = serve("one", disk=disk)
    add(server.orders, EVENTS)
    segment = server.orders.frames.segments[which]
    whole = segment.path.read_bytes()
    spoil(segment, 3, 5)
    spoilt = segment.path.read_bytes()
    disk.directory = server.directory
    assert pass_over(server.engine) == []
    disk.directory = None
    server.close()
    relative = segment.path.relative_to(server.directory)
    found = [(image / relative).read_bytes() for image in disk.images]
    assert found == [spoilt] * (len(found) - 1) + [whole] and len(found) > 6
    for image in disk.images:
        again = serve(image.name)
        with suppress(StorageCorrupted):
            contents(again.orders)
        assert pass_over(again.engine) == []
        assert contents(again.orders) == expected()
        assert not list(image.rglob(MENDED))
        again.close()
        assert check_directory(image).is_sound


def test_a_server_that_lost_its_directory_leaves_the_file_of_the_next_one(
    one: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one may have proved it, and be about to let it take the place of the damaged file."""
    segment, mending = one.orders.frames.segments[2], one.engine.scrub._mending
    assert mending is not None
    segment.distrust(24, 24, "a bit flipped")
    file = segment.path.with_name(MENDED)
    file.write_bytes(b"of the next server")

    def lost() -> None:
        raise LockLost(str(one.directory), "is another file")

    with monkeypatch.context() as patch:
        patch.setattr(one.orders.frames._disk, "check", lost)
        with pytest.raises(LockLost):
            mending.begin(segment.path)
    assert file.read_bytes() == b"of the next server"


def test_a_segment_whose_file_is_gone_leaves_no_file_open(one: Server) -> None:
    segment, mending = one.orders.frames.segments[2], one.engine.scrub._mending
    assert mending is not None
    segment.distrust(24, 24, "a bit flipped")
    segment.path.unlink()
    opened = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        mending.begin(segment.path)
    assert len(os.listdir("/proc/self/fd")) == opened


@pytest.mark.parametrize("step", ["allocate", "write", "sync", "rename"])
def test_a_disk_that_fails_leaves_the_damaged_file_and_it_is_tried_again(
    one: Server, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    segment = one.orders.frames.segments[2]
    spoil(segment, 3)
    spoilt = segment.path.read_bytes()

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Disk, step, fails)
        assert len(pass_over(one.engine)) == 1
        assert segment.path.read_bytes() == spoilt
        with pytest.raises(StorageCorrupted):
            contents(one.orders)
    assert look_again(one.engine) == []
    assert contents(one.orders) == expected()


def test_a_reserve_is_not_used_up(one: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(one.orders.frames.segments[2], 3)
    monkeypatch.setattr(Disk, "free_bytes", lambda *_: 1000)
    assert len(pass_over(one.engine)) == 1


def test_no_reader_gets_events_by_the_map_of_the_damaged_file(one: Server) -> None:
    log = one.orders
    segment = log.frames.segments[2]
    mapped = MappedLog(log.directory)
    mapped.refresh(log.head(), log.distrusted)
    assert rows(mapped) == EVENTS
    ignorant = MappedLog(log.directory)  # is not asked while the damage is known
    ignorant.refresh(log.head(), log.distrusted)
    assert rows(ignorant) == EVENTS
    old = [each._segments[segment.first] for each in (mapped, ignorant)]
    under_way = mapped.scan(0, EVENTS, batch_events=1)
    next(under_way)

    spoil(segment, 3)
    damaged = found(one.engine, log)
    mapped.refresh(log.head(), damaged)
    assert pass_over(one.engine) == []
    for each in (mapped, ignorant):
        each.refresh(log.head(), log.distrusted)
        assert each._segments.get(segment.first) not in old
        assert rows(each) == EVENTS
    with pytest.raises(StorageCorrupted):  # it began before
        list(under_way)
    assert segment.distrusted and log.frames.segments[2] is not segment
    with pytest.raises(StorageCorrupted):
        segment.frame(3)
    for each in (mapped, ignorant):
        each.close()


def found(engine: Engine, log: StoredLog) -> Sequence[tuple[int, int]]:
    """The damage that a pass finds before any of it is mended."""
    mending, engine.scrub._mending = engine.scrub._mending, None
    pass_over(engine)
    engine.scrub._mending = mending
    assert log.distrusted
    return log.distrusted


def rows(mapped: MappedLog) -> int:
    return sum(batch.num_rows for batch in mapped.scan(0, EVENTS))


def test_what_is_trimmed_meanwhile_is_not_put_back(one: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    log, prove = one.orders, IndexWorker.prove
    segment = log.frames.segments[2]
    spoil(segment, 3)

    def prove_late(self: IndexWorker, file: Any) -> Any:
        proof = prove(self, file)
        if file.path.endswith(MENDED) and proof.is_done:
            log.frames.trim(segment.last + 1)
        return proof

    monkeypatch.setattr(IndexWorker, "prove", prove_late)
    log.trim(segment.last + 1)
    pass_over(one.engine)
    assert not segment.path.exists() and not segment.path.with_name(MENDED).exists()
    assert numbers(log.read())[0] == segment.last + 1
