"""The writer table of one log: what it has of each exactly-once writer (`core.mark`), applied and durable.

The committer applies marks; what it applied becomes durable with its frame (`landed`), or is forgotten (`rollback`).
The table follows from the frames. So that frames may go, it is also written to a file: see `StoredWriterTable`.
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
"""A log knows at most so many writers that have not ended, unless a limit is given. For a new one, it forgets the one
that was idle longest."""
WRITER_IDLE_MS = 7 * 24 * 60 * 60 * 1000
"""But none that was heard of later than that: then the new one is refused."""
UNFINISHED_MS = 30 * 24 * 60 * 60 * 1000
"""A writer whose newest batch is not complete is forgotten after that time at the earliest, unless a limit is given."""
MANY = 0.8
"""From this share of the limit on, a log warns."""
ENDED_MS = 60 * 60 * 1000
"""A writer that has ended (`WriterState.is_ended`) is forgotten after that time,"""
ENDED_BYTES_MAX = 16 * 1024 * 1024
"""or sooner, the oldest first, where ended writers take more memory than that."""
ENTRY_BYTES = 524
"""What a writer takes in memory, besides its name."""
DROPPED_TOGETHER = 500
"""So many forgotten writers are dropped at once from the state: appends of the log wait meanwhile."""
_CANNOT_WRITE = "the table of exactly-once writers cannot be written"
WRITERS_NAME = "WRITERS.json"
WRITERS_FORMAT = 2
_Row = tuple[str, int, int, int, int, int, bool, int]
"""A writer's state, in its own order, and when it was last heard of, as the file has them."""


class WriterLimits(NamedTuple):
    """How many writers a log knows."""

    writers_max: int = WRITERS_MAX
    """So many at most that have not ended."""
    unfinished_ms: int = UNFINISHED_MS
    """One whose newest batch is not complete may be forgotten for a new one when it was silent for so long."""


class MarkedFrame(Protocol):
    """What the table asks of a frame."""

    recorded_at: int

    @property
    def last(self) -> int:
        """The number of its last event."""

    def marks(self) -> Sequence[FrameMark]:
        """Its marks, in order."""


class _Known(NamedTuple):
    state: WriterState
    at: int
    """When the writer was last heard of: recorded_at of its newest mark."""


class _Pending(NamedTuple):
    """A change that is applied, but not durable: with the frame that has that number it will be."""

    number: int
    known: _Known
    forgotten: tuple[str, ...]
    """The writers that are forgotten with it."""


