"""Parquet files with checksums: written with them, and verified when they are read.

A flipped bit is often read as other values: that is no error to Parquet. Files whose names have checksums are verified
by these (`parquet_checksums`), others by those of their pages; what other programs wrote without is read unverified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from .parquet_checksums import ChecksumMismatch, VerifiedFile, add_checksums, checksums_in, verified_whole
from .summed_file import SummedFile

SPARK_READS: Mapping[str, str] = {"parquet.page.verify-checksum.enabled": "true"}
"""Options of Spark's own reader, which does not verify by default."""
SPARK_WRITES: Mapping[str, str] = {"parquet.page.write-checksum.enabled": "true"}
"""Options of Spark's own writer."""
_TIMES: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}
_WHOLE_BYTES_MAX = 256 * 1024
"""A file up to that size is read whole, and compared with its own checksum: that is cheaper than chunk by chunk."""
_BUFFER_BYTES = 1024 * 1024


@contextmanager
def open_parquet(source: str | Path | IO[bytes], filesystem: Any = None) -> Iterator[pq.ParquetFile]:
    """A Parquet file, verified as it is read: by the checksums in its name, or else those of its pages.

    Times in INT96 are read in microseconds: in nanoseconds, years before 1678 or after 2261 would become others.
    Raises OSError, pa.ArrowInvalid where it is damaged.
    """
    checksums = checksums_in(str(source)) if isinstance(source, str | Path) else None
    if checksums is None:
        with pq.ParquetFile(source, filesystem=filesystem, page_checksum_verification=True, **_TIMES) as file:
            yield file
        return
    with (filesystem or LocalFileSystem()).open_input_file(str(source)) as content:
        if content.size() <= _WHOLE_BYTES_MAX:
            with pq.ParquetFile(pa.BufferReader(verified_whole(content, checksums.file)), **_TIMES) as file:
                yield file
            return
        verified = VerifiedFile(content, checksums.footer)
        with pq.ParquetFile(verified, **_TIMES) as file:
            verified.know(file.metadata)
            yield file


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


def parquet_writer(
    target: str | Path | IO[bytes] | pa.NativeFile,
    schema: pa.Schema,
    written: list[pq.FileMetaData] | None = None,
    *,
    repeated: Sequence[str] | None = None,
) -> pq.ParquetWriter:
    """A writer of a Parquet file with checksums of pages; to be closed. `written` gets the file's metadata then.

    `repeated`: the columns, by Parquet's paths, whose values repeat; by default any may. The others are written without
    a dictionary: that is shorter, and costs less.
    """
    return pq.ParquetWriter(
        target,
        schema,
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=True if repeated is None else list(repeated),
        metadata_collector=written,
    )


class NewParquet:
    """A context that makes a Parquet file with checksums in its name; `path` is its path after it.

    Where it ends by an exception, there is no file.
    """

    def __init__(self, path: Path, schema: pa.Schema, repeated: Sequence[str] | None = None) -> None:
        """`path` ends in `.parquet`; the checksums come before that. `repeated`: see `parquet_writer`."""
        self.path = path
        self._schema, self._repeated = schema, repeated

    def __enter__(self) -> pq.ParquetWriter:
        self._file = SummedFile(self.path)
        self._stream = pa.output_stream(self._file, buffer_size=_BUFFER_BYTES)
        self._metadata: list[pq.FileMetaData] = []
        self._writer = parquet_writer(self._stream, self._schema, self._metadata, repeated=self._repeated)
        return self._writer

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Read the file back, and name it. Raises ChecksumMismatch where other bytes are read than were written."""
        try:
            self._writer.close()
            self._stream.close()  # and the file below it
            if error is None:
                self.path = add_checksums(self.path, self._file.crc, *self._metadata)
        finally:
            if checksums_in(self.path.name) is None:
                self.path.unlink(missing_ok=True)


@contextmanager
def refusing_damage(path: str, refused: Callable[[str, str], Exception], remedy: str) -> Iterator[None]:
    """Around reading: raises `refused(path, problem)` where the file is damaged or cannot be read.

    The problem ends with the remedy, what to do about a damaged file.
    """
    try:
        yield
    except ChecksumMismatch as error:
        raise refused(path, f"the file is damaged, {error}; {remedy}") from error
    except (OSError, pa.ArrowException) as error:
        said = " ".join(str(error).split())
        if "checksum" in said:
            raise refused(path, f"the file is damaged, a page does not match its checksum; {remedy}") from error
        raise refused(path, f"the file cannot be read: {said}; if it is damaged, {remedy}") from error


def _check_rows(found: int, expected: int) -> None:
    if found != expected:
        raise pa.ArrowInvalid(f"{found:,} of {expected:,} rows are there")
