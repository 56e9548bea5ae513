"""Splits files into pieces that tasks read independently. Each piece knows how many rows precede it.

A row's number is part of its id, so it must be known before the row is read. The end of a piece can only be found by
reading the file from its beginning: a line may be in the middle of a quoted cell.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

import pyarrow.parquet as pq

from ....formats.files.parquet import check_pages
from .files import PARQUET, InputFile, opened_parquet

PIECE_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 32 * 1024 * 1024
BATCH_PIECES = 64
PIECE_ROWS = 65_536
"""Used for Parquet, which is compressed: a row group of a million rows is a lot for one task."""


@dataclass(frozen=True)
class FilePiece:
    """A part of a file."""

    file: InputFile
    begin: int
    """Where the piece begins, in bytes; for Parquet, the number of the row group."""
    bytes: int
    rows_before: int
    lines_before: int
    skip: int = 0
    """For Parquet: the number of rows of the row group before this piece."""
    rows: int = 0
    """For Parquet: the number of rows in this piece."""


def pieces_of(file: InputFile, piece_bytes: int = PIECE_BYTES) -> Iterator[FilePiece]:
    """The pieces of a file that is not packed, in order. Raises InvalidInput if a Parquet file is damaged."""
    if file.format == PARQUET:
        yield from _row_groups(file, piece_bytes)
        return
    with open(file.path, "rb") as opened:
        opened.seek(file.begin)
        if file.format == "csv":
            yield from _tables(file, opened, piece_bytes)
        elif file.format == "ndjson" or (file.format == "cloudevents" and not _is_array(opened)):
            yield from _lines(file, opened, piece_bytes)
        elif size := os.path.getsize(file.path) - file.begin:
            yield FilePiece(file, file.begin, size, 0, 0)


def batches_of(pieces: Iterable[FilePiece], batch_bytes: int = BATCH_BYTES) -> Iterator[list[FilePiece]]:
    """Pieces that are committed together. They are always the same, and quick to repeat."""
    waiting: list[FilePiece] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += piece.bytes
        if size >= batch_bytes or len(waiting) >= BATCH_PIECES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def bytes_done(sizes: Mapping[str, int], piece: FilePiece) -> int:
    """How much of the files is finished after that piece. Their sizes are given by name and in order; packed files
    count with their packed size."""
    before = 0
    for name, size in sizes.items():
        if name == piece.file.name:
            return before + round(size * _share_after(piece))
        before += size
    raise KeyError(piece.file.name)


def _share_after(piece: FilePiece) -> float:
    """The part (0 to 1) of its file before the end of the piece."""
    if piece.file.format == PARQUET:
        rows: int = pq.read_metadata(piece.file.path).num_rows
        return (piece.rows_before + piece.rows) / max(rows, 1)
    return min(1.0, (piece.begin + piece.bytes) / max(os.path.getsize(piece.file.path), 1))


def _is_array(file: IO[bytes]) -> bool:
    place = file.tell()
    beginning = file.read(4096).lstrip()
    file.seek(place)
    return beginning.startswith(b"[")


def _row_groups(file: InputFile, piece_bytes: int) -> Iterator[FilePiece]:
    with opened_parquet(file) as opened:
        check_pages(opened)  # determined now, because a piece is not always read to the end of its row group
        metadata = opened.metadata
    before = 0
    for group in range(metadata.num_row_groups):
        about = metadata.row_group(group)
        rows, size = about.num_rows, about.total_byte_size
        step = max(1, min(PIECE_ROWS, rows * piece_bytes // max(size, 1)))
        for skip in range(0, rows, step):
            count = min(step, rows - skip)
            yield FilePiece(file, group, size * count // rows, before + skip, before + skip, skip, count)
        before += rows


def _lines(file: InputFile, opened: IO[bytes], piece_bytes: int) -> Iterator[FilePiece]:
    lines = 0
    begin = opened.tell()
    while block := _block(opened, piece_bytes):
        yield FilePiece(file, begin, len(block), lines, lines)
        begin += len(block)
        lines += block.count(b"\n")


def _tables(file: InputFile, opened: IO[bytes], piece_bytes: int) -> Iterator[FilePiece]:
    rows, lines, begin = 0, 1, opened.tell()
    delimiter = file.mapping.delimiter or ","
    while block := _block(opened, piece_bytes):
        if _is_plain(block):
            size, new_lines = len(block), block.count(b"\n") + (not block.endswith(b"\n"))
            new_rows = new_lines
        else:
            opened.seek(begin)
            size, new_rows, new_lines = _counted(opened, delimiter, piece_bytes)
        yield FilePiece(file, begin, size, rows, lines)
        begin, rows, lines = begin + size, rows + new_rows, lines + new_lines
        opened.seek(begin)


def _block(opened: IO[bytes], piece_bytes: int) -> bytes:
    return opened.read(piece_bytes) + opened.readline()


def _is_plain(block: bytes) -> bool:
    """Whether each line of the block is a row."""
    return (
        b'"' not in block
        and b"\n\n" not in block
        and not block.startswith((b"\n", b"\r"))
        and (b"\r" not in block or (b"\n\r" not in block and block.count(b"\r") == block.count(b"\r\n")))
    )


def _counted(opened: IO[bytes], delimiter: str, piece_bytes: int) -> tuple[int, int, int]:
    """Bytes, rows and lines of the next piece: whole rows, of that size together."""
    text = io.TextIOWrapper(opened, "utf-8", "surrogateescape", newline="")
    size = rows = 0

    def lines() -> Iterator[str]:
        nonlocal size
        for line in text:
            size += len(line.encode(errors="surrogateescape"))
            yield line

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    while size < piece_bytes:
        try:
            rows += next(reader) != []
        except StopIteration:
            break
        except csv.Error:  # this is also a row, which the task will reject
            rows += 1
    text.detach()
    return size, rows, reader.line_num
