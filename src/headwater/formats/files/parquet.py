"""Writes Parquet files with checksums and verifies them when they are read.

A flipped bit often reads as other values, which is no error to Parquet. Files with checksums in their names are
verified by these (`parquet_checksums`), others by the checksums of their pages; files that other programs wrote without
any are read unverified.
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
"""Options for Spark's own reader, which does not verify by default."""
SPARK_WRITES: Mapping[str, str] = {"parquet.page.write-checksum.enabled": "true"}
"""Options for Spark's own writer."""
_TIMES: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}
_WHOLE_BYTES_MAX = 256 * 1024
"""A file up to this size is read whole and compared with its own checksum: that is cheaper than chunk by chunk."""
_BUFFER_BYTES = 1024 * 1024


@contextmanager
def open_parquet(source: str | Path | IO[bytes], filesystem: Any = None) -> Iterator[pq.ParquetFile]:
    """A Parquet file, verified as it is read: by the checksums in its name, or else those of its pages.

    INT96 times are read in microseconds: in nanoseconds, years before 1678 or after 2261 would become others. Raises
    OSError, pa.ArrowInvalid if it is damaged.
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
    """The rows of a file, of all or some row groups, in batches of at most `size` rows.

    Raises pa.ArrowInvalid at the end if rows are missing: Parquet skips a page whose header states another kind, and
    the values that follow in that column then belong to other rows. Do not use rows read before the error.
    """
    groups = range(file.num_row_groups) if row_groups is None else row_groups
    found = 0
    for batch in file.iter_batches(size, row_groups=groups, columns=columns):
        found += batch.num_rows
        yield batch
    _check_rows(found, sum(file.metadata.row_group(group).num_rows for group in groups))


def table_of(file: pq.ParquetFile, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a file. Raises pa.ArrowInvalid if some are missing."""
    table = file.read(columns=columns)
    for column in table.columns:
        _check_rows(len(column), file.metadata.num_rows)
    return table


def check_pages(file: pq.ParquetFile) -> None:
    """Read every page of a file, in little memory. Raises OSError, pa.ArrowInvalid if it is damaged."""
    _check_rows(file.scan_contents(), file.metadata.num_rows)


def parquet_writer(
    target: str | Path | IO[bytes] | pa.NativeFile,
    schema: pa.Schema,
    written: list[pq.FileMetaData] | None = None,
    *,
    repeated: Sequence[str] | None = None,
) -> pq.ParquetWriter:
    """A writer of a Parquet file with page checksums. Close it; `written` then gets the file's metadata.

    `repeated`: the columns, by Parquet's paths, whose values repeat; by default any may. The others are written without
    a dictionary, which is shorter and cheaper.
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
    """A context that writes a Parquet file with checksums in its name; afterwards `path` is its path.

    If it ends with an exception, there is no file.
    """

    def __init__(self, path: Path, schema: pa.Schema, repeated: Sequence[str] | None = None) -> None:
        """`path` ends in `.parquet`; the checksums are inserted before that. `repeated`: see `parquet_writer`."""
        self.path = path
        self._schema, self._repeated = schema, repeated

    def __enter__(self) -> pq.ParquetWriter:
        self._file = SummedFile(self.path)
        self._stream = pa.output_stream(self._file, buffer_size=_BUFFER_BYTES)
        self._metadata: list[pq.FileMetaData] = []
        self._writer = parquet_writer(self._stream, self._schema, self._metadata, repeated=self._repeated)
        return self._writer

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Read the file back, and name it. Raises ChecksumMismatch if the bytes read differ from those written."""
        try:
            self._writer.close()
            self._stream.close()  # and the underlying file
            if error is None:
                self.path = add_checksums(self.path, self._file.crc, *self._metadata)
        finally:
            if checksums_in(self.path.name) is None:
                self.path.unlink(missing_ok=True)


@contextmanager
def refusing_damage(path: str, refused: Callable[[str, str], Exception], remedy: str) -> Iterator[None]:
    """Wraps reading: raises `refused(path, problem)` if the file is damaged or cannot be read.

    The problem ends with the remedy for a damaged file.
    """
    try:
        yield
    except ChecksumMismatch as error:
        raise refused(path, f"the file is damaged: {error}; {remedy}") from error
    except (OSError, pa.ArrowException) as error:
        said = " ".join(str(error).split())
        if "checksum" in said:
            raise refused(path, f"the file is damaged: a page does not match its checksum; {remedy}") from error
        raise refused(path, f"the file cannot be read: {said}; if it is damaged, {remedy}") from error


def _check_rows(found: int, expected: int) -> None:
    if found != expected:
        raise pa.ArrowInvalid(f"expected {expected:,} rows, got {found:,}")
