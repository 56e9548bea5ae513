"""The stored log: frames on disk, derived index, sequencer and consumer registry as one `LocalLog`."""

from __future__ import annotations

import logging
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ..core.consumer import Consumer
from ..core.counting import Counted, TermKind
from ..core.errors import (
    Closed,
    EventLogError,
    NotPrimary,
    PositionOfOtherIncarnation,
    PositionTrimmed,
    StorageCorrupted,
)
from ..core.extent import SegmentInfo, Weight
from ..core.limits import EventColumns
from ..core.local import LocalLog
from ..core.log import PAGE_BYTES, PAGE_EVENTS, AppendRequest, ArrowBatch, LogInfo, LogStatistics, Page
from ..core.mark import WriterState
from ..core.query import Query
from ..core.settings import LogSettings
from ..core.shared_bytes import SharedBytes
from ..core.state import StateStore
from ..core.watch.bus import Bus
from .append.append_memory import append_bytes_max, staged_append_bytes_max
from .append.judge import LogJudge, Numbering
from .append.loop_commits import LoopCommits
from .append.sequencer import Sequencer
from .append.writer_table import KeptMarks, WriterLimits, load_writers, read_writers
from .catalog.history import fetch_history
from .catalog.identity import identified, known_identity, record_identity
from .catalog.retention import kept_from
from .catalog.trim_point import Trimmed, agreed, bear_witness, check_witness, take_over, trimmed_in
from .disk.ballast import with_ballast
from .disk.free_space import Room
from .disk.system import Disk, refusing
from .frames.frame import Frame
from .frames.frame_log import Head, new_term
from .home.replicated_log import Homed, ReplicatedLog, open_copy
from .index import id_files
from .index.backlog import Backlog
from .index.counts import Counting, events_with, terms_of
from .index.ids import are_distinct, hash_ids, hashes_of
from .index.loader import load_index
from .index.postings import KEY, PARTITION, TAG, TYPE, write_postings
from .read.frame_cache import DecodedFrames
from .read.reader import Bounds, Reader
from .segments.meta import FORMAT, FRAMES, INDEX, CleanStop, Meta
from .segments.recovery import known_durable, leave_unended, open_segments
from .segments.segment import Ranges, Segment, bytes_between
from .segments.segment_log import SegmentLog
from .staging.commit import drop_committed
from .staging.owners import release_unknown

logger = logging.getLogger("headwater.storage")

_KINDS = {TermKind.TYPE: TYPE, TermKind.TAG_KEY: KEY, TermKind.TAG: TAG}
CLEAN_POSTINGS_MIN = 2000
"""A clean stop writes an index file if at least this many events are in memory; fewer are read again at the next
start."""
CLEAN_BYTES_MAX = 8 * 1024 * 1024
"""A clean stop writes index files if all logs together have at most this many unindexed bytes. Otherwise the next start
reads their events again, so that a stop never writes a large file."""


