"""The files of an import: which files there are, what each contains, and how it is recognised again."""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from ....core.errors import InvalidInput
from ....core.limits import show
from ....formats.arrow.columns import EVENT_SCHEMA
from ....formats.files.csv_rows import is_exported
from ....formats.files.detection import BEGINNING_BYTES, guess_format
from ....formats.files.parquet import open_parquet, refusing_damage
from ....formats.files.tabular import TableMapping, guessed, heading
from ...options import nearest

PARQUET = "parquet"
BOM = b"\xef\xbb\xbf"
_SAMPLE_BYTES = 1024 * 1024
_PACKED = ".gz"


@dataclass(frozen=True)
class InputFile:
    """A file, and how its rows are converted to events."""

    path: str
    """The file that tasks open: the original or an unpacked copy."""
    name: str
    """As given, for people."""
    format: str
    """One of `detection.FORMATS`, or `parquet`."""
    mapping: TableMapping
    """For tables: with all columns resolved. `source` applies to every format."""
    header: tuple[str, ...] = ()
    """The columns of a table."""
    begin: int = 0
    """Where the rows begin, in bytes."""
    has_events: bool = True
    """Whether its rows are events already, instead of table rows to be mapped."""

    @property
    def is_packed(self) -> bool:
        """Whether it must be unpacked before pieces of it can be read."""
        return self.path.endswith(_PACKED)

    def said(self) -> str:
        """A description of the file in one line."""
        size = os.path.getsize(self.path)
        what = f"{self.name} ({self.format}, {size:,} bytes, source {self.mapping.source!r})"
        if self.has_events:
            return what
        mapping = self.mapping
        tags = "".join(f", tag {key} from {column}" for column, key in mapping.tags)
        time = f", time from {mapping.time_column}" if mapping.time_column else ", no time"
        id = f", id from {mapping.id_column}" if mapping.id_column else ", id derived"
        return f"{what}: type from {mapping.type_column}{time}{id}{tags}"


def find_files(given: Sequence[str]) -> list[Path]:
    """The files that names, patterns and directories stand for, in order of their paths, each once.

    In directories, names beginning with `_` or `.` are skipped, as in Spark. Raises InvalidInput if nothing is found,
    or if two files have the same name and would give their events the same ids.
    """
    found: dict[Path, None] = {}
    for each in given:
        path = Path(each)
        if path.is_dir():
            meant = [inside for inside in sorted(path.rglob("*")) if _is_meant(inside, path)]
        else:
            matching = [path] if path.is_file() else [Path(name) for name in sorted(glob.glob(each, recursive=True))]
            meant = [file for file in matching if file.is_file()]
        if not meant:
            raise InvalidInput(f"no file matches {show(each)}{_nearest_file(path)}", "--file")
        found |= dict.fromkeys(file.absolute() for file in meant)
    by_name: dict[str, Path] = {}
    for path in found:
        if (other := by_name.setdefault(path.name, path)) != path:
            problem = (
                f"{other} and {path} have the same file name, from which the source is derived; import them one by one"
            )
            raise InvalidInput(f"{problem}, each with its own --source", "--file")
    return list(found)


def _is_meant(path: Path, root: Path) -> bool:
    return path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)


def _nearest_file(path: Path) -> str:
    return nearest(path.name, [each.name for each in path.parent.iterdir()]) if path.parent.is_dir() else ""


def look_at(path: Path, format: str | None, mapping: TableMapping) -> InputFile:
    """The file's format and columns, detected from its beginning. Raises InvalidInput, with the file."""
    try:
        return _look_at(path, format, replace(mapping, source=mapping.source or path.name.removesuffix(_PACKED)))
    except (InvalidInput, UnicodeDecodeError, pa.ArrowException) as error:
        raise InvalidInput(str(error), str(path)) from None
    except (gzip.BadGzipFile, EOFError) as error:
        raise InvalidInput(f"the gzip file is truncated or damaged: {error}", str(path)) from None


