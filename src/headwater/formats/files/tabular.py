"""Text tables (CSV and similar) as events: one row, one event, by a mapping of columns. No I/O: lines come in.

The data of an event is its row as a JSON object, every column unchanged. A table written by `headwater export` is
restored to its original events (`csv_rows`), unless a column is named.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec

from ...core.errors import InvalidInput
from ...core.event import Event
from ...core.limits import show
from ..foreign import derived_id, fit_tag, rfc3339
from .csv_rows import exported_reader, is_exported

DELIMITERS = ",;\t|"
TYPE_COLUMNS = ("type", "event_type", "eventtype", "event", "activity", "concept:name")
TIME_COLUMNS = ("time", "timestamp", "time:timestamp", "event_time", "datetime", "date")
"""Column names tried in this order if none is named; case is ignored."""

NOTHING = frozenset({"", "NA", "NULL", "null", "None"})
"""Values that tables use for a missing value: such a cell gives no tag and no time."""

_SEEN_MAX = 8192
"""Tags and times repeat: this many of each are cached."""


@dataclass(frozen=True, slots=True)
class TableMapping:
    """Which column becomes which field."""

    source: str
    """The source of all events; part of their identity."""
    type_column: str | None = None
    """None = guessed by name."""
    time_column: str | None = None
    """None = guessed by name; without one the events have no time of their own."""
    id_column: str | None = None
    """None = ids are derived from source, row number and row."""
    tags: tuple[tuple[str, str], ...] = ()
    """Pairs of column and tag key."""
    time_format: str | None = None
    """A `strptime` format; None = ISO 8601 or numbers since 1970."""
    delimiter: str | None = None
    """None = the one of `DELIMITERS` most frequent in the first line."""

    @property
    def names_columns(self) -> bool:
        """Whether it names any column."""
        return bool(self.type_column or self.time_column or self.id_column or self.tags)


def table_events(lines: Iterable[str], mapping: TableMapping) -> Iterator[Event]:
    """The events of a table whose first line names the columns.

    Raises InvalidInput, with the line, as `table_rows`, and for the first row that is not a valid event.
    """
    for line, _, found in table_rows(lines, mapping):
        if isinstance(found, InvalidInput):
            raise InvalidInput(found.problem, f"line {line}")
        yield found


def table_rows(lines: Iterable[str], mapping: TableMapping) -> Iterator[tuple[int, str, Event | InvalidInput]]:
    """The rows of a table whose first line names the columns: the line where each ends, its text, and the event.

    Instead of the event, an invalid row has its error: its quotes are wrong, it is not UTF-8 (its bytes come as
    surrogates), it has another length, an empty type or id, or an unreadable time. Raises InvalidInput, with the line,
    for a missing column, and for a quote that is never closed.
    """
    taken = _Taken(lines)
    header, delimiter = heading(next(taken, ""), mapping.delimiter)
    try:
        taken.check_utf8()
    except InvalidInput as error:
        raise InvalidInput(error.problem, "line 1") from None
    rows = csv.reader(taken, delimiter=delimiter, strict=True)
    if is_exported(header) and not mapping.names_columns:
        event_of = exported_reader(header)
    else:
        event_of = row_reader(header, guessed(header, mapping))
    position = 0
    while True:
        taken.row.clear()
        try:
            if (cells := next(rows, None)) is None:
                return
            if not cells:
                continue
            position += 1
            taken.check_utf8()
            found: Event | InvalidInput = event_of(cells, position)
        except csv.Error as error:
            if taken.has_ended:
                begin = rows.line_num + 2 - len(taken.row)
                raise InvalidInput(f"{error}: unterminated quote", f"line {begin}") from None
            position += 1
            found = InvalidInput(str(error))
        except InvalidInput as error:
            found = error
        yield rows.line_num + 1, "".join(taken.row), found


class _Taken:
    """The lines that a reader takes; `row` has those of the present row."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.row: list[str] = []
        self.has_ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            line = next(self._lines)
        except StopIteration:
            self.has_ended = True
            raise
        self.row.append(line)
        return line

    def check_utf8(self) -> None:
        """Raises InvalidInput if the row contains bytes that are not UTF-8."""
        for line in self.row:
            if not line.isascii():
                try:
                    line.encode()
                except UnicodeEncodeError as error:
                    raise InvalidInput(f"it is not UTF-8: byte {ord(line[error.start]) & 0xFF:#x}") from None


def heading(first_line: str, delimiter: str | None = None) -> tuple[list[str], str]:
    """The names of the columns, and the delimiter: the given one, or the one of DELIMITERS most frequent in the line.

    Raises InvalidInput if there are no names.
    """
    delimiter = delimiter or max(DELIMITERS, key=first_line.count)
    header = next(csv.reader([first_line], delimiter=delimiter), [])
    if not header:
        raise InvalidInput("expected the column names in the first line", "line 1")
    return header, delimiter


def guessed(header: Sequence[str], mapping: TableMapping) -> TableMapping:
    """The mapping with its type and time columns found by name if not given, and all columns checked.

    Raises InvalidInput for a column that is not in the table.
    """
    type_column = mapping.type_column or _first_of(TYPE_COLUMNS, header)
    if type_column is None:
        raise InvalidInput(f"no event type column found among {show(list(header))}; name one", "line 1")
    found = replace(
        mapping, type_column=type_column, time_column=mapping.time_column or _first_of(TIME_COLUMNS, header)
    )
    named = [found.type_column, found.time_column, found.id_column, *(column for column, _ in found.tags)]
    for column in named:
        if column is not None and column not in header:
            raise InvalidInput(f"there is no column {show(column)}; the columns are {', '.join(header)}", "line 1")
    return found


def _first_of(names: Sequence[str], header: Sequence[str]) -> str | None:
    by_name = {column.lower(): column for column in reversed(header)}
    return next((by_name[name] for name in names if name in by_name), None)


def row_reader(header: Sequence[str], mapping: TableMapping) -> Callable[[Sequence[str], int], Event]:
    """Returns a function that makes an event from a row and its position (from 1); the mapping is from `guessed`.

    The function raises InvalidInput, without a place, for an invalid row.
    """

    def place(column: str | None) -> int | None:
        return None if column is None else header.index(column)

    type_at, time_at, id_at = place(mapping.type_column), place(mapping.time_column), place(mapping.id_column)
    tags_at = [(header.index(column), key) for column, key in mapping.tags]
    assert type_at is not None
    encode = msgspec.json.Encoder().encode
    tag_of, time_of = lru_cache(_SEEN_MAX)(fit_tag), lru_cache(_SEEN_MAX)(rfc3339)

    def event_of(row: Sequence[str], position: int) -> Event:
        if len(row) != len(header):
            raise InvalidInput(f"expected {len(header)} cells, got {len(row)}")
        if not row[type_at]:
            raise InvalidInput(f"the event type column {show(mapping.type_column)} is empty")
        attributes = {"datacontenttype": "application/json"}
        if time_at is not None and row[time_at] not in NOTHING:
            attributes["time"] = time_of(row[time_at], mapping.time_format)
        if id_at is None:
            id = derived_id(mapping.source, position, "\x1f".join(row))
        elif not (id := row[id_at]):
            raise InvalidInput(f"the id column {show(mapping.id_column)} is empty")
        return Event(
            type=row[type_at],
            data=encode(dict(zip(header, row, strict=True))),
            tags=tuple(sorted({tag_of(key, row[at]) for at, key in tags_at if row[at] not in NOTHING})),
            id=id,
            source=mapping.source,
            attributes=attributes,
        )

    return event_of
