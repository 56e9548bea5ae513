"""Reads staged rows from verified parts of either form."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ...core.errors import InvalidInput, StorageCorrupted
from ...formats.arrow.lazy import pa
from ..disk.system import sync_directory
from . import batches
from .part import PART_SUFFIX, PartFile, check_part, opened_part
from .rows import StagedRows
from .segments import TABLE_SUFFIX, StagedSegment, check_segments, read_table, segment_rows


class SegmentPiece(NamedTuple):
    """One file of a part that may become a segment."""

    path: Path
    segment: StagedSegment
    room: int
    is_gated: bool


Piece: TypeAlias = "pa.RecordBatch | SegmentPiece"
"""Rows of a part."""


def check_parts(directory: Path, manifest: batches.BatchManifest) -> None:
    """Verify every byte of the parts to commit. Raises StorageCorrupted: stage the batch again."""
    for stage in manifest.stages:
        if batches.has_segments(directory, stage):
            check_segments(directory, stage)
        else:
            check_part(batches.part_path(directory, stage), may_be_plain=manifest.format < batches.MANIFEST_FORMAT)


def make_plain(log_directory: Path, directory: Path, stage: str) -> None:
    """Convert a verified part to an Arrow file, if it is not one. Raises StorageCorrupted, OSError."""
    if not batches.has_segments(directory, stage):
        return
    path = batches.part_path(directory, stage)
    temporary = path.with_name(f"{stage}.{os.urandom(4).hex()}.tmp")
    rows = StagedRows(PartFile(temporary), None)
    try:
        for batch in staged_batches(directory, [stage]):
            rows.write_batch(batch)
        rows.finish()
        with batches.exclusively(log_directory):
            os.replace(temporary, path)
            batches.table_path(directory, stage).unlink()
            sync_directory(directory)
    finally:
        rows.close()
        temporary.unlink(missing_ok=True)


def staged_pieces(directory: Path, stages: Sequence[str]) -> Iterator[Piece]:
    """The mapped rows of these stages, in order; for segments, the files. Raises StorageCorrupted."""
    for stage in stages:
        if batches.has_segments(directory, stage):
            table = read_table(directory, stage)
            for segment in table.segments:
                yield SegmentPiece(directory / segment.name, segment, table.room, table.is_gated)
            continue
        with opened_part(batches.part_path(directory, stage)) as reader:
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


def batches_of(piece: Piece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece. Raises StorageCorrupted."""
    if isinstance(piece, SegmentPiece):
        yield from segment_rows(piece.path, piece.segment)
    else:
        yield piece


def staged_batches(directory: Path, stages: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The mapped rows of these stages, in order. Raises StorageCorrupted."""
    for piece in staged_pieces(directory, stages):
        yield from batches_of(piece)


def staged_rows(directory: Path, stages: Sequence[str]) -> int:
    """The number of rows of these stages. Raises StorageCorrupted."""
    total = 0
    for stage in stages:
        if batches.has_segments(directory, stage):
            total += sum(segment.count for segment in read_table(directory, stage).segments)
            continue
        with opened_part(batches.part_path(directory, stage)) as reader:
            total += sum(reader.get_batch(index).num_rows for index in range(reader.num_record_batches))
    return total


def staged_size(directory: Path, stages: Sequence[str]) -> int:
    """The approximate bytes of these stages. Raises StorageCorrupted."""
    total = 0
    for stage in stages:
        if batches.has_segments(directory, stage):
            total += sum(segment.end for segment in read_table(directory, stage).segments)
        else:
            total += batches.part_path(directory, stage).stat().st_size
    return total


def is_whole(directory: Path) -> bool:
    """Whether the batch has everything that a commit needs to resume."""
    try:
        manifest = batches.read_manifest(directory)
        if manifest is not None:
            batches.check_stages(directory, manifest.stages)
            check_parts(directory, manifest)
        else:
            for path in directory.glob(f"*{PART_SUFFIX}"):
                check_part(path)
            for path in directory.glob(f"*{TABLE_SUFFIX}"):
                check_segments(directory, path.stem)
        return True
    except (StorageCorrupted, InvalidInput):
        return False
