"""A log committed at a home. Its local files are a copy, which is read like any log.

A frame is sent to the home first, and written to the files after it is committed there. So the files never contain
frames that the home lacks. Missing frames, or frames damaged by a crash of the machine, are fetched.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import EventLogError, StorageCorrupted, StorageUnavailable
from ..disk.free_space import Room
from ..disk.system import Disk, sync_directory
from ..frames.encoding import EncodedFrame
from ..frames.frame import BadFrame, Frame
from ..frames.frame_log import Head, HeadMoved, NotKept, nobody
from ..segments.meta import CleanStop
from ..segments.recovery import SegmentScan, check_order, cut, open_segments, require_directory
from ..segments.segment import Ranges, Segment, segment_header, segment_paths
from ..segments.segment_log import SegmentLog
from .port import Home, HomeChanged, HomeWentBack, StandbysChanged
from .witness import nobody_asks

logger = logging.getLogger("headwater.storage")

FETCHED_BYTES = 1024 * 1024
"""The number of bytes written at a time while the copy catches up."""
MENDED = "mended.tmp"
"""The file next to the segments that will replace a damaged one."""


LEFT_UNCHANGED = (
    "it was left unchanged; to read its events, make an independent data directory of it (headwater backup and "
    "headwater restore)"
)


@dataclass
class Homed:
    """The home at which a server commits its logs, and the callbacks for when it no longer can."""

    home: Home
    on_lost: Callable[[Exception], None]
    """Called with HeadMoved (another server has the term), HomeChanged, StandbysChanged, CopyBehind, or the error that
    prevents writing the copy.
    """
    on_committed: Callable[[str, Sequence[EncodedFrame]], None] = lambda key, frames: None
    """Called with the key of a log and its committed frames before they are acknowledged. It must be fast."""
    is_following: bool = False
    """Whether another server appends and this one only replicates."""
    on_gap: Callable[[str], None] = nobody_asks
    """Called before the answer, with the reason why the copy lacks frames that it had, or that were committed. Raises
    OSError."""
    keeps_all: bool = False
    """Whether the data of the copy must neither be moved aside nor truncated."""

    def give_up(self, directory: Path, why: str) -> None:
        """Frames of a copy will be moved aside or truncated. Raises StorageUnavailable if it `keeps_all`; OSError."""
        if self.keeps_all:
            raise StorageUnavailable(f"{directory.name}: {why}; {LEFT_UNCHANGED}")
        self.on_gap(why)


class CopyOutlived(Exception):
    """The home no longer has the next frames of a copy that was offline for too long: the copy must be recreated."""


class CopyBehind(StorageUnavailable):
    """The home has frames of this server whose answer was lost. Reopening the copy fetches them."""

    def __init__(self, log: str, copy_head: int, home_head: int) -> None:
        super().__init__(
            f"the copy {log} ends with {copy_head}, but its home ends with {home_head}: the home has commits whose "
            "answer was lost; they are fetched when the copy is reopened",
            reason="an earlier append with an unknown outcome is completed first; try again",
        )


class ReplicatedLog(SegmentLog):
    """A FrameLog at a home, with a copy in a directory. It starts where the copy ends: see `catch_up`."""

    def __init__(self, homed: Homed, key: str, directory: Path, log_id: bytes, segments: Sequence[Segment], *,
                 crc_seed: int, floor: int, disk: Disk, room: Room,
                 segment_bytes: int | None = None) -> None:  # fmt: skip
        """Take over the segments of a copy (see `open_copy`). `key`: the log's key at the home."""
        super().__init__(directory, log_id, segments, crc_seed=crc_seed, floor=floor, term=homed.home.term, disk=disk,
                         room=room, segment_bytes=segment_bytes)  # fmt: skip
        self.home, self.key = homed.home, key
        """The home, and the log's key there."""
        self._homed, self._on_lost = homed, homed.on_lost
        self._held: list[EncodedFrame] = []
        """Appended frames that are not committed yet. They are committed with the next frames that must be durable."""
        self._writing = threading.Lock()
        """Held while a segment is written or the newest one is replaced."""
        (directory / MENDED).unlink(missing_ok=True)

    @property
    def unavailable(self) -> StorageUnavailable | None:
        return self.home.unavailable or super().unavailable

    @property
    def head(self) -> int:
        return self._held[-1].last if self._held else super().head

    @property
    def last_crc(self) -> int:
        return self._held[-1].crc if self._held else super().last_crc

    @property
    def recorded_at(self) -> int:
        return self._held[-1].recorded_at if self._held else super().recorded_at

    def append_frames(
        self,
        frames: Sequence[EncodedFrame],
        expected: Head,
        on_overdue: Callable[[], None] = nobody,
        *,
        is_durable: bool = True,
    ) -> None:
        """See SegmentLog. Also raises NotKept, HomeWentBack and CopyBehind."""
        if expected != (found := Head(self.head, self.last_crc, self.term)):
            raise HeadMoved(found)
        if not is_durable:
            self._held += frames
            return
        self._room.check()
        self._commit([*self._held, *frames], on_overdue)

    def sync(self) -> None:
        """See SegmentLog. Syncs the copy too: its record of a clean close must be true."""
        if self._held:
            self._commit(self._held, nobody)
        with self._writing:
            super().sync()

    @property
    def is_following(self) -> bool:
        """Whether another server appends to it."""
        return self._homed.is_following

    def begin_term(self) -> None:
        """Accept appends in the term that the home has begun. The copy must be caught up."""
        self.term = self.home.term

    def catch_up(self, least: int | None = None) -> None:
        """Fetch missing frames. With `least` it may stop once it has reached that number.

        Raises the errors of `follow`.
        """
        home_head = self.home.kept_heads().heads.get(self.key) if self.is_following else self.home.head(self.key)
        if home_head is None:
            raise StorageUnavailable(f"{self._directory}: its home has no such log ({self.key})")
        for _ in self.follow(home_head):
            if least is not None and self.last >= least:
                return

    def follow(self, home_head: Head, *, may_begin_later: bool = True) -> Iterator[None]:
        """Fetch the missing frames of a log that ends at `home_head`, some frames per step.

        `may_begin_later`: an empty copy may begin after events that the home no longer has.
        Raises HomeWentBack if the copy has events that the home lacks; StorageCorrupted if the home has a damaged
        frame; CopyOutlived, StorageUnavailable, DiskFull.
        """
        if self.head > home_head.number:
            raise self._went_back(home_head.number)
        for frames in self._fetched(home_head.number, may_begin_later):
            self._keep(frames)
            yield
        if self.last_crc != home_head.crc:
            raise self._went_back(home_head.number)
        # if the home's number is higher, it skipped numbers for a new incarnation, which the journal reports

    def take(self, content: bytes) -> bool:
        """Add a frame committed at the home; False if it is not the next one, or damaged.

        Raises DiskFull, StorageUnavailable, OSError.
        """
        try:
            frame = Frame(memoryview(content), 0, self.crc_seed)
            frame.verify()
        except BadFrame:
            return False
        if frame.last <= self.head:
            return True
        if (frame.first, frame.previous_crc) != (self.head + 1, self.last_crc):
            return False
        self._keep([EncodedFrame(frame.first, frame.last, frame.recorded_at, frame.crc, frame.length, [content])])
        return True

    def forget_at_home(self, below: int) -> None:
        """Let the home drop events below that number too. Raises NotPrimary, StorageUnavailable."""
        self.home.forget(self.key, below)

    def wait_for_append(self) -> None:
        """Wait for the append in progress. Afterwards a segment with known damage accepts no appends."""
        with self._writing:
            return

    def header_of(self, segment: Segment) -> bytes:
        """The header of a segment of this log."""
        return segment_header(self._log_id, segment.first, segment.crc_seed, whole_upto=segment.whole_upto)

    def put_mended(self, damaged: Segment, file: Path) -> None:
        """Durably replace a distrusted segment with a file that has the same frames at the same offsets.

        Readers of the damaged one keep its map. Raises StorageCorrupted, StorageUnavailable, OSError.
        """
        mended = Segment(file, self._log_id, damaged.first)
        mended.adopt_copied(damaged)
        mended.is_indexed = damaged.is_indexed
        with self._writing:
            if damaged is self.segments[-1]:
                mended.open_to_write()
            try:
                self._disk.rename(file, damaged.path)
            except BaseException:
                mended.close()
                raise
            mended.path = damaged.path
            with self._replacing:
                self.segments = tuple(mended if each is damaged else each for each in self.segments)
            damaged.close()
        sync_directory(self._directory)

    def _fits(self, frame: EncodedFrame, length: int) -> bool:
        """See SegmentLog. After known damage a new segment begins, so that the damaged one can be mended."""
        return super()._fits(frame, length) and not self.segments[-1].distrusted

    def _commit(self, frames: Sequence[EncodedFrame], on_overdue: Callable[[], None]) -> None:
        expected = Head(super().head, super().last_crc, self.term)
        assert not any([frame.staged for frame in frames]), "a home gets every byte of a frame"
        self._disk.check()  # before the home has the frame, if this copy cannot store it
        try:
            self.home.commit(self.key, frames, expected, on_overdue)
        except HeadMoved as moved:
            if moved.head.term != self.term:
                self._on_lost(moved)
                raise
            if moved.head.number > expected.number:  # no other server appends in this term
                behind = CopyBehind(str(self._directory), expected.number, moved.head.number)
                self._on_lost(behind)
                raise behind from None
            raise self._went_back(moved.head.number) from None
        except (HomeChanged, StandbysChanged) as changed:
            self._on_lost(changed)
            raise
        self._held = []
        self._homed.on_committed(self.key, frames)
        try:
            self._keep(frames)
        except (EventLogError, OSError) as error:
            self._homed.on_gap(f"cannot store a committed frame: {error}")
            self._on_lost(error)
            raise NotKept(f"{self._directory}: {error}") from error

    def _went_back(self, home_head: int) -> HomeWentBack:
        error = HomeWentBack(str(self._directory), super().head, home_head)
        self._on_lost(error)
        return error

    def _keep(self, frames: Sequence[EncodedFrame]) -> None:
        with self._writing:
            super().append_frames(frames, Head(super().head, super().last_crc, self.term), is_durable=False)

    def _fetched(self, upto: int, may_begin_later: bool) -> Iterator[list[EncodedFrame]]:
        """The home's frames after the end of the copy, some at a time."""
        run: list[EncodedFrame] = []
        size, last, crc = 0, self.last, self.last_crc
        for content in self.home.frames(self.key, self.last, upto):
            try:
                frame = Frame(memoryview(content), 0, self.crc_seed)
                frame.verify()
            except BadFrame as bad:
                problem = f"the frame after event {last} is damaged in the home ({bad})"
                raise StorageCorrupted(self.key, problem, "restore the database from its backup") from None
            if crc and frame.previous_crc != crc:
                if frame.first > last + 1:
                    raise CopyOutlived(f"{self._directory} ends with {last}, but its home starts with {frame.first}")
                raise self._went_back(last)
            if not crc and frame.first > self.floor + 1:
                if not may_begin_later:
                    raise CopyOutlived(f"{self._directory} is empty, but its home starts with {frame.first}")
                self.floor = frame.first - 1
            run.append(EncodedFrame(frame.first, frame.last, frame.recorded_at, frame.crc, frame.length, [content]))
            size, last, crc = size + frame.length, frame.last, frame.crc
            if size >= FETCHED_BYTES:
                yield run
                run, size = [], 0
        if run:
            yield run


