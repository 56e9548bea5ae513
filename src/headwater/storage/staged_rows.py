"""Rows on their way into a staged part: gathered, and written as an Arrow file if they are few, else as segments."""

from __future__ import annotations

import threading

from ..core.limits import EventColumns
from ..formats.arrow_columns import ArrowColumns, batch_of
from ..formats.late import pa
from . import staged_frames
from .staged_frames import SegmentsPart
from .staged_part import PartFile

HELD_BYTES_MAX = 128 * 1024 * 1024
"""All parts that are being staged hold no more rows than that; where they would, frames are smaller."""


class _Room:
    """What the parts of this process hold. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0

    def take(self, size: int) -> bool:
        """Room for so many bytes; False: there is none, and nothing is taken."""
        with self._lock:
            has_room = self._taken + size <= HELD_BYTES_MAX
            self._taken += size * has_room
            return has_room

    def give_back(self, size: int) -> None:
        """So many that were taken."""
        with self._lock:
            self._taken -= size


_room = _Room()


class StagedRows:
    """The rows of one part. Methods raise OSError."""

    def __init__(self, file: PartFile, segments: SegmentsPart | None) -> None:
        """`segments`: None if an Arrow file is all that the part may be."""
        self._file, self._segments = file, segments
        self._sink: pa.ipc.RecordBatchFileWriter | None = None
        self._held: list[EventColumns] = []
        self._held_events = self._held_bytes = self._taken = 0

    @property
    def segments(self) -> SegmentsPart | None:
        """What was written of them; None if it is an Arrow file."""
        return self._segments if self._segments is not None and self._segments.is_begun else None

    def write(self, columns: EventColumns) -> None:
        """Add rows."""
        if self._segments is None:
            self.write_batch(batch_of(columns))
            return
        events, size = self._held_events + columns.count, self._held_bytes + columns.bytes
        if self._held and (events > staged_frames.FRAME_EVENTS_MAX or size > staged_frames.FRAME_BYTES):
            self._write_frame(self._segments)
        self._held.append(columns)
        self._held_events += columns.count
        self._held_bytes += columns.bytes
        if _room.take(columns.bytes):
            self._taken += columns.bytes
        else:
            self._write_frame(self._segments)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows to the Arrow file."""
        self._sink_of_file().write_batch(batch)

    def finish(self) -> int:
        """What was written is durable when this returns; answers the size of the Arrow file, if it is one."""
        if self._segments is not None:
            if self._held and (self._segments.is_begun or self._held_bytes >= staged_frames.FRAME_BYTES):
                self._write_frame(self._segments)
            if self._segments.is_begun:
                self._segments.finish()
                return 0
        for columns in self._held:
            self.write_batch(batch_of(columns))
        self._forget_held()
        self._sink_of_file().close()
        return self._file.finish()

    def close(self) -> None:
        """Forget them."""
        self._forget_held()
        if self._segments is not None:
            self._segments.close()
        self._file.close()

    def _write_frame(self, segments: SegmentsPart) -> None:
        batches = [batch_of(columns) for columns in self._held]
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        segments.write(ArrowColumns(batch, self._held_bytes))
        self._file.touch()
        self._forget_held()

    def _forget_held(self) -> None:
        _room.give_back(self._taken)
        self._held, self._held_events, self._held_bytes, self._taken = [], 0, 0, 0

    def _sink_of_file(self) -> pa.ipc.RecordBatchFileWriter:
        from ..formats.arrow_columns import EVENT_SCHEMA

        if self._sink is None:
            self._sink = pa.ipc.new_file(self._file, EVENT_SCHEMA)
        return self._sink