class WriterTable:
    """The writers of one log. One thread applies and rolls back; all else may come from any."""

    def __init__(
        self, upto: int = 0, known: Iterable[tuple[WriterState, int]] = (), limits: WriterLimits | None = None
    ) -> None:
        """`upto`: the table is exact for the events up to that number. `limits` None: the usual ones."""
        self._limits = limits
        self._durable = {state.writer: _Known(state, at) for state, at in known}
        self._applied = dict(self._durable)
        self._ended = _ended_of(self._applied)
        self._pending: deque[_Pending] = deque()
        self._upto = upto
        self._lock = threading.Lock()
        """Held while any of it changes, and while more than one entry of it is looked at."""

    @property
    def limits(self) -> WriterLimits:
        """How many writers it knows."""
        return self._limits or WriterLimits(WRITERS_MAX, UNFINISHED_MS)

    @property
    def open_count(self) -> int:
        """How many writers it knows that have not ended. Any thread may ask."""
        return max(len(self._applied) - len(self._ended), 0)

    def trouble(self) -> str | None:
        """What to tell an operator while the log knows almost as many writers as it can; None before that."""
        count, allowed = self.open_count, self.limits.writers_max
        if count < allowed * MANY:
            return None
        return (
            f"it knows {count} exactly-once writers of {allowed} (limits.writers_max); new ones are refused then, "
            "unless one was silent for 7 days; raise the limit, or use fewer names (one for each job, not for each run)"
        )

    def get(self, writer: str) -> WriterState | None:
        """What is durable of a writer."""
        known = self._durable.get(writer)
        return None if known is None else known.state

    def all(self) -> list[WriterState]:
        """What is durable of all writers, by name."""
        with self._lock:
            return [known.state for _, known in sorted(self._durable.items())]

    def judge(self, mark: Mark, count: int, at: int) -> AppendResult | None:
        """The answer to an append whose mark is not ahead; None if it may go in. Raises TooLarge: one writer too many.

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
        """Enter a mark that passed, with its `count` events from number `first` on; answers the state that it makes."""
        known = self._applied.get(mark.writer)
        state = advanced(None if known is None else known.state, mark, first, count)
        self._enter(state, first + count - 1, at)
        return state

    def record(self, mark: Mark, head: int, at: int) -> None:
        """Enter a mark without events, durably; nothing else is pending.

        Raises DiskFull, StorageUnavailable: then nothing has changed.
        """
        self.apply(mark, head + 1, 0, at)
        self.landed(head)

    def replay(self, frame: MarkedFrame) -> None:
        """Enter the marks of a frame that is in the log."""
        for mark in frame.marks():
            self._enter(mark.state, frame.last, frame.recorded_at)

    def forget(self, writer: str) -> None:
        """Forget a writer whose end is durable; nothing happens where none of that name is known.

        Its frames still have its marks: a table that is made from them has it, as ended.
        Raises InvalidInput (it has not ended), DiskFull, StorageUnavailable.
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
        """Everything up to that number is durable."""
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
        """Forget what is applied but not durable."""
        with self._lock:
            self._pending.clear()
            self._applied = dict(self._durable)
            self._ended = _ended_of(self._applied)

    def begin(self) -> None:
        """The first mark is about to go in. Raises DiskFull, StorageUnavailable."""

    def save(self) -> None:
        """Make the durable table last without the frames it comes from. Raises DiskFull, StorageUnavailable."""

    def snapshot(self) -> tuple[int, list[_Known]]:
        """A number, and what was known with the events up to it."""
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
            elif state.writer in self._ended:  # it was forgotten, and its name is used again
                self._ended.remove(state.writer)
            forgotten.extend(self._forget_ended(at))
            self._pending.append(_Pending(number, known, tuple(forgotten)))

    def _forget_ended(self, now: int) -> list[str]:
        """Forget the writers that ended an hour ago, and the oldest of too many; answers them."""
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
        """Whether there are as many writers that have not ended as a log knows."""
        return self.open_count >= self.limits.writers_max

    def _idlest(self, now: int) -> str | None:
        """The writer that may be forgotten for a new one: the longest idle of the old ones, the complete first."""
        complete, unfinished = now - WRITER_IDLE_MS, now - self.limits.unfinished_ms
        old = [
            (not state.is_complete, at, state.writer)
            for state, at in self._applied.values()
            if not state.is_ended and at <= (complete if state.is_complete else unfinished)
        ]
        return min(old)[2] if old else None


class _Ended(OrderedDict[str, int]):
    """The writers that have ended, and when; the oldest first."""

    bytes = 0
    """What they take in memory, about."""

    def add(self, writer: str, at: int) -> None:
        """It has ended, then."""
        if writer not in self:
            self.bytes += entry_bytes(writer)
        self[writer] = at
        self.move_to_end(writer)

    def remove(self, writer: str) -> None:
        """It is forgotten."""
        del self[writer]
        self.bytes -= entry_bytes(writer)


def entry_bytes(writer: str) -> int:
    """What a writer takes in memory, about."""
    return ENTRY_BYTES + sys.getsizeof(writer)


def _not_ended(state: WriterState) -> InvalidInput:
    problem = (
        f"{show(state.writer)} has not ended: it is at batch {state.batch}; only a writer whose batch {BATCH_MAX} is "
        "complete and durable can be forgotten: commit that batch first, or leave the writer as it is"
    )
    return InvalidInput(problem, "writer")


def _ended_of(known: Mapping[str, _Known]) -> _Ended:
    ended = _Ended()
    for at, writer in sorted((at, state.writer) for state, at in known.values() if state.is_ended):
        ended.add(writer, at)
    return ended


