"""The writer table of one log: the applied and the durable state of each exactly-once writer (`core.mark`).

The committer applies marks; they become durable with their frame (`landed`) or are dropped (`rollback`).
The table is derived from the frames. It is also written to a file, so that frames may be removed: see
`StoredWriterTable`.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import google_crc32c
import msgspec

from ...core.errors import InvalidInput, TooLarge
from ...core.limits import show
from ...core.log import AppendResult
from ...core.mark import BATCH_MAX, Mark, WriterState, advanced
from ...core.state import StateStore, kinds_of_log
from ...formats.decoders import json_decoder
from ..disk.checked_file import CheckedFile, earlier_struct
from ..disk.system import refusing
from ..frames.layout import FrameMark
from ..segments.meta import Meta
from ..segments.segment_log import SegmentLog

WRITERS_MAX = 10_000
"""The default limit of writers per log that have not ended. To admit a new one, the log forgets the writer that has
been idle longest."""
WRITER_IDLE_MS = 7 * 24 * 60 * 60 * 1000
"""A writer active within this time is not forgotten: the new one is refused instead."""
UNFINISHED_MS = 30 * 24 * 60 * 60 * 1000
"""The default time before a writer with an incomplete newest batch may be forgotten."""
MANY = 0.8
"""A log warns when it reaches this share of the limit."""
ENDED_MS = 60 * 60 * 1000
"""A writer that has ended (`WriterState.is_ended`) is forgotten after this time,"""
ENDED_BYTES_MAX = 16 * 1024 * 1024
"""or sooner, oldest first, if ended writers take more memory than this."""
ENTRY_BYTES = 524
"""The memory of a writer, without its name."""
DROPPED_TOGETHER = 500
"""The number of forgotten writers to drop from the state at once: appends to the log wait meanwhile."""
_CANNOT_WRITE = "the table of exactly-once writers cannot be written"
WRITERS_NAME = "WRITERS.json"
WRITERS_FORMAT = 2
_Row = tuple[str, int, int, int, int, int, bool, int]
"""A writer's state, in field order, and when it was last active, as stored in the file."""


class WriterLimits(NamedTuple):
    """The number of writers that a log remembers, and for how long."""

    writers_max: int = WRITERS_MAX
    """The maximum number of writers that have not ended."""
    unfinished_ms: int = UNFINISHED_MS
    """The time that a writer with an incomplete newest batch must be inactive before a new one may replace it."""


class MarkedFrame(Protocol):
    """The parts of a frame that the table uses."""

    recorded_at: int

    @property
    def last(self) -> int:
        """The number of its last event."""

    def marks(self) -> Sequence[FrameMark]:
        """Its marks, in order."""


class _Known(NamedTuple):
    state: WriterState
    at: int
    """When the writer was last active: recorded_at of its newest mark."""


class _Pending(NamedTuple):
    """A change that is applied, but not durable before the frame with that number."""

    number: int
    known: _Known
    forgotten: tuple[str, ...]
    """The writers forgotten with it."""


