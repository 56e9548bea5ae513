"""Converts the rows of a piece to events, as Arrow; rows that are not events are put in quarantine."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from itertools import compress, islice
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from ....core.errors import EventLogError, InvalidInput
from ....core.event import Event
from ....core.settings import LogSettings
from ....formats import cloudevents
from ....formats.arrow.columns import EVENT_SCHEMA
from ....formats.arrow.events import columns_of
from ....formats.envelope import ndjson_event
from ....formats.files.cloudevent_lines import taken_back
from ....formats.files.csv_rows import exported_reader
from ....formats.files.ocel import ocel_events_and_refused
from ....formats.files.tabular import TableMapping, row_reader
from ....formats.foreign import derived_id
from ...columns.schema import arrow_schema
from .files import PARQUET, opened_parquet
from .pieces import FilePiece
from .quarantine import UNEXPECTED, BadRow, bad_row, write_bad_rows
from .tables import Mapped, TableReader

COLUMNS = ("type", "data", "tags", "id", "source", "attributes", "group_key", "envelope", "encoding")
BATCH_EVENTS = 10_000


_OUT_OF_RANGE = (OverflowError, ValueError, pa.ArrowException)
"""Arrow's errors for a value that Python cannot hold, or for text that is not UTF-8."""


class Raw(NamedTuple):
    """The origin of an event."""

    row: int
    line: int
    text: str | bytes


Row = tuple[Event, Raw] | BadRow
Read = Iterator[Row]


@dataclass(frozen=True)
class Reading:
    """The input of tasks."""

    pieces: Sequence[FilePiece]
    """Task n reads the piece at index n."""
    settings: LogSettings
    quarantine: str
    writer: str
    batch: int

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: takes the numbers of pieces, returns their events."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                bad: list[BadRow] = []
                yield from read_piece(self.pieces[number], self.settings, bad)
                if bad:
                    write_bad_rows(self.quarantine, self.writer, self.batch, number, bad)


def read_piece(piece: FilePiece, settings: LogSettings, bad: list[BadRow]) -> Iterator[pa.RecordBatch]:
    """The events of a piece that a log with these settings accepts. All other rows are added to `bad`."""
    if piece.file.format == PARQUET and piece.file.has_events:
        yield from _event_columns(piece, settings, bad)
        return
    if piece.file.format == "csv" and not piece.file.has_events:
        yield from _table(piece, settings, bad)
        return
    events: list[Event] = []
    origins: list[Raw] = []
    for each in _READERS[piece.file.format](piece):
        if isinstance(each, BadRow):
            bad.append(each)
            continue
        events.append(each[0])
        origins.append(each[1])
        if len(events) == BATCH_EVENTS:
            yield from _fit(_arrow(events), settings, origins, piece, bad)
            events, origins = [], []
    if events:
        yield from _fit(_arrow(events), settings, origins, piece, bad)


def _table(piece: FilePiece, settings: LogSettings, bad: list[BadRow]) -> Iterator[pa.RecordBatch]:
    """The rows of a text table, column by column, some thousands at a time."""
    text, reader = _Text(piece), TableReader(piece.file.header, piece.file.mapping)
    rows = text.rows(bad)
    while some := list(islice(rows, BATCH_EVENTS)):
        for places, mapped in _mapped(reader, some):
            problems = [(0, mapped)] if isinstance(mapped, str) else mapped.problems
            for at, problem in problems:
                bad.append(bad_row(piece.file.name, *text.raw(places[at]), problem))
            if not isinstance(mapped, str):
                origins = _Origins(text, list(compress(places, mapped.is_event)))
                yield from _fit(mapped.events, settings, origins, piece, bad)


def _mapped(reader: TableReader, places: list[_Place]) -> Iterator[tuple[list[_Place], Mapped | str]]:
    """Runs of rows with their events, and each row between them on which the reader fails, including the reason."""
    try:
        mapped = reader.events([place.cells for place in places], [place.row for place in places])
    except Exception as error:
        if len(places) == 1:
            yield places, _reason(error)
            return
        half = len(places) // 2
        yield from _mapped(reader, places[:half])
        yield from _mapped(reader, places[half:])
    else:
        yield places, mapped


class _Place(NamedTuple):
    """A row of a text table."""

    cells: list[str]
    row: int
    begin: int
    """Its lines in the piece, from `begin`"""
    end: int
    """to before `end`."""