def open_copy(
    directory: Path,
    index_directory: Path,
    log_id: bytes,
    *,
    clean: CleanStop | None,
    first_retained: int,
    gaps: Ranges,
    disk: Disk,
    give_up: Callable[[Path, str], None] = lambda directory, why: None,
) -> list[Segment]:
    """Open the segments of a copy like `segments.recovery.open_segments`, up to the first incomplete frame.

    A copy need not be durable, so after a power cut it may have later frames without earlier ones. `give_up`: see
    `Homed`.
    """
    try:
        return open_segments(directory, index_directory, log_id, clean=clean, known_durable=0,
                             first_retained=first_retained, gaps=gaps, disk=disk)  # fmt: skip
    except StorageCorrupted as error:
        give_up(directory.parent, str(error))
        logger.warning("%s; the missing part is fetched from the home", error)
    require_directory(directory)
    _cut_damaged(segment_paths(directory), log_id, first_retained, gaps, disk)
    for each in index_directory.iterdir() if index_directory != directory else ():
        each.unlink()  # it is rebuilt, since it may cover frames that are gone
    return open_segments(directory, index_directory, log_id, clean=None, known_durable=0,
                         first_retained=first_retained, gaps=gaps, disk=disk)  # fmt: skip


def _cut_damaged(paths: Sequence[Path], log_id: bytes, expected: int, gaps: Ranges, disk: Disk) -> None:
    """Keep the intact frames from the first number on, up to the first hole."""
    before: Segment | None = None
    for index, path in enumerate(paths):
        behind = paths[index + 1 :]
        try:
            segment = Segment(path, log_id)
            check_order(expected, segment, gaps)
        except StorageCorrupted:
            behind = paths[index:]
        else:
            scan = SegmentScan(segment, gaps, ends_at=int(behind[0].stem) - 1 if behind else None, before=before)
            scan.run()
            if scan.bad is None and behind:
                expected, before = segment.last + 1, segment
                continue
            cut(segment, log_id, disk)
        for each in behind:
            each.unlink()
        return
