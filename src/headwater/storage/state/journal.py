"""The journal: the data directory's own frame log, in which each change of the state is an event.

DIR/journal/META.json    its identity and first retained number, as for any log
DIR/journal/log/         its segments

A frame is one atomic change. An event has the complete new value of an entry, so that events are idempotent:

    changed, copied    [kind, key, version, value] as MessagePack; version 0: the entry is gone
    had_users          [whether the state ever had users]
    snapshot           [first number, digest]: the copies from there on, and all changes since, are the whole state

Copies change nothing: they let the journal forget its beginning (`journal_snapshot`). Nothing here depends on how the
resulting state is stored (`journaled_state`).
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...core.errors import NotPrimary, OutcomeUnknown, StorageCorrupted, StorageUnavailable
from ...core.event import Encoding
from ...core.limits import EventColumns
from ...formats.decoders import msgpack_decoder
from ...formats.newer import WrittenByNewer
from ..disk.ballast import with_ballast
from ..disk.free_space import Room, Standing
from ..disk.locks import LockLostMeanwhile
from ..disk.system import Disk, make_directory, refusing, sync_directory, tighten
from ..frames.encoding import Chain, encode
from ..frames.frame import Frame
from ..frames.frame_log import Head, HeadMoved, NotKept, Term, new_term
from ..home.copy_file import mark_copy
from ..home.port import JOURNAL_KEY, Home, HomeWentBack
from ..home.replicated_log import Homed, ReplicatedLog, open_copy
from ..segments.meta import FRAMES, CleanStop, Meta, read_meta
from ..segments.recovery import SegmentScan, leave_unended, open_segments
from ..segments.segment import Segment, id_in, segment_paths
from ..segments.segment_log import SegmentLog
from .last_confirmed import REMEDY

logger = logging.getLogger("headwater.storage")

JOURNAL = "journal"
"""The directory, in the data directory."""
UNFINISHED = "journal.new"
"""A journal that is being created."""
NAME = "$state"
"""The name of the log in its META: no other log can have this name."""
SEGMENT_BYTES = 1024 * 1024
"""The size is small, so that little is checked after a crash."""


class RecordType(StrEnum):
    """The type of a journal event."""

    CHANGED = "changed"
    COPIED = "copied"
    HAD_USERS = "had_users"
    SNAPSHOT = "snapshot"


class EntryRecord(msgspec.Struct, array_like=True, frozen=True):
    """The new content of an entry."""

    kind: str
    key: str
    version: int
    """0: the entry is gone."""
    value: bytes


class HadUsers(msgspec.Struct, array_like=True, frozen=True):
    """Whether the state ever had users: see `core.state.StateStore.had_users`."""

    had_users: bool


class JournalSnapshot(msgspec.Struct, array_like=True, frozen=True):
    """Marks that all entries were copied since that number."""

    first: int
    digest: int
    """The digest of all entries at that moment: see `rows`."""


Record = EntryRecord | HadUsers | JournalSnapshot
_Content = bytes
"""The type of a frame's content, because the journal has its own `bytes`."""
_PLENTY = Standing(free_bytes=2**63, reserve_bytes=0, withheld_bytes=0, is_low=False)
_TYPES: dict[type[Record], RecordType] = {HadUsers: RecordType.HAD_USERS, JournalSnapshot: RecordType.SNAPSHOT}
_RECORDS: dict[str, type[Record]] = {
    RecordType.CHANGED: EntryRecord,
    RecordType.COPIED: EntryRecord,
    RecordType.HAD_USERS: HadUsers,
    RecordType.SNAPSHOT: JournalSnapshot,
}


class Written(NamedTuple):
    """A record of the journal with its number."""

    number: int
    record: Record


