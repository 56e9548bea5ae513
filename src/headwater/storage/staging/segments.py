"""A large staged part as segment files: the bodies of frames, with room for the heads.

Only the log can write the heads.

    PART-ATTEMPT.frames             the table: the files, their frames, and the checksum of each body
    PART-ATTEMPT.TOKEN.N.segment    a header of zeros, and frames whose heads are zeros

A commit writes the heads and adopts the file into the log (`adoption`), or reads its rows like those of any other part.
Heads are never read: the table has all their content. So a commit interrupted while writing them does no harm.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from ...core.errors import EventLogError, StorageCorrupted
from ...formats.arrow.columns import sizes_of
from ...formats.arrow.lazy import pa
from ..disk.checked_file import CheckedFile
from ..disk.system import Disk, private_opener, sync_directory
from ..frames.crc import extended_crc
from ..frames.encoding import EncodedBody, encode_body, head_room
from ..frames.layout import Column
from ..segments.segment import SEGMENT_HEADER_BYTES
from .part import STAGE_AGAIN, damaged_part

TABLE_SUFFIX = ".frames"
SEGMENT_SUFFIX = ".segment"
TABLE_FORMAT = 1
FRAME_BYTES = 16 * 1024 * 1024
"""Rows are gathered into frames of this size. A smaller part does not become a segment."""
FRAME_EVENTS_MAX = 65_536
STAGED_SEGMENT_EVENTS_MAX = 131_072
STAGED_SEGMENT_BYTES_MAX = 48 * 1024 * 1024
"""Bounds the amount that is judged at once, because judging blocks other appends: a larger part has several files."""


class StagedFrame(msgspec.Struct, array_like=True, frozen=True):
    """One frame of a file."""

    offset: int
    length: int
    count: int
    tags: int
    crc: int
    """CRC32C of the bytes after its head."""
    bytes: int
    """The size of its events as counted for byte limits."""
    payload_max: int
    """Bytes of data and envelope of the largest event."""
    directory: list[int]


class StagedSegment(msgspec.Struct):
    """One file."""

    name: str
    frames: list[StagedFrame]

    @property
    def end(self) -> int:
        """The size of the file."""
        return self.frames[-1].offset + self.frames[-1].length

    @property
    def count(self) -> int:
        """The number of its events."""
        return sum(frame.count for frame in self.frames)


class Table(msgspec.Struct):
    """The table of a part staged as segments."""

    room: int
    """The bytes reserved for the head of each frame."""
    segments: list[StagedSegment]
    format: int = TABLE_FORMAT
    is_gated: bool = False
    """Whether all its events passed all checks when staged."""


class SegmentsPart:
    """A part of segments being written. Methods raise OSError."""

    def __init__(self, directory: Path, id: str, writer: str, disk: Disk) -> None:
        self._directory, self._id, self._disk = directory, id, disk
        self._token = os.urandom(4).hex()
        self._table = Table(head_room(writer), [], is_gated=True)
        self._fd = -1
        self._weight = 0

    @property
    def is_begun(self) -> bool:
        """Whether anything was written."""
        return bool(self._table.segments)

    def write(self, batches: Sequence[pa.RecordBatch], weight: int, *, are_gated: bool) -> None:
        """Add a frame with the events of these batches; `weight` is their size as counted for byte limits."""
        self._table.is_gated &= are_gated
        body = encode_body(batches, self._table.room)
        if not self._fits(body, weight):
            self._end()
            self._begin()
        segment = self._table.segments[-1]
        offset = segment.end if segment.frames else SEGMENT_HEADER_BYTES
        self._disk.write(self._fd, [bytes(self._table.room), *body.buffers], offset)
        crc = 0
        for buffer in body.buffers:
            crc = extended_crc(crc, buffer)
        most = max(map(_payload_max, batches))
        segment.frames.append(
            StagedFrame(offset, body.length, body.events, body.tags, crc, weight, most, body.directory)
        )
        self._weight += weight
        self.touch()

    def touch(self) -> None:
        """Mark all its files as in use, because files without a writer are removed after a while."""
        for segment in self._table.segments:
            os.utime(self._unfinished(segment))

    def finish(self) -> None:
        """Make everything durable except the table: see `keep`."""
        self._end()

    def keep(self) -> int:
        """Durably make it a part of its batch; returns its size in bytes."""
        names = {segment.name for segment in self._table.segments}
        for segment in self._table.segments:
            os.rename(self._unfinished(segment), self._directory / segment.name)
        sync_directory(self._directory)  # before the table: its files must exist
        _table_file(self._id).write(self._directory, self._table)
        for path in self._directory.glob(f"{self._id}.*{SEGMENT_SUFFIX}"):
            if path.name not in names:  # an earlier table under that name
                path.unlink()
        return sum(segment.end for segment in self._table.segments)

    def close(self) -> None:
        """Remove it, unless it is a part of its batch."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        is_kept = self._is_kept()
        for segment in self._table.segments:
            self._unfinished(segment).unlink(missing_ok=True)
            if not is_kept:  # for example, there was no room for the table
                (self._directory / segment.name).unlink(missing_ok=True)

    def _is_kept(self) -> bool:
        """Whether the existing table is this one."""
        try:
            return read_table(self._directory, self._id).segments == self._table.segments
        except (EventLogError, OSError):
            return False

    def _fits(self, body: EncodedBody, weight: int) -> bool:
        if self._fd < 0:
            return False
        segment = self._table.segments[-1]
        return (
            segment.count + body.events <= STAGED_SEGMENT_EVENTS_MAX
            and max(segment.end + body.length, self._weight + weight) <= STAGED_SEGMENT_BYTES_MAX
        )

    def _begin(self) -> None:
        name = f"{self._id}.{self._token}.{len(self._table.segments)}{SEGMENT_SUFFIX}"
        segment = StagedSegment(name, [])
        self._table.segments.append(segment)
        self._weight = 0
        self._fd = private_opener(str(self._unfinished(segment)), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._disk.write(self._fd, [bytes(SEGMENT_HEADER_BYTES)], 0)

    def _end(self) -> None:
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _unfinished(self, segment: StagedSegment) -> Path:
        return self._directory / f"{segment.name}.tmp"


def read_table(directory: Path, stage: str) -> Table:
    """Raises FileNotFoundError if the part has no table; StorageCorrupted, StorageUnavailable (a newer format)."""
    return _table_file(stage).read(directory)


def check_segments(directory: Path, stage: str) -> None:
    """Verify every byte of a part except the heads. Raises StorageCorrupted if it is damaged."""
    table = read_table(directory, stage)
    try:
        _check_bodies(directory, table)
    except StorageCorrupted:
        if not (directory / f"{stage}{TABLE_SUFFIX}").exists() or read_table(directory, stage) == table:
            raise
        check_segments(directory, stage)  # it was staged again meanwhile, with other files


def _check_bodies(directory: Path, table: Table) -> None:
    for segment in table.segments:
        path = directory / segment.name
        content = mapped_segment(path, segment)
        for frame in segment.frames:
            if extended_crc(0, body_of(content, frame, table.room)) != frame.crc:
                raise damaged_part(path, f"the checksum of the frame at {frame.offset} does not match")


def mapped_segment(path: Path, segment: StagedSegment) -> pa.Buffer:
    """Map a whole file. Raises StorageCorrupted if it is missing or its length differs."""
    try:
        if path.stat().st_size != segment.end:
            raise damaged_part(path, f"it has {path.stat().st_size} bytes, but was staged with {segment.end}")
    except FileNotFoundError:
        raise damaged_part(path, "it is missing") from None
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def body_of(content: pa.Buffer, frame: StagedFrame, room: int) -> pa.Buffer:
    """The staged body of a frame."""
    return content.slice(frame.offset + room, frame.length - room)


def rows_of(content: pa.Buffer, frame: StagedFrame) -> pa.RecordBatch:
    """The events of a frame of a verified file, in place."""
    from ...formats.arrow.columns import EVENT_SCHEMA

    read = _Columns(content.slice(frame.offset, frame.length), frame)
    values = [
        read.values(Column.TYPE, pa.string()),
        read.values(Column.DATA, pa.binary()),
        read.tags(),
        read.values(Column.ID, pa.string()),
        read.values(Column.SOURCE, pa.string()),
        read.attributes(),
        read.values(Column.GROUP_KEY, pa.string()),
        read.values(Column.ENVELOPE, pa.binary()),
        read.encodings(),
    ]
    return pa.RecordBatch.from_arrays(values, schema=EVENT_SCHEMA)


def segment_rows(path: Path, segment: StagedSegment) -> Iterator[pa.RecordBatch]:
    """The rows of a verified file, frame by frame. Raises StorageCorrupted."""
    content = mapped_segment(path, segment)
    for frame in segment.frames:
        yield rows_of(content, frame)


class _Columns:
    """The columns of one frame as Arrow arrays."""

    def __init__(self, content: pa.Buffer, frame: StagedFrame) -> None:
        self._content, self._frame, self._directory = content, frame, frame.directory

    def values(self, slot: int, kind: pa.DataType, count: int | None = None) -> pa.Array:
        count = self._frame.count if count is None else count
        offsets = self._offsets(slot, count)
        end = int(np.frombuffer(offsets, np.int32)[-1])
        content = self._content.slice(self._directory[slot + 1], end) if end else pa.py_buffer(b"")
        return pa.Array.from_buffers(kind, count, [None, offsets, content])

    def tags(self) -> pa.ListArray:
        lists = self._lists(Column.TAG_LISTS)
        return pa.ListArray.from_arrays(lists, self.values(Column.TAG, pa.string(), self._frame.tags))

    def attributes(self) -> pa.MapArray:
        lists = self._lists(Column.ATTRIBUTE_LISTS)
        count = lists[-1].as_py()
        names = self.values(Column.ATTRIBUTE_NAME, pa.string(), count)
        return pa.MapArray.from_arrays(lists, names, self.values(Column.ATTRIBUTE_VALUE, pa.string(), count))

    def encodings(self) -> pa.Int8Array:
        at, count = self._directory[Column.ENCODING], self._frame.count
        content = self._content.slice(at, count) if at else pa.py_buffer(bytes(count))
        return pa.Array.from_buffers(pa.int8(), count, [None, content])

    def _lists(self, slot: int) -> pa.Int32Array:
        count = self._frame.count + 1
        return pa.Array.from_buffers(pa.int32(), count, [None, self._offsets(slot, self._frame.count)])

    def _offsets(self, slot: int, count: int) -> pa.Buffer:
        at = self._directory[slot]
        return self._content.slice(at, 4 * (count + 1)) if at else pa.py_buffer(bytes(4 * (count + 1)))


def _payload_max(batch: pa.RecordBatch) -> int:
    return int((sizes_of(batch.column("data")) + sizes_of(batch.column("envelope"))).max())


def _table_file(stage: str) -> CheckedFile[Table]:
    return CheckedFile(
        f"{stage}{TABLE_SUFFIX}",
        Table,
        newest=TABLE_FORMAT,
        checked_from=TABLE_FORMAT,
        remedy=STAGE_AGAIN,
    )