class KeptMarks:
    """What the state has of a log's writers: marks without events, for which there is no frame to be found in."""

    def __init__(self, state: StateStore, incarnation: str) -> None:
        self._state, self._kind = state, kinds_of_log(incarnation)[3]

    def keep(self, state: WriterState, at: int, *, is_durable: bool = True) -> None:
        """Enter what is known of a writer. Raises DiskFull, StorageUnavailable."""
        row = msgspec.json.encode([_row(state, at)])
        kept = self._state.get(self._kind, state.writer)
        if kept is None or kept.value != row:
            self._state.put(self._kind, state.writer, row, is_durable=is_durable)

    def has(self, writer: str) -> bool:
        """Whether something was entered of that writer. Raises StorageUnavailable."""
        return self._state.get(self._kind, writer) is not None

    def all(self) -> list[tuple[WriterState, int]]:
        """All writers of which something was entered, and when each was heard of. Raises StorageUnavailable."""
        decode = json_decoder(list[_Row]).decode
        rows = [row for _, entry in self._state.items(self._kind) for row in decode(entry.value)]
        return [(WriterState(*row[:7]), row[7]) for row in rows]

    def drop(self, writers: Iterable[str]) -> None:
        """What the state has of these is known without it."""
        self._state.delete_all(self._kind, writers)


class StoredWriterTable(WriterTable):
    """A writer table with a file. `begin` is called once in the life of a log, before its first mark."""

    def __init__(
        self,
        directory: Path,
        upto: int,
        known: Iterable[tuple[WriterState, int]],
        begin: Callable[[], None] | None,
        kept: KeptMarks,
        limits: WriterLimits | None = None,
    ) -> None:
        """`begin`: what else is to be done before the log's first mark; None if it has marks. `kept`: those without."""
        super().__init__(upto, known, limits)
        self._directory, self._kept = directory, kept
        self._begin = begin
        self._saving = threading.Lock()
        self.has_all = False
        """Whether the table has every mark of the state: not while another server may enter more."""
        self._keeping = threading.Lock()
        """Held while a mark is entered in the store of marks and in the table, and while the two are compared."""

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
        """See WriterTable. Kept first: there is no frame that it could be found in again."""
        with self._keeping:
            self._kept.keep(advanced(self.get(mark.writer), mark, 0, 0), at)
            super().record(mark, head, at)

    def forget(self, writer: str) -> None:
        """See WriterTable. A mark that is kept apart goes first: it would hide later batches of that name."""
        with self._keeping:
            known = self.get(writer)
            if (known is None or known.is_ended) and self._kept.has(writer):
                self.save()  # else earlier marks alone would be left, and the writer has not ended with these
                self._kept.drop([writer])
            super().forget(writer)

    def merge_kept(self) -> None:
        """Enter what was kept apart from frames, where it is newer than what they say.

        Nothing follows an end: what frames say of a later time is of a writer that has the name of a forgotten one.
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
        """The file has all that was kept apart. Raises DiskFull, StorageUnavailable."""
        if writers := [state.writer for state, _ in self._kept.all()]:
            self.save()
            self._kept.drop(writers)

    def keep_all(self) -> None:
        """Keep all that is durable apart from the frames, which may go, and no writer that is forgotten.

        To be made durable by the caller.
        """
        for state, _ in self.snapshot()[1]:
            with self._keeping:  # a newer mark than that of the snapshot may be kept by now
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
    """The table is exact for the events up to that number; marks of later frames come on top."""
    writers: list[_Row]


class _FirstFile(msgspec.Struct):
    """WRITERS.json as 0.1.0 wrote it."""

    format: int
    upto: int
    crc: int
    """CRC32C of `upto` in decimal digits, a line feed, and `writers` as it stands in the file."""
    writers: msgspec.Raw


def write_writers(directory: Path, upto: int, known: Sequence[tuple[WriterState, int]]) -> None:
    """Write the file of a writer table, durably: it is replaced whole, or stays. Raises OSError."""
    rows = sorted(_row(state, at) for state, at in known)
    WRITERS_FILE.write(directory, _File(WRITERS_FORMAT, upto, rows))


def read_writers(directory: Path) -> tuple[int, list[tuple[WriterState, int]]]:
    """Up to which number the table on file is exact, and its writers with the time each was last heard of.

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
    """The table of exactly-once writers: what is on file, the marks of the frames behind that, and those kept apart.

    `begin` is called before a log without marks takes its first. What is on file is kept nowhere else, but of a copy.
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
    """The file as 0.1.0 wrote it. Raises ValueError."""
    file = earlier_struct(content, _FirstFile)
    if file.crc != google_crc32c.value(b"%d\n" % file.upto + bytes(file.writers)):
        raise ValueError("the checksum does not fit")
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
    remedy="restore a backup (headwater restore), or accept that batches whose events are gone may come again "
    "(headwater check --accept-loss)",
)