class _Origins:
    """The origins of events. They are looked up only for events that a log rejects."""

    def __init__(self, text: _Text, places: Sequence[_Place]) -> None:
        self._text, self._places = text, places

    def __getitem__(self, at: int) -> Raw:
        return self._text.raw(self._places[at])


class _Text:
    """A piece of a text table."""

    def __init__(self, piece: FilePiece) -> None:
        self._piece = piece
        content = _content(piece)
        try:
            text, self._is_whole = content.decode(), True
        except UnicodeDecodeError:
            text, self._is_whole = content.decode(errors="surrogateescape"), False
        self._lines = list(io.StringIO(text, newline=""))

    def rows(self, bad: list[BadRow]) -> Iterator[_Place]:
        """The rows that can be parsed and are UTF-8; others are added to `bad`, and empty lines are skipped."""
        row, begin = self._piece.rows_before, 0
        reader = csv.reader(self._lines, delimiter=self._piece.file.mapping.delimiter or ",", strict=True)
        while True:
            cells, problem, begin = [], "", reader.line_num
            try:
                cells = next(reader)
                if not cells:
                    continue
                if not self._is_whole:
                    _check_utf8(cells)
            except StopIteration:
                return
            except (csv.Error, InvalidInput) as error:
                problem = str(error)
            row += 1
            place = _Place(cells, row, begin, reader.line_num)
            if problem:
                bad.append(bad_row(self._piece.file.name, *self.raw(place), problem))
            else:
                yield place

    def raw(self, place: _Place) -> Raw:
        """The row as it is in the file."""
        line = self._piece.lines_before + 1 + place.begin
        return Raw(place.row, line, "".join(self._lines[place.begin : place.end]))


def _exported(piece: FilePiece) -> Read:
    """The rows of a table that `headwater export` wrote. Each is the original event."""
    text, event_of = _Text(piece), exported_reader(piece.file.header)
    unread: list[BadRow] = []
    for place in text.rows(unread):
        yield _row(piece, text.raw(place), event_of, place.cells, place.row)
    yield from unread


def _check_utf8(cells: Sequence[str]) -> None:
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        raise InvalidInput("it is not UTF-8") from None


def _by_line(event_of: Callable[[bytes, int, str], Event]) -> Callable[[FilePiece], Read]:
    def read(piece: FilePiece) -> Read:
        content = _content(piece)
        if piece.file.format == "cloudevents" and content.lstrip().startswith(b"["):
            yield from _array(piece, content)
            return
        for number, line in enumerate(io.BytesIO(content), piece.lines_before + 1):
            if not line.strip():
                continue
            yield _row(piece, Raw(number, number, line), event_of, line, number, piece.file.mapping.source)

    return read


def _array(piece: FilePiece, content: bytes) -> Read:
    for number, each in enumerate(_elements(piece, content), 1):
        yield _row(piece, Raw(number, 0, bytes(each)), _of_cloudevent, bytes(each))


def _of_cloudevent(text: bytes) -> Event:
    return taken_back(cloudevents.event_from_json(text))


def _elements(piece: FilePiece, content: bytes) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(content, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"not a JSON array of CloudEvents: {error}", piece.file.name) from None


def _ocel(piece: FilePiece) -> Read:
    try:
        events, refused = ocel_events_and_refused(_content(piece), piece.file.mapping.source)
    except InvalidInput as error:
        raise InvalidInput(str(error), piece.file.name) from None
    for bad in refused:
        yield bad_row(piece.file.name, bad.position, 0, bad.text, bad.problem)
    for number, event in enumerate(events, 1):
        yield event, Raw(number, 0, event.data)


def _row(piece: FilePiece, raw: Raw, event_of: Callable[..., Event], *given: object) -> Row:
    """The event in a row, or the row and the reason why it is not an event."""
    try:
        return event_of(*given), raw
    except Exception as error:
        return bad_row(piece.file.name, *raw, _reason(error))


def _reason(error: Exception) -> str:
    """The reason why a row is not an event; an error that is not about the row's content begins with its class."""
    return str(error) if isinstance(error, EventLogError) else f"{UNEXPECTED}{type(error).__name__}: {error}"


def _content(piece: FilePiece) -> bytes:
    with open(piece.file.path, "rb") as file:
        file.seek(piece.begin)
        return file.read(piece.bytes)


# Parquet.


