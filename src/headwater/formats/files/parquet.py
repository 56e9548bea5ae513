"""Parquet files with checksums: each page has one when it is written, and it is verified when the page is read.

A flipped bit in a page without them is often read as other values: that is no error to Parquet. Pages of files that
other programs wrote without checksums are read unverified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

SPARK_READS: Mapping[str, str] = {"parquet.page.verify-checksum.enabled": "true"}
"""Options of Spark's own reader, which does not verify by default."""
SPARK_WRITES: Mapping[str, str] = {"parquet.page.write-checksum.enabled": "true"}
"""Options of Spark's own writer."""


def open_parquet(source: str | Path | IO[bytes], filesystem: Any = None) -> pq.ParquetFile:
    """A Parquet file whose pages are verified as they are read; to be closed.

    Times in INT96 are read in microseconds: in nanoseconds, years before 1678 or after 2261 would become others.
    """
    return pq.ParquetFile(
        source, filesystem=filesystem, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
    )


def batches_of(
    file: pq.ParquetFile, size: int, row_groups: Sequence[int] | None = None, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, of all row groups or of some, in batches of at most `size` rows.

    Raises pa.ArrowInvalid at the end where rows are missing: Parquet skips a page whose header says another kind, and
    the values that follow in that column then belong to other rows. Do not use rows that were read before the error.
    """
    groups = range(file.num_row_groups) if row_groups is None else row_groups
    found = 0
    for batch in file.iter_batches(size, row_groups=groups, columns=columns):
        found += batch.num_rows
        yield batch
    _check_rows(found, sum(file.metadata.row_group(group).num_rows for group in groups))


def table_of(file: pq.ParquetFile, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a file. Raises pa.ArrowInvalid where some are missing."""
    table = file.read(columns=columns)
    for column in table.columns:
        _check_rows(len(column), file.metadata.num_rows)
    return table


def check_pages(file: pq.ParquetFile) -> None:
    """Read every page of a file, in little memory. Raises OSError, pa.ArrowInvalid where it is damaged."""
    _check_rows(file.scan_contents(), file.metadata.num_rows)


def parquet_writer(target: str | Path | IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of a Parquet file; to be closed."""
    return pq.ParquetWriter(target, schema, compression="zstd", write_page_checksum=True)


@contextmanager
def refusing_damage(path: str, refused: Callable[[str, str], Exception], remedy: str) -> Iterator[None]:
    """Around reading: raises `refused(path, problem)` where the file is damaged or cannot be read.

    The problem ends with the remedy, what to do about a damaged file.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        said = " ".join(str(error).split())
        if "checksum" in said:
            raise refused(path, f"the file is damaged, a page does not match its checksum; {remedy}") from error
        raise refused(path, f"the file cannot be read: {said}; if it is damaged, {remedy}") from error


def _check_rows(found: int, expected: int) -> None:
    if found != expected:
        raise pa.ArrowInvalid(f"{found:,} of {expected:,} rows are there")