class WriterTable:
    """The writers of one log. One thread applies and rolls back; other methods are safe from any thread."""

    def __init__(
        self, upto: int = 0, known: Iterable[tuple[WriterState, int]] = (), limits: WriterLimits | None = None
    ) -> None:
        """`upto`: the table is exact for the events up to that number. `limits`: None for the defaults."""
        self._limits = limits
        self._durable = {state.writer: _Known(state, at) for state, at in known}
        self._applied = dict(self._durable)
        self._ended = _ended_of(self._applied)
        self._pending: deque[_Pending] = deque()
        self._upto = upto
        self._lock = threading.Lock()
        """Held during changes, and while more than one entry is read."""

    @property
    def limits(self) -> WriterLimits:
        """The number of known writers."""
        return self._limits or WriterLimits(WRITERS_MAX, UNFINISHED_MS)

    @property
    def open_count(self) -> int:
        """The number of known writers that have not ended. Safe to call from any thread."""
        return max(len(self._applied) - len(self._ended), 0)

    def trouble(self) -> str | None:
        """A message for the operator while the number of writers is near the limit; else None."""
        count, allowed = self.open_count, self.limits.writers_max
        if count < allowed * MANY:
            return None
        return (
            f"it has {count} exactly-once writers of {allowed} (limits.writers_max); "
            f"at the limit, new ones are refused "
            "unless one has been inactive for 7 days; raise the limit or use fewer names (one per job, not per run)"
        )

    def get(self, writer: str) -> WriterState | None:
        """The durable state of a writer."""
        known = self._durable.get(writer)
        return None if known is None else known.state

    def all(self) -> list[WriterState]:
        """The durable states of all writers, by name."""
        with self._lock:
            return [known.state for _, known in sorted(self._durable.items())]

    def judge(self, mark: Mark, count: int, at: int) -> AppendResult | None:
        """The result of an append whose mark is not ahead; None to accept it. Raises TooLarge: one writer too many.

        `at` is the present time, in ms.
        """
        known = self._applied.get(mark.writer)
        if known is None:
            ends = mark.is_last and mark.batch == BATCH_MAX
            with self._lock:
                if not ends and self._is_full() and self._idlest(at) is None:
                    raise TooLarge(self.open_count + 1, self.limits.writers_max, "writers", "mark.writer")
            return None
        if known.state.is_behind(mark, count):
            return None
        if mark.batch < known.state.batch:
            return AppendResult(0, 0, was_stored=True)
        return AppendResult(known.state.first, known.state.last, was_stored=True)

    def apply(self, mark: Mark, first: int, count: int, at: int) -> WriterState:
        """Apply an accepted mark with its `count` events from number `first` on; returns the new state."""
        known = self._applied.get(mark.writer)
        state = advanced(None if known is None else known.state, mark, first, count)
        self._enter(state, first + count - 1, at)
        return state

    def record(self, mark: Mark, head: int, at: int) -> None:
        """Durably apply a mark without events; nothing else is pending.

        Raises DiskFull, StorageUnavailable: nothing has changed.
        """
        self.apply(mark, head + 1, 0, at)
        self.landed(head)

    def replay(self, frame: MarkedFrame) -> None:
        """Apply the marks of a frame of the log."""
        for mark in frame.marks():
            self._enter(mark.state, frame.last, frame.recorded_at)

    def forget(self, writer: str) -> None:
        """Forget a writer whose end is durable; an unknown name is ignored.

        Its frames still contain its marks: a table rebuilt from them contains it, as ended. Raises InvalidInput (it has
        not ended), DiskFull, StorageUnavailable.
        """
        with self._lock:
            durable = self._durable.get(writer)
            newest = self._applied.get(writer, durable)
            if newest is None:
                return
            if newest is not durable or not newest.state.is_ended:
                raise _not_ended(newest.state)
            del self._durable[writer]
            if self._applied.pop(writer, None) is not None:
                self._ended.remove(writer)

    def landed(self, head: int) -> None:
        """Record that everything up to that number is durable."""
        if not self._pending:
            self._upto = head
            return
        with self._lock:
            while self._pending and self._pending[0].number <= head:
                _, known, forgotten = self._pending.popleft()
                for writer in forgotten:
                    self._durable.pop(writer, None)
                self._durable[known.state.writer] = known
            self._upto = head

    def rollback(self) -> None:
        """Drop changes that are applied but not durable."""
        with self._lock:
            self._pending.clear()
            self._applied = dict(self._durable)
            self._ended = _ended_of(self._applied)

    def begin(self) -> None:
        """Prepare for the log's first mark. Raises DiskFull, StorageUnavailable."""

    def save(self) -> None:
        """Save the durable table, so that it does not depend on its frames. Raises DiskFull, StorageUnavailable."""

    def snapshot(self) -> tuple[int, list[_Known]]:
        """A number, and the writers known with the events up to it."""
        with self._lock:
            return self._upto, list(self._durable.values())

    def _enter(self, state: WriterState, number: int, at: int) -> None:
        forgotten: list[str] = []
        known = _Known(state, at)
        with self._lock:
            if not state.is_ended and state.writer not in self._applied and self._is_full():
                idlest = self._idlest(at)
                if idlest is not None:
                    forgotten.append(idlest)
                    del self._applied[idlest]
            self._applied[state.writer] = known
            if state.is_ended:
                self._ended.add(state.writer, at)
            elif state.writer in self._ended:  # it was forgotten and its name is reused
                self._ended.remove(state.writer)
            forgotten.extend(self._forget_ended(at))
            self._pending.append(_Pending(number, known, tuple(forgotten)))

    def _forget_ended(self, now: int) -> list[str]:
        """Forget writers that ended an hour ago, and the oldest if there are too many; returns them."""
        forgotten: list[str] = []
        while self._ended:
            oldest = next(iter(self._ended))
            if self._ended[oldest] > now - ENDED_MS and self._ended.bytes <= ENDED_BYTES_MAX:
                break
            self._ended.remove(oldest)
            del self._applied[oldest]
            forgotten.append(oldest)
        return forgotten

    def _is_full(self) -> bool:
        """Whether the number of writers that have not ended is at the limit."""
        return self.open_count >= self.limits.writers_max

    def _idlest(self, now: int) -> str | None:
        """The writer to forget in favour of a new one: the longest idle among those old enough, complete ones first."""
        complete, unfinished = now - WRITER_IDLE_MS, now - self.limits.unfinished_ms
        old = [
            (not state.is_complete, at, state.writer)
            for state, at in self._applied.values()
            if not state.is_ended and at <= (complete if state.is_complete else unfinished)
        ]
        return min(old)[2] if old else None


