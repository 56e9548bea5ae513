"""Stores invalid rows, with the reason, in a Parquet file for each piece that had some."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ....core.errors import InvalidInput
from ....formats.files.own_directory import check_own
from ....formats.files.parquet import open_parquet, parquet_writer, refusing_damage, table_of

RAW_BYTES_MAX = 64 * 1024
"""How much of a row is stored."""
UNEXPECTED = "unexpected "
"""The prefix of the reason if the import itself failed on the row."""
SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("raw", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)


_OURS = re.compile(r"\.?.+-\d{6,}-\d{3,}\.parquet(\.\d+\.part)?|_.+-none")


def check_quarantine(directory: str) -> None:
    """Raises InvalidInput for a directory with foreign files."""
    check_own(Path(directory), _OURS.fullmatch, "--quarantine")


class BadRow(NamedTuple):
    """A row that is not an event."""

    file: str
    row: int
    """The number of the row. The first is 1; for JSON lines it is the line number."""
    line: int
    """The line where it begins; 0 if the file has no lines."""
    raw: str
    reason: str


def bad_row(file: str, row: int, line: int, raw: str | bytes, reason: str) -> BadRow:
    """The row, with the stored part of its text: bytes that are not UTF-8 as `\xff`, at most RAW_BYTES_MAX."""
    content = raw.encode(errors="surrogateescape") if isinstance(raw, str) else raw
    text = content[:RAW_BYTES_MAX].decode(errors="backslashreplace")
    return BadRow(file, row, line, text.rstrip("\r\n"), reason.encode(errors="backslashreplace").decode())


def write_bad_rows(directory: str, writer: str, batch: int, piece: int, rows: Sequence[BadRow]) -> None:
    """Store the rows. The file has one name per piece, so a repetition replaces it with the same content."""
    where = Path(directory)
    where.mkdir(parents=True, exist_ok=True)
    name = f"{writer}-{batch:06}-{piece:03}.parquet"
    part = where / f".{name}.{os.getpid()}.part"
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    with parquet_writer(part, SCHEMA) as out:
        out.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))
    os.replace(part, where / name)


def count_bad_rows(directory: str, writer: str, batch: int | None = None) -> int:
    """How many rows are stored for an import, or for one of its batches."""
    pattern = f"{writer}-*.parquet" if batch is None else f"{writer}-{batch:06}-*.parquet"
    return sum(pq.read_metadata(file).num_rows for file in Path(directory).glob(pattern))


def count_unexpected(directory: str, writer: str, batch: int) -> int:
    """How many rows of one batch are stored because the import itself failed on them.

    Raises InvalidInput if their files are damaged.
    """
    files = Path(directory).glob(f"{writer}-{batch:06}-*.parquet")
    return sum(
        pa.compute.sum(pa.compute.match_substring_regex(reasons, rf"^{UNEXPECTED}\w+: ")).as_py()
        for reasons in map(_reasons, files)
    )


def _reasons(path: Path) -> pa.ChunkedArray:
    def refused(name: str, problem: str) -> InvalidInput:
        return InvalidInput(problem, name)

    with refusing_damage(path.name, refused, "run the import again"), open_parquet(path) as file:
        return table_of(file, ["reason"]).column(0)


def note_none(directory: str, writer: str, batch: int) -> None:
    """Record, next to the stored rows, that no row of an import up to that batch was an event."""
    (where := Path(directory)).mkdir(parents=True, exist_ok=True)
    (where / _none(writer)).write_text(str(batch), encoding="utf-8")


def none_upto(directory: str, writer: str) -> int:
    """The batch of an import up to which no row was an event, as far as recorded; -1 = some may have been."""
    try:
        return int((Path(directory) / _none(writer)).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return -1


def _none(writer: str) -> str:
    return f"_{writer}-none"  # readers of a Parquet directory skip names with this prefix
