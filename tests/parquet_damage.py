"""Flips bits in the pages of Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def flips(path: Path, count: int = 60) -> Iterator[int]:
    """So many times: one bit of the file's pages is flipped, somewhere else each time; at the end the file is whole."""
    whole = path.read_bytes()
    end = max(begin + size for begin, size in _chunks(path).values())
    try:
        for at in range(4, end, max(1, (end - 4) // count)):
            _flip(path, whole, at)
            yield at
    finally:
        path.write_bytes(whole)


def flip_in(path: Path, column: str) -> None:
    """Flip a bit of what a page of that column holds."""
    begin, size = _chunks(path)[column]
    _flip(path, path.read_bytes(), begin + size - 3)


def hide_page(path: Path, column: str) -> None:
    """Change the header of a column's first page, so that it is one of a kind that readers pass over."""
    begin, _ = _chunks(path)[column]
    whole = path.read_bytes()
    path.write_bytes(whole[: begin + 1] + b"\x7e" + whole[begin + 2 :])  # the field after its tag: 63, in zigzag


def columns_of(path: Path) -> list[str]:
    """The columns, those that are nested by the names of their leaves."""
    return list(_chunks(path))


def taken_for_others(path: Path, read: Callable[[], Any], refused: type[Exception]) -> tuple[int, int]:
    """Of one flip after another: how many times `read` gave something else than before, and how often it refused.

    Whatever refuses has to name the file, and to say what to do.
    """
    before, others, refusals = read(), 0, 0
    for _ in flips(path):
        try:
            others += read() != before
        except refused as error:
            assert path.name in str(error)
            assert "damaged" in str(error)
            refusals += 1
    return others, refusals


def _flip(path: Path, whole: bytes, at: int) -> None:
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])


def _chunks(path: Path) -> dict[str, tuple[int, int]]:
    """Where each column of the first row group begins, and its bytes."""
    group = pq.read_metadata(path).row_group(0)
    found = [group.column(index) for index in range(group.num_columns)]
    return {
        each.path_in_schema: (each.dictionary_page_offset or each.data_page_offset, each.total_compressed_size)
        for each in found
    }