class _Ended(OrderedDict[str, int]):
    """The writers that have ended, and when they ended; oldest first."""

    bytes = 0
    """Their approximate memory."""

    def add(self, writer: str, at: int) -> None:
        """Add a writer that ended at that time."""
        if writer not in self:
            self.bytes += entry_bytes(writer)
        self[writer] = at
        self.move_to_end(writer)

    def remove(self, writer: str) -> None:
        """Remove a forgotten writer."""
        del self[writer]
        self.bytes -= entry_bytes(writer)


def entry_bytes(writer: str) -> int:
    """The approximate memory of a writer."""
    return ENTRY_BYTES + sys.getsizeof(writer)


def _not_ended(state: WriterState) -> InvalidInput:
    problem = (
        f"{show(state.writer)} is unfinished: it is at batch {state.batch}; only a writer whose batch {BATCH_MAX} is "
        "complete and durable can be removed: commit that batch first, or keep the writer"
    )
    return InvalidInput(problem, "writer")


def _ended_of(known: Mapping[str, _Known]) -> _Ended:
    ended = _Ended()
    for at, writer in sorted((at, state.writer) for state, at in known.values() if state.is_ended):
        ended.add(writer, at)
    return ended


class KeptMarks:
    """The marks of a log's writers in the state: marks without events, which no frame contains."""

    def __init__(self, state: StateStore, incarnation: str) -> None:
        self._state, self._kind = state, kinds_of_log(incarnation)[3]

    def keep(self, state: WriterState, at: int, *, is_durable: bool = True) -> None:
        """Store the state of a writer. Raises DiskFull, StorageUnavailable."""
        row = msgspec.json.encode([_row(state, at)])
        kept = self._state.get(self._kind, state.writer)
        if kept is None or kept.value != row:
            self._state.put(self._kind, state.writer, row, is_durable=is_durable)

    def has(self, writer: str) -> bool:
        """Whether there is an entry for that writer. Raises StorageUnavailable."""
        return self._state.get(self._kind, writer) is not None

    def all(self) -> list[tuple[WriterState, int]]:
        """All writers with an entry, and when each was last active. Raises StorageUnavailable."""
        decode = json_decoder(list[_Row]).decode
        rows = [row for _, entry in self._state.items(self._kind) for row in decode(entry.value)]
        return [(WriterState(*row[:7]), row[7]) for row in rows]

    def drop(self, writers: Iterable[str]) -> None:
        """Drop the entries of these writers, which are known without the state."""
        self._state.delete_all(self._kind, writers)


class StoredWriterTable(WriterTable):
    """A writer table with a file. `begin` is called once in the lifetime of a log, before its first mark."""

    def __init__(
        self,
        directory: Path,
        upto: int,
        known: Iterable[tuple[WriterState, int]],
        begin: Callable[[], None] | None,
        kept: KeptMarks,
        limits: WriterLimits | None = None,
    ) -> None:
        """`begin` is called before the log's first mark (None if it has marks); `kept` are marks without events."""
        super().__init__(upto, known, limits)
        self._directory, self._kept = directory, kept
        self._begin = begin
        self._saving = threading.Lock()
        self.has_all = False
        """Whether the table contains every mark of the state: False while another server may add more."""
        self._keeping = threading.Lock()
        """Held while a mark is entered in both the state and the table, and while the two are compared."""

    @property
    def is_used(self) -> bool:
        """Whether the log has, or had, marks."""
        return self._begin is None

    def begin(self) -> None:
        if self._begin is not None:
            with self._saving, refusing(self._directory, _CANNOT_WRITE):
                write_writers(self._directory, *self.snapshot())
                self._begin()
            self._begin = None

    def save(self) -> None:
        if self.is_used:
            with self._saving, refusing(self._directory, _CANNOT_WRITE):  # an older one must not replace a newer one
                write_writers(self._directory, *self.snapshot())

    def record(self, mark: Mark, head: int, at: int) -> None:
        """See WriterTable. The state is written first, because no frame contains this mark."""
        with self._keeping:
            self._kept.keep(advanced(self.get(mark.writer), mark, 0, 0), at)
            super().record(mark, head, at)

    def forget(self, writer: str) -> None:
        """See WriterTable. A mark in the state is removed first, because it would hide later batches of that name."""
        with self._keeping:
            known = self.get(writer)
            if (known is None or known.is_ended) and self._kept.has(writer):
                self.save()  # otherwise only earlier marks would be left, without the writer's end
                self._kept.drop([writer])
            super().forget(writer)

    def merge_kept(self) -> None:
        """Apply the marks of the state that are newer than the marks of the frames.

        Nothing follows an end: later marks in frames belong to a new writer with the name of a forgotten one.
        """
        upto, known = self.snapshot()
        heard_of = {state.writer: at for state, at in known}
        for state, at in sorted(self._kept.all(), key=lambda kept: kept[1]):
            there = self.get(state.writer)
            is_of_another = state.is_ended and heard_of.get(state.writer, at) > at
            if there is None or ((state.batch, state.rows) > (there.batch, there.rows) and not is_of_another):
                self._enter(state, upto, at)
        self.landed(upto)

    def drop_kept(self) -> None:
        """Save the file, then drop the marks of the state, which the file contains.

        Raises DiskFull, StorageUnavailable.
        """
        if writers := [state.writer for state, _ in self._kept.all()]:
            self.save()
            self._kept.drop(writers)

    def keep_all(self) -> None:
        """Store all durable writers in the state, so that frames may be removed, and drop the forgotten ones.

        The caller makes it durable.
        """
        for state, _ in self.snapshot()[1]:
            with self._keeping:  # the state may have a newer mark than the snapshot by now
                if (known := self._durable.get(state.writer)) is not None:
                    self._kept.keep(known.state, known.at, is_durable=False)
        if not self.has_all:
            return
        forgotten = [state.writer for state, _ in self._kept.all() if self.get(state.writer) is None]
        for start in range(0, len(forgotten), DROPPED_TOGETHER):
            some = forgotten[start : start + DROPPED_TOGETHER]
            with self._keeping:
                self._kept.drop([writer for writer in some if self.get(writer) is None])