class StoredLog(LocalLog):
    """One log in its directory. Opening recovers it; `close` makes the next opening quick."""

    def __init__(
        self,
        directory: Path,
        settings: LogSettings,
        state: StateStore,
        *,
        disk: Disk,
        clock: Callable[[], int],
        room: Room,
        waiting: SharedBytes | None = None,
        backlog: Backlog | None = None,
        fatal: Callable[[str], None] | None = None,
        bus: Bus | None = None,
        decoded: DecodedFrames | None = None,
        homed: Homed | None = None,
        writers: WriterLimits | None = None,
    ) -> None:
        """`decoded` caches decoded frames of all logs, `backlog` counts their unindexed bytes, `waiting` their waiting
        appends (None for a separate budget). With a home, the directory is a copy of the home's log.

        Raises StorageCorrupted, StorageUnavailable, CopyOutlived.
        """
        meta, told = identified(state, directory)
        if told is not None:
            logger.error("log %s: %s, and nothing is lost", meta.name, told)
        check_witness(state, meta, directory)
        super().__init__(meta.name, settings, state, meta.incarnation, clock, bus or Bus())
        self.directory = directory
        self.tended: object = None
        """The state in which maintenance last had nothing to do: see `maintenance.upkeep`."""
        self.is_ended = False
        """Whether it was closed with everything on disk."""
        self.has_told_of_writers = False
        """Whether the warning about many writers was logged."""
        self._decoded = decoded or DecodedFrames()
        self._state, self._clock = state, clock
        self._log_id, self._disk = bytes.fromhex(meta.segments_id), disk
        (directory / INDEX).mkdir(exist_ok=True)  # the whole index may have been deleted: it is rebuilt
        self._homed, self._writer_limits = homed, writers
        self.waiting = waiting or self.waiting
        self.append_bytes_max = append_bytes_max(self.waiting)
        self.staged_append_bytes_max = staged_append_bytes_max(self.waiting)
        self.frames = self._opened(meta, disk, room) if homed is None else self._copied(meta, disk, room, homed)
        self.backlog = (backlog or Backlog()).share(meta.name, self._wake_all)
        """Its share of the unindexed bytes."""
        try:
            if isinstance(self.frames, ReplicatedLog):
                self._catch_up(self.frames)
            self._load(self.meta, clock, fatal)
            if self.is_following:
                self._sequencer.step_aside()
        except BaseException:
            self.backlog.close()
            self.frames.close()
            raise
        self._closing = threading.Lock()
        """A second `close` waits for the first, which still writes frames."""
        drop_committed(self, directory)
        self.release_names()

    def _opened(self, meta: Meta, disk: Disk, room: Room) -> SegmentLog:
        """Recover the log's own frames and begin a new epoch."""
        directory = self.directory
        segments = open_segments(
            directory / FRAMES,
            directory / INDEX,
            self._log_id,
            clean=meta.clean,
            known_durable=max(known_durable(self._state, meta), read_writers(directory)[0] if meta.has_marks else 0),
            first_retained=meta.first_retained,
            gaps=meta.gaps,
            disk=disk,
        )
        leave_unended(segments, meta)
        self._begin_epoch(meta, max(meta.epoch, _last_epoch(segments)) + 1)
        return SegmentLog(
            directory / FRAMES,
            self._log_id,
            segments,
            crc_seed=meta.crc_seed,
            floor=meta.floor,
            term=new_term(self.meta.epoch),
            disk=disk,
            room=room,
        )

    def _copied(self, meta: Meta, disk: Disk, room: Room, homed: Homed) -> ReplicatedLog:
        """Open the copy of a log at a home."""
        directory, said = self.directory, trimmed_in(self._state, meta)
        meta = meta.changed(first_retained=said.first_retained, known_from=said.known_from)  # trimmed elsewhere
        segments = open_copy(
            directory / FRAMES,
            directory / INDEX,
            self._log_id,
            clean=meta.clean,
            first_retained=meta.first_retained,
            gaps=meta.gaps,
            disk=disk,
            give_up=homed.give_up,
        )
        self._begin_epoch(meta, homed.home.term.number)
        return ReplicatedLog(
            homed,
            meta.segments_id,
            directory / FRAMES,
            self._log_id,
            segments,
            crc_seed=meta.crc_seed,
            floor=meta.floor,
            disk=disk,
            room=room,
        )

    def _catch_up(self, frames: ReplicatedLog) -> None:
        """Fetch the data that the index needs: all frames, or the first frames of a trimmed log if another server
        appends, and the postings of events that the home has forgotten.
        """
        if not self.is_following:
            frames.catch_up()
        elif self.meta.first_retained > self.meta.origin and not frames.last_crc:
            frames.catch_up(least=1)
        fetch_history(self.directory, frames, self.meta)

    def _begin_epoch(self, meta: Meta, epoch: int) -> None:
        take_over(self._state, meta)
        if known_identity(self._state, self.directory) is None:
            record_identity(self._state, self.directory, meta)
        self.meta = meta.changed(format=FORMAT, epoch=epoch, clean=None)
        # Before anything is appended, because the recorded clean end is no longer valid.
        with_ballast(self.directory.parent.parent, partial(self.meta.write, self.directory))

    def _load(self, meta: Meta, clock: Callable[[], int], fatal: Callable[[str], None] | None) -> None:
        """Load the index and build the parts that use it. Raises StorageCorrupted."""
        origin = meta.origin
        self._numbering = Numbering(origin, max(meta.first_retained, origin), max(meta.known_from, origin))
        self._numbering.gaps = tuple(sorted(meta.gaps))
        loaded = load_index(self.directory, self.frames, meta, self.backlog)
        self.index = loaded.index
        self._reader = Reader(self.frames, self.index, self._decoded)
        self._counting = Counting()
        kept = KeptMarks(self._state, meta.incarnation)
        self.writer_table = load_writers(
            self.directory,
            self.frames,
            self.meta,
            self._begin_marks,
            kept,
            is_copy=self._homed is not None,
            limits=self._writer_limits,
        )
        self.writer_table.has_all = not self.is_following
        judge = LogJudge(
            self.index,
            lambda: self.settings,
            self._numbering,
            self._statistics,
            self._reader.frame_at_exactly,
            self.writer_table,
            id_seed=meta.id_seed,
            recorded_at=self.recorded_at,
            clock=clock,
            counts_as=meta.counts_as,
        )
        for frame in loaded.frames_to_replay():
            judge.apply_frame(frame)
        self._sequencer = Sequencer(
            self.name,
            self.frames,
            judge,
            self._statistics,
            self._published,
            waiting=self.waiting,
            backlog=self.backlog,
            fatal=fatal,
        )
        self._lane = LoopCommits(self._sequencer, self.frames) if type(self.frames) is SegmentLog else None
        self._sequencer.lane = self._lane

    @property
    def is_following(self) -> bool:
        """Whether another server appends to this log."""
        return self._homed is not None and self._homed.is_following

    @property
    def end(self) -> tuple[int, int]:
        """The number of the last applied event, and the checksum of the last frame."""
        return min(self.frames.head, self._sequencer.durable_head), self.frames.last_crc

    def follow(self, head: Head, *, waits_for_index: bool = False) -> None:
        """Apply frames that others appended, up to `head` of the log at its home.

        Raises the errors of `ReplicatedLog.follow`. `waits_for_index`: apply no more than the index has room for; the
        next call continues.
        """
        assert isinstance(self.frames, ReplicatedLog)
        for _ in self.frames.follow(head, may_begin_later=False):
            self._sequencer.follow()
            if waits_for_index and not self.backlog.has_room:
                return
        if self._sequencer.durable_head != self.frames.head:  # an earlier call fetched it and then failed
            self._sequencer.follow()

    def take(self, content: bytes) -> bool:
        """Apply a frame committed at the home; False: see `ReplicatedLog.take`."""
        assert isinstance(self.frames, ReplicatedLog)
        if not self.frames.take(content):
            return False
        self._sequencer.follow()
        return True

    def follow_state(self, settings: LogSettings, consumers: bool) -> None:
        """Apply the log's current state: settings, trim point, marks and, if they changed, consumers.

        Raises StorageCorrupted, StorageUnavailable, DiskFull.
        """
        with self._changing:
            self.settings = settings
            said = trimmed_in(self._state, self.meta)
            if (said.first_retained, said.known_from) != (self.first_retained, self.known_from):
                self._enter_numbering(said)
            identity = known_identity(self._state, self.directory)
            if identity is not None and identity.has_marks:
                self.writer_table.begin()
        if consumers:
            self.registry.reload(self.meta.incarnation)

    def begin_term(self) -> None:
        """Accept appends from now on: the log has everything its home has."""
        assert isinstance(self.frames, ReplicatedLog)
        self.frames.begin_term()
        self.writer_table.merge_kept()
        self.writer_table.has_all = True
        self._sequencer.begin_term()

    def columns_of(self, batch: ArrowBatch) -> EventColumns:
        from ..formats.arrow.events import columns_of

        return columns_of(batch, self.settings)

    def submit(self, request: AppendRequest) -> None:
        self._sequencer.submit(request)

    def submit_on(self, loop: AbstractEventLoop) -> Callable[[AppendRequest], None] | None:
        return self._lane.submit if self._lane is not None and self._lane.attach(loop) else None

    def read_page(
        self,
        query: Query,
        after: int,
        *,
        upto: int | None = None,
        backwards: bool = False,
        partition: int | None = None,
        limit: int = PAGE_EVENTS,
        bytes_max: int = PAGE_BYTES,
        packs: bool = False,
        is_bounded: bool = False,
    ) -> Page:
        """See LocalLog. Raises StorageCorrupted, Closed; NotPrimary: see `Home.has_lapsed`."""
        if self._homed is not None:
            self.check_current()
        head, lowest = self._sequencer.durable_head, self._numbering.first_retained
        if backwards:
            low, high = max(upto or 0, lowest), min(after - 1, head)
        else:
            high = max(head if upto is None else min(upto, head), after)
            low = max(after + 1, lowest)
        if low > high:
            return Page((), min(low, after) if backwards else high, head, True)
        if limit < 1:
            return Page((), after, head, False)
        if self.settings.partitions == 1:
            partition = None  # the only one
        bounds = Bounds(low, high, head, backwards, limit, bytes_max, packs, is_bounded)
        page = self._reader.page(query, partition, bounds)
        self._statistics.events_read += len(page.events) + (page.large is not None)
        return page

    def check_current(self) -> None:
        """See LocalLog."""
        if self._homed is not None and self._homed.home.has_lapsed():
            raise NotPrimary(self.name)

    @property
    def damage(self) -> str | None:
        """The damage that a read found, and what to do about it; None if there is none."""
        return next((each.damage for each in self.frames.segments if each.damage is not None), None)

    @property
    def distrusted(self) -> Ranges:
        """Events damaged on disk. They are not served, even from memory."""
        return tuple(each for segment in self.frames.segments for each in segment.distrusted)

    def look_for_damage(self, path: str) -> None:
        """Verify the segment at a path where another process found damage; `damage` reports the result."""
        for segment in tuple(self.frames.segments):
            if str(segment.path) == path and segment.damage is None:
                segment.look_for_damage()

    def head(self) -> int:
        return self._sequencer.durable_head

    def check_position(self, position: int) -> None:
        for low, high in self.meta.voids:
            if low < position <= high:
                raise PositionOfOtherIncarnation(position, self.meta.incarnation, high + 1)
        if position < self._numbering.first_retained and self._numbering.first_retained > self._numbering.origin:
            raise PositionTrimmed(position, self._numbering.first_retained)

    @property
    def voids(self) -> Sequence[tuple[int, int]]:
        return self.meta.voids

    @property
    def recorded_at(self) -> int:
        """When the last event was recorded; 0 if the log is empty. See `Meta.counts_as`."""
        return self.meta.counts_as(self.frames.last) or self.frames.recorded_at

    def sequence_number_at(self, recorded_at: int) -> int:
        """See LocalLog. Bisects the frames, whose times never decrease (but see `Meta.counts_as`).

        A damaged frame is no newer than the next intact one, and counts as recorded with it.
        """
        low, high = self._numbering.first_retained, self.head() + 1
        while low < high:
            middle = (low + high) // 2
            frame = self._whole_frame_from(middle)
            if frame is not None and self._time_of(frame, max(middle, frame.first)) < recorded_at:
                low = max(middle, frame.first) + 1
            else:
                high = middle
        return low

    def _whole_frame_from(self, number: int) -> Frame | None:
        """The frame with that number, or the next intact one; None above the last."""
        while True:
            try:
                return self._reader.frame_at(number)
            except StorageCorrupted:
                segment = next(each for each in self.frames.segments if each.last >= number)
                number = segment.number_of(max(segment.index_of(number), 0) + 1)

    def _time_of(self, frame: Frame, number: int) -> int:
        taken_as = self.meta.counts_as(number) if self.meta.distrusted else None
        return frame.recorded_at_of(number) if taken_as is None else taken_as

    def count_steps(
        self, query: Query, after: int, upto: int, *, partition: int | None = None, by_type: bool = False
    ) -> Iterator[Counted]:
        low, high = max(after + 1, self._numbering.first_retained), min(upto, self.head())
        if self.settings.partitions == 1:
            partition = None  # the only one
        pieces = self.index.pieces(low, high)
        yield from self._counting.steps(pieces, query, partition, self._count, by_type=by_type)

    def terms(self, kind: TermKind, prefix: str) -> Iterator[Sequence[str]]:
        for piece in reversed(self.index.pieces(self._numbering.first_retained, self.head())):
            yield from terms_of(piece.postings, _KINDS[kind], prefix)

    def events_with(self, kind: TermKind, terms: Sequence[str]) -> Iterator[Mapping[str, int]]:
        return events_with(self.index.pieces(self._numbering.first_retained, self.head()), _KINDS[kind], terms)

    def info(self) -> LogInfo:
        head, first = self.head(), self._numbering.first_retained
        events, segments = self._count(first, head), self.frames.segments
        return LogInfo(
            self.name,
            self.meta.incarnation,
            self.settings,
            head,
            first,
            events,
            sum(segment.end for segment in segments),
            self.meta.created_at,
            self._partition_events(first, head, events),
            sum(segment.allocated for segment in segments) + self.frames.prepared_bytes,
        )

    def segments(self, after: int, limit: int) -> list[SegmentInfo]:
        segments = self.frames.segments
        found = [each for each in segments if each.first > after][:limit]
        return [self._shown_segment(each, is_written=each is segments[-1]) for each in found]

    def events_between(self, low: int, high: int) -> int:
        return self._count(low, high)

    def weigh(self, low: int, high: int) -> Weight:
        return Weight(self._count(low, high), bytes_between(self.frames.segments, low, high))

    def freed_by(self, first_retained: int) -> tuple[int, int]:
        """See LocalLog. The newest segment stays."""
        gone = [each for each in self.frames.segments[:-1] if each.last < first_retained]
        return len(gone), sum(each.allocated for each in gone)

    def _shown_segment(self, segment: Segment, *, is_written: bool) -> SegmentInfo:
        begin = end = None
        if segment.events:
            first, last = segment.frame(0), segment.frame(len(segment.offsets) - 1)
            begin, end = self._time_of(first, first.first), self._time_of(last, last.last)
        return SegmentInfo(
            segment.first, segment.last, segment.events, segment.end, segment.allocated, begin, end, is_written
        )

    @property
    def statistics(self) -> LogStatistics:
        self._statistics.segments = len(self.frames.segments)
        self._statistics.writers, self._statistics.writers_max = (
            self.writer_table.open_count,
            self.writer_table.limits.writers_max,
        )
        self._statistics.unindexed_bytes = self.backlog.unindexed
        return self._statistics

    def _begin_at(self, number: int) -> None:
        """See LocalLog. `maintenance.tasks.reclaim` unlinks whole segments later."""
        self._set_numbering(number, self._numbering.known_from if self.settings.keeps_history else number)

    def writer(self, name: str) -> WriterState | None:
        return self.writer_table.get(name)

    def writers(self) -> list[WriterState]:
        return self.writer_table.all()

    def forget_writer(self, name: str) -> None:
        if self.is_closed:
            raise Closed(self.name)
        if self.is_following:
            raise NotPrimary(self.name)
        self.writer_table.forget(name)

    def release_names(self) -> None:
        """Free names of writers unknown to the log if too many names have an owner. Raises OSError."""
        release_unknown(self.directory, lambda writer: self.writer(writer) is not None)

    def stored(self, sources: Sequence[str], ids: Sequence[str]) -> list[int | None]:
        if self.is_closed:
            raise Closed(self.name)
        head, horizon = self.head(), self.settings.id_horizon
        lowest = max(self._numbering.first_retained, head - horizon + 1 if horizon else 0)
        hashes = hash_ids(sources, ids, self.meta.id_seed)
        return self._reader.confirmed(self.index.ids.find(hashes, lowest, head), sources, ids)

    def new_ones(self, columns: EventColumns) -> list[int]:
        """See LocalLog. Usually no hash is known, and no id is compared."""
        hashes = hashes_of(columns, self.meta.id_seed)
        if are_distinct(hashes) and not self.index.ids.find(hashes, 1, self.head()):
            return list(range(columns.count))
        return super().new_ones(columns)

    def change(self, settings: LogSettings) -> None:
        """Apply new settings. Raises InvalidSettings for those fixed at creation."""
        with self._changing:
            self.settings.check_change(settings)
            self.settings = settings
            trimmed = self._numbering.first_retained > self._numbering.origin
            if trimmed and not settings.keeps_history and self._numbering.known_from < self._numbering.first_retained:
                self._set_numbering(self._numbering.first_retained, self._numbering.first_retained)

    @property
    def first_retained(self) -> int:
        return self._numbering.first_retained

    @property
    def known_from(self) -> int:
        return self._numbering.known_from

    def kept_from(self, settings: LogSettings, consumers: Sequence[Consumer], ahead_ms: int = 0) -> int:
        return kept_from(self, self.frames.segments, settings, consumers, self._clock(), ahead_ms)

    def agreed_trim(self) -> Trimmed:
        """What may be unlinked: up to where META on disk, the state and this log agree. Raises StorageCorrupted."""
        said = agreed(self.directory, self._state, self.meta.incarnation)
        return Trimmed(min(said.first_retained, self.first_retained), min(said.known_from, self.known_from))

    def changing(self) -> threading.RLock:
        """The lock held while META, the settings or the set of files change."""
        return self._changing

    def close(self) -> None:
        """Answer accepted appends, record how the log ended, close the files."""
        with self._closing:
            if self.is_closed:
                return
            self._sequencer.close()
            with self._changing:
                self.is_closed = True
                try:
                    self._write_down_end()
                    self.is_ended = True
                except (
                    EventLogError,
                    OSError,
                ) as error:  # for example a full disk: only the next opening takes longer
                    problem = "log %s: cannot store its end, so the next start reads its newest segment: %s"
                    logger.warning(problem, self.name, error)
                self.frames.close()
                self._decoded.forget(self.frames)
                self.backlog.close()
        self._wake_all()

    def _write_down_end(self) -> None:
        """Record the end, so that the next opening need not scan every frame. Missing files are rebuilt then."""
        self._disk.check()
        index = self.directory / INDEX
        is_little = self.backlog.backlog.unindexed <= CLEAN_BYTES_MAX
        for active in self.index.actives if is_little else ():
            if active.last - active.first + 1 >= CLEAN_POSTINGS_MIN:
                write_postings(index, active.first, active.last, active.encoded_terms())
        if self._count(self._numbering.first_retained, self.head()) >= CLEAN_POSTINGS_MIN:
            for generation in self.index.ids.generations:
                id_files.save(generation, index)
        self.writer_table.save()
        self.frames.sync()
        if self.frames.segments and (newest := self.frames.segments[-1]).events:
            clean = CleanStop(newest.last, newest.path.name, newest.end, newest.last_crc)
            self.meta = self.meta.changed(clean=clean)
            with_ballast(self.directory.parent.parent, partial(self.meta.write, self.directory))

    def _begin_marks(self) -> None:
        with self._changing:
            meta = self.meta.changed(has_marks=True)
            identity = known_identity(self._state, self.directory)
            if identity is None or not identity.has_marks:  # else another server has them
                record_identity(self._state, self.directory, meta)
            meta.write(self.directory)
            self.meta = meta

    def _set_numbering(self, first_retained: int, known_from: int) -> None:
        """It is durable before it applies, so that trimmed events never reappear.

        The state is written first, so that consumers' acknowledgements are durable before an event is forgotten.
        """
        said = Trimmed(first_retained, known_from)
        with refusing(self.directory, "cannot store the first number of the log"):
            bear_witness(self._state, self.meta.incarnation, said)
        self._enter_numbering(said)

    def _enter_numbering(self, said: Trimmed) -> None:
        """The state already has it."""
        meta = self.meta.changed(first_retained=said.first_retained, known_from=said.known_from)
        with refusing(self.directory, "cannot store the first number of the log"):
            with_ballast(self.directory.parent.parent, partial(meta.write, self.directory))
        self.meta = meta
        self._numbering.known_from = said.known_from
        self._numbering.first_retained = said.first_retained

    def _count(self, low: int, high: int) -> int:
        if low > high:
            return 0
        gone = self.meta.gaps
        return high - low + 1 - sum(max(0, min(high, b) - max(low, a) + 1) for a, b in gone)

    def _partition_events(self, low: int, high: int, events: int) -> tuple[int, ...]:
        if self.settings.partitions == 1:
            return (events,)
        counts = [0] * self.settings.partitions
        for piece in self.index.pieces(low, high):
            for partition in range(self.settings.partitions):
                numbers = piece.postings.numbers(PARTITION, str(partition))
                if numbers is not None:
                    counts[partition] += numbers.above(piece.high) - numbers.above(piece.low - 1)
        return tuple(counts)

    def _published(self, head: int) -> None:
        self.writer_table.landed(head)
        self._wake_all()


def _last_epoch(segments: Sequence[Segment]) -> int:
    """The epoch of the last frame; 0 if there is none. A recreated META.json does not have it."""
    for segment in reversed(segments):
        if segment.events:
            return int(segment.frame(len(segment.firsts) - 1).epoch)
    return 0
