"""Adopts staged segments into the log: they are judged as columns and get the heads that make them frames.

So the bytes of a large part are written once. It works like any append, except that no frame is encoded: its body is in
the file. The file is judged as a whole, and is added to the log as a whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ...core.local import LocalLog
from ...core.mark import Mark
from ...formats.arrow.columns import ArrowColumns
from ...formats.arrow.lazy import pa
from ..append.prepared import PreparedColumns
from ..frames.encoding import AdoptedFile, Chain, EncodedBody, EncodedFrame, encode_head
from ..frames.frame_log import NotAdopted
from ..frames.layout import FrameMark
from ..home.replicated_log import ReplicatedLog
from ..index.ids import are_distinct, hashes_of
from ..index.runs import SortedRun
from ..segments.segment_log import SegmentLog
from .segments import StagedFrame, StagedSegment, segment_rows


class SegmentColumns(PreparedColumns):
    """The events of a staged segment, with everything needed to judge them and make them frames."""

    __slots__ = ("_inode", "_path", "_room", "_segment", "parts")

    def __init__(self, path: Path, segment: StagedSegment, room: int, id_seed: int, *, is_gated: bool) -> None:
        """Load a verified file. Raises StorageCorrupted, OSError."""
        self.is_gated = is_gated
        self._path, self._segment, self._room = path, segment, room
        found = os.stat(path)
        self._inode = found.st_dev, found.st_ino
        rows = segment_rows(path, segment)
        self.parts = [ArrowColumns(batch, frame.bytes) for frame, batch in zip(segment.frames, rows, strict=True)]
        """Its events, frame by frame."""
        self.count = segment.count
        self.bytes = sum(frame.bytes for frame in segment.frames)
        self.hashes = np.concatenate([np.asarray(hashes_of(each, id_seed), np.uint64) for each in self.parts])
        self.are_distinct = are_distinct(self.hashes)
        self.runs = [SortedRun.of(1, part.type_terms, part.tag_terms, None) for part in self.parts]
        """Built here, because building it during judging would block other appends."""
        self.held_bytes = self.hashes.nbytes + sum(run.nbytes for run in self.runs)

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """Its rows, for appending without the segment."""
        return [part.batch for part in self.parts]

    def numbered(self, first: int) -> Iterator[tuple[int, ArrowColumns]]:
        for part in self.parts:
            yield first, part
            first += part.count

    def marks(self, mark: Mark) -> list[Mark]:
        rows, marks = mark.rows - self.count, []
        for frame in self._segment.frames:
            rows += frame.count
            marks.append(Mark(mark.writer, mark.batch, rows, mark.is_last and rows == mark.rows))
        return marks

    def refusal(self, why: str) -> NotAdopted:
        return NotAdopted(self._path, why)

    def encode(self, first: int, recorded_at: int, link: Chain, marks: Sequence[FrameMark]) -> EncodedFrame:
        """See PreparedColumns. The frames become one segment."""
        frames: list[tuple[int, EncodedFrame]] = []
        nonce, number, crc = link.nonce - len(marks), first, link.previous_crc
        for frame, mark in zip(self._segment.frames, marks, strict=True):
            nonce += 1
            chain = link._replace(nonce=nonce, previous_crc=crc)
            encoded = encode_head(
                _body(frame), self._room, frame.crc, number, recorded_at, chain, mark, is_gated=self.is_gated
            )
            frames.append((frame.offset, encoded))
            number, crc = encoded.last + 1, encoded.crc
        staged = AdoptedFile(self._path, self._inode, self._segment.end, frames)
        return EncodedFrame(first, number - 1, recorded_at, crc, self._segment.end, [], staged)


def _body(frame: StagedFrame) -> EncodedBody:
    return EncodedBody([], frame.length, frame.directory, frame.count, frame.tags)


def takes_segments(log: LocalLog) -> bool:
    """Whether a log accepts segments: it has local files that support hard links, and one partition."""
    frames = getattr(log, "frames", None)
    if not isinstance(frames, SegmentLog) or isinstance(frames, ReplicatedLog):
        return False
    return frames.has_links and log.settings.partitions == 1
