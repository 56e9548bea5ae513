"""Rows on their way into a staged part: gathered, and written as an Arrow file if they are few, else as segments."""

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
"""So many pieces that came are copied into one. Each takes some 10 KiB besides its rows, and may be of one row."""
TOUCH_S = 60.0
"""How often files are told from those that nobody writes on, while what comes is gathered."""
HELD = SharedBytes(128 * MIB)
"""What all parts that are being staged hold, besides what each always may, where nothing else is said; else frames are
smaller. In the process of Flight it is a part of all that it holds."""
HELD_BYTES_MIN = 1024 * 1024
"""So much each part always may, lest frames are tiny."""


class StagedRows:
    """The rows of one part. Methods raise OSError."""

    def __init__(self, file: PartFile, segments: SegmentsPart | None, held: SharedBytes = HELD) -> None:
        """`segments`: None if an Arrow file is all that the part may be. `held`: the budget of gathered rows."""
        self._file, self._segments, self._held = file, segments, held.part()
        self._sink: pa.ipc.RecordBatchFileWriter | None = None
        self._joined: list[pa.RecordBatch] = []
        self._pieces: list[EventColumns] = []
        """What came behind those."""
        self._held_events = self._held_bytes = 0
        self._touched_at = time.monotonic()
        self._are_gated = True
        """Whether all that came passed all checks."""

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
        """What was written is durable when this returns; answers the size of the Arrow file, if it is one."""
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
        """Forget them."""
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