def _look_at(path: Path, format: str | None, mapping: TableMapping) -> InputFile:
    with _opened(path) as file:
        beginning = file.read(BEGINNING_BYTES)
    if format is None:
        format = PARQUET if beginning.startswith(b"PAR1") else guess_format(path.name, beginning)
    begin = len(BOM) if beginning.startswith(BOM) else 0
    found = InputFile(str(path), str(path), format, mapping, begin=begin)
    if format == PARQUET:
        return _parquet(found)
    if format != "csv":
        return found
    lines = beginning[begin:].decode(errors="surrogateescape").splitlines(keepends=True)
    first_line = lines[0] if lines else ""
    header, delimiter = heading(first_line, mapping.delimiter)
    has_events = is_exported(header) and not mapping.names_columns
    mapping = replace(mapping, delimiter=delimiter)
    begin += len(first_line.encode(errors="surrogateescape"))
    return replace(
        found,
        mapping=mapping if has_events else guessed(header, mapping),
        header=tuple(header),
        begin=begin,
        has_events=has_events,
    )


def _parquet(file: InputFile) -> InputFile:
    schema = pq.read_schema(file.path)
    mapping = file.mapping
    is_mapped = bool(mapping.type_column or mapping.time_column or mapping.id_column or mapping.tags)
    if is_mapped or not {"type", "data"} <= set(schema.names):
        return replace(file, mapping=guessed(schema.names, mapping), header=tuple(schema.names), has_events=False)
    for name in EVENT_SCHEMA.names:
        if name in schema.names:
            try:
                pa.array([], schema.field(name).type).cast(EVENT_SCHEMA.field(name).type)
            except pa.ArrowException:
                given, wanted = schema.field(name).type, EVENT_SCHEMA.field(name).type
                raise InvalidInput(f"column {name}: expected {wanted}, got {given}") from None
    return replace(file, header=tuple(schema.names))


@contextmanager
def opened_parquet(file: InputFile) -> Iterator[pq.ParquetFile]:
    """A Parquet file. Raises InvalidInput if it, or the part that is read, is damaged."""

    def refused(name: str, problem: str) -> InvalidInput:
        return InvalidInput(problem, name)

    with refusing_damage(file.name, refused, "import an undamaged copy"), open_parquet(file.path) as opened:
        yield opened


def unpacked(file: InputFile, directory: Path, number: int) -> InputFile:
    """The file in a form that tasks can read from any position: a packed file is unpacked into the directory.

    Raises InvalidInput if it cannot be unpacked.
    """
    if not file.is_packed:
        return file
    target = directory / f"{number:06}-{Path(file.path).name.removesuffix(_PACKED)}"
    try:
        with gzip.open(file.path) as packed, target.open("wb") as out:
            shutil.copyfileobj(packed, out, _SAMPLE_BYTES)
    except (gzip.BadGzipFile, EOFError) as error:
        raise InvalidInput(f"the gzip file is truncated or damaged: {error}", file.name) from None
    return replace(file, path=str(target))


def fingerprint(files: Sequence[InputFile], *others: object) -> str:
    """A value that is equal for the same files, read in the same way. Their beginnings and ends represent the whole
    files.
    """
    digest = hashlib.sha256(repr(others).encode())
    for file in files:
        said = (Path(file.name).name, file.format, file.mapping, file.header, file.begin, os.path.getsize(file.path))
        digest.update(repr(said).encode(errors="surrogateescape"))
        for part in _samples(Path(file.path)):
            digest.update(part)
    return digest.hexdigest()[:20]


def _samples(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield file.read(_SAMPLE_BYTES)
        file.seek(max(0, os.path.getsize(path) - _SAMPLE_BYTES))
        yield file.read(_SAMPLE_BYTES)


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.name.endswith(_PACKED) else path.open("rb")  # type: ignore[return-value]
