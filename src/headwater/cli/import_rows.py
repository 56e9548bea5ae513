"""The rows of a file that `headwater import` reads, in any format, and the quarantine of invalid rows."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from ..core.errors import InvalidInput
from ..core.event import Event
from ..core.limits import APPEND_BYTES_MAX
from ..formats import cloudevents, jsontext
from ..formats.envelope import event_json, ndjson_event
from ..formats.files.cloudevent_lines import taken_back
from ..formats.files.detection import BEGINNING_BYTES
from ..formats.files.ocel import ocel_events_and_refused
from ..formats.files.tabular import TableMapping, table_rows

_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class Row(NamedTuple):
    """One event of a file, or the error of an invalid row."""

    place: str
    """Its place in the file: line, row, or element."""
    raw: bytes
    """The unchanged row, if it is not a valid event."""
    found: Event | InvalidInput


class Quarantine:
    """An NDJSON file of the rows that are invalid or that a log refuses, with their places and the reasons.

    Without a file, the first such row ends the import. The places of accepted rows are kept while they may still be
    refused.
    """

    def __init__(self, file: IO[bytes] | None, ahead: int) -> None:
        """`ahead`: the maximum number of rows in progress."""
        self._file = file
        self._recent: deque[str] = deque(maxlen=ahead)
        self._count = 0
        self.rows = 0
        """The number of rows in it."""
        self.failure: Exception | None = None
        """Why the rest of the rows could not be read."""

    def events(self, rows: Iterable[Row]) -> Iterator[Event]:
        """The events among the rows, up to the first unreadable one; without a file, up to the first invalid row."""
        try:
            for place, raw, found in rows:
                if isinstance(found, Event):
                    self._recent.append(place)
                    self._count += 1
                    yield found
                elif self._file is None:
                    raise InvalidInput(str(found), place)
                else:
                    self._put(place, raw.decode(errors="backslashreplace").rstrip("\r\n"), found)
        except Exception as error:
            self.failure = error  # first append the rows before it

    def refused(self, index: int, event: Event, error: InvalidInput) -> None:
        """Record that the event at that index was refused. May be called from another thread, for recent events."""
        self._put(self.place(index), msgspec.json.encode(event_json(*event)).decode(), error)

    def place(self, index: int) -> str:
        """The place of a recent event in the file."""
        return self._recent[index - self._count]

    def _put(self, place: str, raw: str, error: InvalidInput) -> None:
        assert self._file is not None
        line = {"place": place, "reason": str(error), "raw": raw}
        self._file.write(msgspec.json.encode(line) + b"\n")
        self.rows += 1


class Opened:
    """A file being read: its decompressed bytes, and the position in the compressed file."""

    def __init__(self, raw: IO[bytes], unpacked: io.BufferedReader, size: int, *, is_packed: bool) -> None:
        self.raw, self.unpacked, self.size, self.is_packed = raw, unpacked, size, is_packed
        self.text: io.TextIOWrapper | None = None

    def lines(self) -> Iterable[str]:
        """The lines of a text; invalid UTF-8 becomes surrogates. The wrapper is kept here, because it closes the file
        when it is garbage-collected.
        """
        self.text = io.TextIOWrapper(self.unpacked, errors="surrogateescape", encoding="utf-8", newline="")
        return self.text

    def peek(self, count: int) -> bytes:
        """The beginning, without consuming it."""
        return self.unpacked.peek(count)


_DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error)


class _Unpacked(io.RawIOBase):
    """A decompressed gzip file. Everything before damaged data can be read; then the error is raised."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._packed = gzip.GzipFile(fileobj=raw)
        self._damage: Exception | None = None

    def readable(self) -> bool:
        """See io.RawIOBase."""
        return True

    def readinto(self, into: Any) -> int:
        """Fill the buffer with as much as is available. Raises the errors of gzip and zlib for a damaged file."""
        count = 0
        while count < len(into) and self._damage is None:
            try:
                if not (piece := self._packed.read1(len(into) - count)):
                    return count
            except _DAMAGE as error:
                self._damage = error
            else:
                into[count : count + len(piece)] = piece
                count += len(piece)
        if not count and self._damage is not None:
            raise self._damage
        return count


@contextmanager
def opened_file(file: Path) -> Iterator[Opened]:
    """The decompressed file, after any byte order mark. Reading raises InvalidInput if it is not a gzip file."""
    with file.open("rb") as raw:
        is_packed = file.name.endswith(".gz")
        unpacked: Any = _Unpacked(raw) if is_packed else raw
        buffered = io.BufferedReader(unpacked, BEGINNING_BYTES)
        try:
            if buffered.peek(len(BOM_UTF8)).startswith(BOM_UTF8):
                buffered.read(len(BOM_UTF8))
            yield Opened(raw, buffered, file.stat().st_size, is_packed=is_packed)
        except _DAMAGE as error:
            raise InvalidInput(f"the gzip file is truncated or damaged: {error}", str(file)) from None


def rows_of(opened: Opened, format: str, mapping: TableMapping) -> Iterator[Row]:
    """The rows of a file of that format. Raises InvalidInput if the file has another format."""
    if format == "csv":
        csv.field_size_limit(APPEND_BYTES_MAX)  # the maximum size of an event, instead of 128 KiB
        return _table(opened, mapping)
    if format == "ocel":
        return _ocel(opened, mapping.source)
    if format == "parquet":
        return _parquet(opened)
    if format == "cloudevents":
        if opened.peek(BEGINNING_BYTES).lstrip().startswith(b"["):
            return _array(opened)
        return _lines(opened, lambda line, number: taken_back(cloudevents.event_from_json(line)))
    return _lines(opened, lambda line, number: ndjson_event(line, number, mapping.source))


def _lines(opened: Opened, event_of: Callable[[bytes, int], Event]) -> Iterator[Row]:
    for number, line in enumerate(opened.unpacked, 1):
        if line.strip():
            yield Row(f"line {number}", line, _found(event_of, line, number))


def _array(opened: Opened) -> Iterator[Row]:
    """A batch of CloudEvents: one JSON array."""
    text = opened.unpacked.read()
    jsontext.check_utf8(text)
    elements: list[msgspec.Raw] = jsontext.decode(_array_decoder, text)
    for index, raw in enumerate(map(bytes, elements)):
        yield Row(f"[{index}]", raw, _found(lambda raw: taken_back(cloudevents.event_from_json(raw)), raw))


def _found(event_of: Callable[..., Event], *given: object) -> Event | InvalidInput:
    try:
        return event_of(*given)
    except InvalidInput as error:
        return error


def _table(opened: Opened, mapping: TableMapping) -> Iterator[Row]:
    for line, text, found in table_rows(opened.lines(), mapping):
        yield Row(f"line {line}", text.encode(errors="surrogateescape"), found)


def _ocel(opened: Opened, source: str) -> Iterator[Row]:
    events, refused = ocel_events_and_refused(opened.unpacked.read(), source)
    for each in refused:
        yield Row(f"element {each.position}", each.text, InvalidInput(each.problem))
    for number, event in enumerate(events, 1):
        yield Row(f"element {number} by time", b"", event)


def _parquet(opened: Opened) -> Iterator[Row]:
    from ..formats.files.event_rows import parquet_events

    source = io.BytesIO(opened.unpacked.read()) if opened.is_packed else opened.raw
    for number, event in enumerate(parquet_events(source), 1):
        yield Row(f"row {number}", b"", event)