class Journal:
    """A journal open for writing. Call it only under the lock of its state."""

    def __init__(
        self,
        directory: Path,
        *,
        confirmed: int,
        disk: Disk,
        clock: Callable[[], int],
        homed: Homed | None = None,
    ) -> None:
        """Open it. `confirmed`: the number of a change known to be durable; `clock` gives ms since 1970 UTC.

        With a home, which must have the journal, it is a copy and catches up with the home.
        Raises StorageCorrupted if it cannot be read, or lacks confirmed changes. Raises StorageUnavailable.
        """
        meta = read_meta(directory)
        for each in (directory, *directory.rglob("*")):
            tighten(each)
        self.directory, self._clock, self._homed, self._disk = directory, clock, homed, disk
        room = _AllRoom(directory, disk, reserve_bytes=0)
        self.frames: SegmentLog
        if homed is None:
            self.meta = meta.changed(epoch=meta.epoch + 1, clean=None)
            self.frames = _local_frames(directory, meta, confirmed, new_term(self.meta.epoch), disk, room)
        else:
            self.meta, self.frames = _copied_frames(directory, meta, homed, disk, room)
        self.meta.write(directory)
        self._nonce = self.frames.term.nonce
        self._synced = self.frames.head
        """Everything up to that number is durable."""
        self._followed = self.frames.head
        """Everything up to that number was applied."""
        self._is_closed = False
        self.is_ended = False
        """Whether it was closed with everything on disk."""

    @property
    def head(self) -> int:
        """The number of the last record."""
        return self.frames.head

    @property
    def first(self) -> int:
        """The first retained number: the records from there on form the whole state."""
        return self.meta.first_retained

    @property
    def bytes(self) -> int:
        """The bytes of its written part."""
        return sum(segment.end for segment in self.frames.segments)

    @property
    def home(self) -> Home | None:
        """The home at which it is committed; None if it is committed in its own files."""
        return None if self._homed is None else self._homed.home

    def append(self, records: Sequence[Record], *, is_durable: bool, are_copies: bool = False) -> int:
        """Write records as one change; returns the last number. A durable change makes all earlier ones durable.

        Raises DiskFull, StorageUnavailable: nothing was written. Raises OSError, OutcomeUnknown: it may be written.
        """
        head = Head(self.frames.head, self.frames.last_crc, self.frames.term)
        self._nonce += 1
        chain = Chain(self.frames.crc_seed, head.term.number, head.crc, self._synced, self._nonce)
        recorded_at = max(self._clock(), self.frames.recorded_at)
        frame = encode(_columns(records, are_copies), (), head.number + 1, recorded_at, chain)
        append = partial(self.frames.append_frames, [frame], head, is_durable=is_durable)
        with _as_state():
            with_ballast(self.directory.parent, append)
        if is_durable:
            self._synced = frame.last
        return frame.last

    def check_lock(self) -> None:
        """Check before a write that this process still holds the lock. Raises LockLost."""
        self._disk.check()

    def sync(self) -> None:
        """Make everything appended durable. Raises the errors of `append`."""
        if self._synced < self.head:
            with _as_state():
                self.frames.sync()
            self._synced = self.head

    def read(self, after: int) -> Iterator[Written]:
        """The records above that number. Raises StorageCorrupted."""
        for frame in self.frames.read(after):
            yield from written_in(frame, after)

    @property
    def is_following(self) -> bool:
        """Whether another server writes it and this is a copy."""
        return isinstance(self.frames, ReplicatedLog) and self.frames.is_following

    def follow(self, head: Head) -> Iterator[list[Written]]:
        """Fetch the records of its home, up to `head`: yields the records of each step.

        Raises the same errors as `ReplicatedLog.follow`.
        """
        assert isinstance(self.frames, ReplicatedLog)
        for _ in self.frames.follow(head):
            yield self._news()

    def take(self, content: _Content) -> list[Written] | None:
        """Add a frame committed at the home; None: see `ReplicatedLog.take`."""
        assert isinstance(self.frames, ReplicatedLog)
        return self._news() if self.frames.take(content) else None

    def _news(self) -> list[Written]:
        news = list(self.read(self._followed))
        self._followed = self.head
        return news

    def begin_term(self) -> None:
        """Begin to write it here. Raises OSError."""
        assert isinstance(self.frames, ReplicatedLog)
        self.frames.begin_term()
        self._nonce = self.frames.term.nonce
        self._synced = self.head
        self.meta = self.meta.changed(epoch=self.frames.term.number)
        self.meta.write(self.directory)

    def forget(self, below: int) -> None:
        """Drop the records below that number. Raises DiskFull, StorageUnavailable."""
        meta = self.meta.changed(first_retained=below, known_from=below)
        self.check_lock()
        with refusing(self.directory, "cannot remove the start of the journal"):
            with_ballast(self.directory.parent, partial(meta.write, self.directory))
            self.meta = meta
            self.frames.trim(below)
        if isinstance(self.frames, ReplicatedLog) and not self.is_following:
            self.frames.forget_at_home(below)

    def close(self) -> None:
        """Durably close its files. Raises OSError."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self.sync()
                self.is_ended = True
                self._write_down_end()
            except (StorageUnavailable, OutcomeUnknown) as error:  # if it has a home
                logger.warning("%s: changes that were not durable are lost: %s", self.directory, error)
            finally:
                self.frames.close()

    def _write_down_end(self) -> None:
        """Record the end, so that the next opening continues the segment: see `segments.recovery.leave_unended`."""
        if self._homed is not None or not self.frames.segments:
            return
        newest = self.frames.segments[-1]
        self.meta = self.meta.changed(clean=CleanStop(newest.last, newest.path.name, newest.end, newest.last_crc))
        try:
            self._disk.check()
            self.meta.write(self.directory)
        except (StorageUnavailable, OSError) as error:
            logger.warning("%s: cannot store its end: %s", self.directory, error)


@contextmanager
def _as_state() -> Iterator[None]:
    """Turn errors of a home about frames into errors of the state."""
    try:
        yield
    except HeadMoved:
        raise NotPrimary(NAME) from None
    except (NotKept, LockLostMeanwhile):
        raise OutcomeUnknown(NAME) from None


def _local_frames(directory: Path, meta: Meta, confirmed: int, term: Term, disk: Disk, room: Room) -> SegmentLog:
    frames, log_id = directory / FRAMES, bytes.fromhex(meta.segments_id)
    segments = open_segments(
        frames,
        frames,  # it has no index
        log_id,
        clean=None,
        known_durable=confirmed,
        first_retained=meta.first_retained,
        gaps=meta.gaps,
        disk=disk,
    )
    leave_unended(segments, meta)
    return SegmentLog(frames, log_id, segments, crc_seed=meta.crc_seed, floor=meta.floor, term=term, disk=disk,
                      room=room, segment_bytes=SEGMENT_BYTES)  # fmt: skip


def _copied_frames(directory: Path, meta: Meta, homed: Homed, disk: Disk, room: Room) -> tuple[Meta, ReplicatedLog]:
    """The copy, caught up with the home, and its META, because the home may have forgotten more records."""
    frames, log_id = directory / FRAMES, bytes.fromhex(meta.segments_id)
    segments = open_copy(
        frames, frames, log_id, clean=None, first_retained=meta.first_retained, gaps=meta.gaps, disk=disk,
        give_up=homed.give_up,
    )  # fmt: skip
    copy = ReplicatedLog(homed, JOURNAL_KEY, frames, log_id, segments, crc_seed=meta.crc_seed, floor=meta.floor,
                    disk=disk, room=room, segment_bytes=SEGMENT_BYTES)  # fmt: skip
    try:
        copy.catch_up()
    except HomeWentBack:  # the follower reports it, and continues with the copy
        if not homed.is_following:
            raise
    meta = meta.changed(epoch=homed.home.term.number)
    if copy.segments and (first := copy.segments[0].first) > meta.first_retained:
        meta = meta.changed(first_retained=first, known_from=first, voids=[(1, first - 1)])
    return meta, copy


class _AllRoom(Room):
    """Lets the journal use the rest of the disk without a check: acknowledgements and trims free space."""

    def check(self) -> Standing:
        return _PLENTY


def make_copy(directory: Path, home: Home, clock: Callable[[], int]) -> None:
    """Durably create an empty copy of a home's journal, or none at all. Raises OSError.

    The directory is marked as a copy first, so that it is never mistaken for complete data.
    """
    mark_copy(directory.parent, home.incarnation)
    unfinished = directory.with_name(UNFINISHED)
    make_directory(unfinished / FRAMES)
    Meta(
        name=NAME,
        incarnation=home.incarnation,
        segments_id=home.incarnation,
        id_seed=home.seed,
        created_at=clock(),
        partitions=1,
        first_retained=1,
        known_from=1,
        voids=[],
    ).write(unfinished)
    sync_directory(unfinished)
    unfinished.rename(directory)
    sync_directory(directory.parent)


def make_journal(
    directory: Path,
    after: int,
    records: Iterator[Sequence[Record]],
    clock: Callable[[], int],
    incarnation: str | None = None,
) -> None:
    """Durably create a journal that begins above that number with these records, or none at all.

    `incarnation`: its id; None: random. Raises OSError, DiskFull, StorageUnavailable.
    """
    unfinished = directory.with_name(UNFINISHED)
    make_directory(unfinished / FRAMES)
    incarnation = incarnation or uuid.uuid4().hex
    Meta(
        name=NAME,
        incarnation=incarnation,
        segments_id=incarnation,
        id_seed=secrets.randbits(64),
        created_at=clock(),
        partitions=1,
        first_retained=after + 1,
        known_from=after + 1,
        voids=[(1, after)] if after else [],
    ).write(unfinished)
    journal = Journal(unfinished, confirmed=0, disk=Disk(), clock=clock)
    try:
        for each in records:
            journal.append(each, is_durable=False, are_copies=True)
    finally:
        journal.close()
    sync_directory(unfinished / FRAMES)
    sync_directory(unfinished)
    unfinished.rename(directory)
    sync_directory(directory.parent)


def read_journal(directory: Path, after: int) -> Iterator[Written]:
    """The records above that number in a journal that another process may be writing.

    Raises StorageCorrupted if they are damaged, or the journal begins after them. Raises StorageUnavailable.
    """
    meta = read_meta(directory)
    if meta.first_retained > after + 1:
        problem = f"it starts with record {meta.first_retained}, but record {after + 1} is required"
        raise StorageCorrupted(str(directory), problem, REMEDY)
    segments = [Segment(path, bytes.fromhex(meta.segments_id)) for path in segment_paths(directory / FRAMES)]
    before: Segment | None = None
    for segment, following in zip_longest(segments, segments[1:]):
        ends_at = following.first - 1 if following else None
        scan = SegmentScan(segment, meta.gaps, ends_at=ends_at, before=before)
        scan.run()
        before = segment
        if scan.bad is not None and ends_at is not None:
            raise scan.damage(ends_at)
        for index in range(len(segment.firsts)):
            if (frame := segment.frame(index)).last > after:
                yield from written_in(frame, after)


def salvaged(directory: Path) -> tuple[list[Written], list[str]]:
    """Every intact record of a damaged journal, in order, and descriptions of the rest.

    Raises WrittenByNewer.
    """
    found: list[Written] = []
    lost: list[str] = []
    with suppress(StorageCorrupted):  # not needed if damaged
        read_meta(directory)
    paths = segment_paths(directory / FRAMES)
    for path, following in zip_longest(paths, paths[1:]):
        try:
            for frame in SegmentScan(Segment(path, id_in(path)), ()).good_frames():
                if following is not None and frame.first >= int(following.stem):
                    break  # a suspended process wrote it after others had continued
                expected = found[-1].number + 1 if found else frame.first
                if frame.first > expected:
                    lost.append(f"records {expected} to {frame.first - 1} of the journal")
                found += written_in(frame)
        except WrittenByNewer:
            raise  # it is not damaged: nothing may be given up
        except (StorageCorrupted, StorageUnavailable, OSError) as error:
            lost.append(f"{JOURNAL}/{FRAMES}/{path.name}: {error}")
    return found, lost


def name_of(incarnation: str) -> int:
    """The identifier of a journal in its image: some bits of its incarnation, signed, never 0."""
    return int.from_bytes(bytes.fromhex(incarnation)[:4], "little", signed=True) or 1


def written_in(frame: Frame, after: int = 0) -> Iterator[Written]:
    """The records of a frame above that number. Raises StorageCorrupted, WrittenByNewer."""
    for event in frame.events(max(after + 1 - frame.first, 0)):
        kind = _RECORDS.get(event.type)
        if kind is None:
            raise WrittenByNewer(f"record {event.sequence_number} of the journal", f"type {event.type!r}")
        try:
            yield Written(event.sequence_number, msgpack_decoder(kind).decode(event.data))
        except msgspec.MsgspecError as error:
            raise StorageCorrupted(JOURNAL, f"record {event.sequence_number} cannot be read: {error}", REMEDY) from None


def _columns(records: Sequence[Record], are_copies: bool) -> EventColumns:
    entry = RecordType.COPIED if are_copies else RecordType.CHANGED
    count, empty = len(records), [""] * len(records)
    data = [msgspec.msgpack.encode(record) for record in records]
    types = [_TYPES.get(record.__class__, entry) for record in records]
    nothing = [b""] * count
    return EventColumns.unchecked(
        types, data, [()] * count, empty, empty, [{}] * count, empty, nothing, [Encoding.DATA] * count, 0
    )
