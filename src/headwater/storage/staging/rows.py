"""Gathers the rows of a staged part and writes them: a few rows as an Arrow file, many as segments."""

from __future__ import annotations

import time

from ...core.limits import EventColumns
from ...core.shared_bytes import MIB, SharedBytes
from ...formats.arrow.columns import batch_of
from ...formats.arrow.lazy import pa
from . import segments
from .part import PartFile
from .segments import SegmentsPart

PIECES_MAX = 128
"""This many pieces are copied into one. Each takes about 10 KiB in addition to its rows, and may have a single row."""
TOUCH_S = 60.0
"""The interval at which files are touched while rows are gathered, so that they do not look abandoned."""
HELD = SharedBytes(128 * MIB)
"""The default memory budget of all parts being staged, in addition to the minimum of each; beyond it, frames become
smaller. In the Flight process it is part of the total budget."""
HELD_BYTES_MIN = 1024 * 1024
"""The number of bytes that each part may always hold, so that frames are not tiny."""


class StagedRows:
    """The rows of one part. Methods raise OSError."""

    def __init__(self, file: PartFile, segments: SegmentsPart | None, held: SharedBytes = HELD) -> None:
        """`segments`: None if the part must be an Arrow file. `held`: the budget for gathered rows."""
        self._file, self._segments, self._held = file, segments, held.part()
        self._sink: pa.ipc.RecordBatchFileWriter | None = None
        self._joined: list[pa.RecordBatch] = []
        self._pieces: list[EventColumns] = []
        """The pieces after those already written."""
        self._held_events = self._held_bytes = 0
        self._touched_at = time.monotonic()
        self._are_gated = True
        """Whether all rows passed all checks."""

    @property
    def segments(self) -> SegmentsPart | None:
        """The written segments; None if it is an Arrow file."""
        return self._segments if self._segments is not None and self._segments.is_begun else None

    def write(self, columns: EventColumns) -> None:
        """Add rows."""
        if self._segments is None:
            self.write_batch(batch_of(columns))
            return
        events, size = self._held_events + columns.count, self._held_bytes + columns.bytes
        if self._held_events and (events > segments.FRAME_EVENTS_MAX or size > segments.FRAME_BYTES):
            self._write_frame(self._segments)
        self._hold(columns)
        if not self._held.take(columns.bytes):
            if self._held_bytes >= HELD_BYTES_MIN:
                self._write_frame(self._segments)
            else:
                self._held.hold(columns.bytes)
        if time.monotonic() - self._touched_at >= TOUCH_S:
            self._touched_at = time.monotonic()
            self._file.touch()
            self._segments.touch()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows to the Arrow file."""
        self._sink_of_file().write_batch(batch)

    def finish(self) -> int:
        """Make the written rows durable; returns the size of the Arrow file, if it is one."""
        if self._segments is not None:
            if self._held_events and (self._segments.is_begun or self._held_bytes >= segments.FRAME_BYTES):
                self._write_frame(self._segments)
            if self._segments.is_begun:
                self._segments.finish()
                return 0
        for batch in self._take_held():
            self.write_batch(batch)
        self._sink_of_file().close()
        return self._file.finish()

    def close(self) -> None:
        """Drop the rows."""
        self._forget_held()
        if self._segments is not None:
            self._segments.close()
        self._file.close()

    def _hold(self, columns: EventColumns) -> None:
        self._pieces.append(columns)
        self._are_gated &= columns.is_gated
        self._held_events += columns.count
        self._held_bytes += columns.bytes
        if len(self._pieces) >= PIECES_MAX:
            self._joined.append(pa.concat_batches(map(batch_of, self._pieces)))
            self._pieces = []

    def _take_held(self) -> list[pa.RecordBatch]:
        batches = [*self._joined, *map(batch_of, self._pieces)]
        self._forget_held()
        return batches

    def _forget_held(self) -> None:
        self._held.give(self._held.bytes)
        self._joined, self._pieces, self._held_events, self._held_bytes = [], [], 0, 0

    def _write_frame(self, part: SegmentsPart) -> None:
        size, batches = self._held_bytes, self._take_held()
        part.write(batches, size, are_gated=self._are_gated)
        self._file.touch()

    def _sink_of_file(self) -> pa.ipc.RecordBatchFileWriter:
        from ...formats.arrow.columns import EVENT_SCHEMA

        if self._sink is None:
            self._sink = pa.ipc.new_file(self._file, EVENT_SCHEMA)
        return self._sink