class _File(msgspec.Struct):
    """WRITERS.json."""

    format: int
    upto: int
    """The table is exact for the events up to that number; marks of later frames are added to it."""
    writers: list[_Row]


class _FirstFile(msgspec.Struct):
    """WRITERS.json in the format of 0.1.0."""

    format: int
    upto: int
    crc: int
    """CRC32C of `upto` in decimal digits, a line feed, and `writers` as in the file."""
    writers: msgspec.Raw


def write_writers(directory: Path, upto: int, known: Sequence[tuple[WriterState, int]]) -> None:
    """Durably and atomically replace the file of a writer table. Raises OSError."""
    rows = sorted(_row(state, at) for state, at in known)
    WRITERS_FILE.write(directory, _File(WRITERS_FORMAT, upto, rows))


def read_writers(directory: Path) -> tuple[int, list[tuple[WriterState, int]]]:
    """The number up to which the stored table is exact, and its writers with the time each was last active.

    Raises StorageCorrupted if the file is missing or damaged, StorageUnavailable (a newer format).
    """
    try:
        file = WRITERS_FILE.read(directory)
    except FileNotFoundError:
        raise WRITERS_FILE.damaged(directory / WRITERS_NAME, "the table of exactly-once writers is missing") from None
    return file.upto, [(WriterState(*row[:7]), row[7]) for row in file.writers]


def load_writers(
    directory: Path,
    frames: SegmentLog,
    meta: Meta,
    begin: Callable[[], None],
    kept: KeptMarks,
    *,
    is_copy: bool,
    limits: WriterLimits | None = None,
) -> StoredWriterTable:
    """Load the table of exactly-once writers from the file, the marks of later frames, and the marks in the state.

    `begin` is called before a log without marks accepts its first mark. Except for a copy, the file is the only source.
    Raises StorageCorrupted, StorageUnavailable.
    """
    if not meta.has_marks:
        return StoredWriterTable(directory, frames.head, (), begin, kept, limits)
    if is_copy and not (directory / WRITERS_NAME).exists():
        write_writers(directory, 0, ())
    upto, known = read_writers(directory)
    table = StoredWriterTable(directory, upto, known, None, kept, limits)
    for frame in frames.read(upto):
        table.replay(frame)
    table.landed(frames.head)
    table.merge_kept()
    if not is_copy:
        table.drop_kept()
    return table


def _earlier(content: bytes) -> _File:
    """Decode the format of 0.1.0. Raises ValueError."""
    file = earlier_struct(content, _FirstFile)
    if file.crc != google_crc32c.value(b"%d\n" % file.upto + bytes(file.writers)):
        raise ValueError("the checksum does not match")
    return _File(file.format, file.upto, json_decoder(list[_Row]).decode(file.writers))


def _row(state: WriterState, at: int) -> _Row:
    return (
        state.writer, state.batch, state.rows, state.first, state.last, state.events, state.is_complete, at,
    )  # fmt: skip


WRITERS_FILE = CheckedFile(
    WRITERS_NAME,
    _File,
    newest=WRITERS_FORMAT,
    checked_from=WRITERS_FORMAT,
    earlier=_earlier,
    remedy="restore a backup (headwater restore), or accept that batches whose events are gone may be appended again "
    "(headwater check --accept-loss)",
)