def _batches(piece: FilePiece, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of a piece of a row group, each with the number of the row before its first."""
    at, first, last = 0, piece.skip, piece.skip + piece.rows
    with opened_parquet(piece.file) as file:
        for batch in file.iter_batches(BATCH_EVENTS, row_groups=[piece.begin], columns=list(columns)):
            low, high = max(at, first), min(at + batch.num_rows, last)
            if low < high:
                yield piece.rows_before + low - first, batch.slice(low - at, high - low)
            at += batch.num_rows
            if at >= last:
                return


def _event_columns(piece: FilePiece, settings: LogSettings, bad: list[BadRow]) -> Iterator[pa.RecordBatch]:
    """Rows that are already events. Whole columns are used, unchanged."""
    columns = [name for name in COLUMNS if name in piece.file.header]
    for row, batch in _batches(piece, columns):
        for part, before, problem in _made(batch, partial(_as_events, columns, piece.file.mapping.source), row):
            if part is None:
                bad.append(bad_row(piece.file.name, before + 1, 0, str(batch.slice(before - row, 1)), problem))
                continue
            origins = [Raw(before + at, 0, b"") for at in range(1, part.num_rows + 1)]
            yield from _fit(part, settings, origins, piece, bad)


def _as_events(columns: Sequence[str], source: str, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
    """The columns with the types of events, with derived ids where missing. Raises InvalidInput."""
    kept = {}
    for name in columns:
        try:
            kept[name] = batch.column(name).cast(EVENT_SCHEMA.field(name).type)
            kept[name].validate(full=True)
        except _OUT_OF_RANGE as error:
            raise InvalidInput(str(error), name) from None
    ids = kept.get("id")
    if ids is None or ids.null_count or (pa.compute.min(pa.compute.binary_length(ids)).as_py() == 0):
        kept |= _derived(kept, batch.num_rows, source, row)
    return pa.record_batch(kept)


def _derived(columns: dict[str, pa.Array], count: int, source: str, row: int) -> dict[str, pa.Array]:
    """The columns of ids and sources if some ids are missing."""
    ids = columns["id"].to_pylist() if "id" in columns else [None] * count
    sources = columns["source"].to_pylist() if "source" in columns else [None] * count
    content = zip(columns["type"].to_pylist(), columns["data"].to_pylist(), strict=True)
    for at, (type, data) in enumerate(content):
        if not ids[at]:
            sources[at] = own_source = sources[at] or source
            ids[at] = derived_id(own_source, row + at + 1, f"{type}\n{(data or b'').decode(errors='replace')}")
    return {"id": pa.array(ids, pa.string()), "source": pa.array(sources, pa.string())}


def _rows(piece: FilePiece) -> Read:
    """Rows of any other table: the data is the row as JSON, and columns are mapped as in CSV."""
    mapping = piece.file.mapping
    encode = msgspec.json.Encoder(enc_hook=_plain).encode
    tagged = [f"tag {column}" for column, _ in mapping.tags]
    event_of = row_reader(("data", "type", "time", "id", *tagged), _renamed(mapping))
    named = (mapping.type_column, mapping.time_column, mapping.id_column)

    def made(data: bytes, cells: dict[str, Any], at: int) -> Event:
        texts = [_text(cells.get(name or "")) for name in named]
        tags = [_text(cells[column]) for column, _ in mapping.tags]
        return event_of([data.decode(), *texts, *tags], at)._replace(data=data)

    for row, batch in _batches(piece, piece.file.header):
        for at, (cells, problem) in enumerate(_cells(batch), row + 1):
            if problem:
                yield bad_row(piece.file.name, at, 0, repr(cells), problem)
                continue
            try:
                data = encode(cells)
            except Exception as error:
                yield bad_row(piece.file.name, at, 0, repr(cells), _reason(error))
                continue
            yield _row(piece, Raw(at, 0, data), made, data, cells, at)


def _cells(batch: pa.RecordBatch) -> Iterable[tuple[dict[str, Any], str]]:
    """The readable cells of each row by column, and the reason if a row cannot be read."""
    try:
        return [(cells, "") for cells in batch.to_pylist()]
    except _OUT_OF_RANGE:
        return map(_cells_one_by_one, (batch.slice(at, 1) for at in range(batch.num_rows)))


def _cells_one_by_one(row: pa.RecordBatch) -> tuple[dict[str, Any], str]:
    cells, problem = {}, ""
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            cells[name] = column[0].as_py()
        except _OUT_OF_RANGE as error:
            problem = problem or f"{name}: this {column.type} cannot be read: {error}"
    return cells, problem


def _plain(value: object) -> datetime | timedelta | str:
    """A time or duration in nanoseconds, which Arrow returns as a pandas type, in the form of one in microseconds.

    With nanoseconds, it is the same text with nine digits of a second. Raises TypeError for anything else.
    """
    if isinstance(value, datetime):
        pandas_time: Any = value
        text: str = pandas_time.isoformat().replace("+00:00", "Z")
        return text if pandas_time.nanosecond else pandas_time.to_pydatetime()
    if isinstance(value, timedelta):
        pandas_duration: Any = value
        return _iso_duration(pandas_duration.value) if pandas_duration.nanoseconds else pandas_duration.to_pytimedelta()
    raise TypeError(f"a value of {type(value).__name__} cannot be represented in JSON")


def _iso_duration(ns: int) -> str:
    days, rest = divmod(abs(ns), 86_400 * 10**9)
    return f"{'-' if ns < 0 else ''}P{f'{days}D' if days else ''}T{rest // 10**9}.{rest % 10**9:09}S"


def _renamed(mapping: TableMapping) -> TableMapping:
    """The mapping for the rows made by `_rows`: with the relevant columns, as text."""
    tags = tuple((f"tag {column}", key) for column, key in mapping.tags)
    time, id = ("time" if mapping.time_column else None), ("id" if mapping.id_column else None)
    return replace(mapping, type_column="type", time_column=time, id_column=id, tags=tags)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, timedelta) and type(value) is not timedelta:
        value = _plain(value)
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


_READERS: dict[str, Callable[[FilePiece], Read]] = {
    "csv": _exported,
    "ndjson": _by_line(ndjson_event),
    "cloudevents": _by_line(lambda line, number, source: _of_cloudevent(line)),
    "ocel": _ocel,
    PARQUET: _rows,
}


# What the log accepts.


def _arrow(events: Sequence[Event]) -> pa.RecordBatch:
    schema = EVENT_SCHEMA
    columns = dict(zip(Event._fields, zip(*events, strict=True), strict=True))
    columns["attributes"] = tuple([list(each.items()) for each in columns["attributes"]])
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _fit(
    batch: pa.RecordBatch, settings: LogSettings, origins: Sequence[Raw] | _Origins, piece: FilePiece, bad: list[BadRow]
) -> Iterator[pa.RecordBatch]:
    """The accepted rows, in Spark's columns. Batches are halved until each rejected row is found."""
    for good, at, problem in fitting(batch, settings):
        if good is not None:
            yield _sparks(good)
        else:
            origin = origins[at]
            text = origin.text or str(batch.slice(at, 1).to_pylist()[0])
            bad.append(bad_row(piece.file.name, origin.row, origin.line, text, problem))


def fitting(
    batch: pa.RecordBatch, settings: LogSettings, before: int = 0
) -> Iterator[tuple[pa.RecordBatch | None, int, str]]:
    """Runs of accepted rows, in order, and each rejected row between them: its index, and the reason."""

    def checked(part: pa.RecordBatch, _: int) -> pa.RecordBatch:
        columns_of(part, settings)
        return part

    return _made(batch, checked, before)


def _made(
    batch: pa.RecordBatch, make: Callable[[pa.RecordBatch, int], pa.RecordBatch], before: int
) -> Iterator[tuple[pa.RecordBatch | None, int, str]]:
    """The batches that `make` returns for runs of rows, in order, and each row between them that it rejects: its index,
    and the reason.
    """
    if not batch.num_rows:
        return
    try:
        made = make(batch, before)
    except Exception as error:
        if batch.num_rows == 1:
            yield None, before, _reason(error).replace("events[0].", "")
            return
        half = batch.num_rows // 2
        yield from _made(batch.slice(0, half), make, before)
        yield from _made(batch.slice(half), make, before + half)
    else:
        yield made, before, ""


def _sparks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the columns and types that Spark expects; missing ones are null."""
    arrays: list[Any] = []
    schema = arrow_schema(COLUMNS)
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        arrays.append(batch.column(at).cast(field.type) if at >= 0 else pa.nulls(batch.num_rows, field.type))
    return pa.record_batch(arrays, schema=schema)
