"""The options of reads and streams, as one checked value that is sent to the workers; it holds no connection."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pyspark.sql.types import StructType

from ...core.errors import InvalidInput
from ...core.limits import PARTITIONS_MAX, SEQUENCE_NUMBER_MAX, show
from ...core.query import ALL, Query
from ...core.settings import check_log_name
from ...core.streams import STREAM_CHARS_MAX, check_stream_name
from ...flight.calls.address import BulkAddress
from ...formats.querytext import parse_query
from ..clients import CONNECTION, address_of
from ..columns.payload_schema import PAYLOAD, payload_type
from ..columns.schema import COLUMNS, METADATA, TYPED, check_columns, columns_of, sources_of
from ..options import (
    InvalidOption,
    Moment,
    Option,
    boolean,
    choice,
    duration_ms,
    is_meant,
    is_pattern,
    names,
    number,
    read_options,
    size,
    text,
    timestamp_ms,
)

SPLIT_BYTES = 64 * 1024 * 1024
TRIGGER_DELAY_MS = 15 * 60_000


Place = Literal["earliest", "latest"] | int | Moment
"""A position as given: a sequence number, a time, or an end of the log at that moment."""


@dataclass(frozen=True)
class Bound:
    """Where reading starts or ends: for every log, except those named."""

    place: Place
    by_log: Mapping[str, Place] = field(default_factory=dict)

    def of(self, log: str) -> Place:
        """The place in that log."""
        return self.by_log.get(log, self.place)


@dataclass(frozen=True)
class ReadOptions:
    """What to read, from where, and in which pieces."""

    address: BulkAddress
    logs: tuple[str, ...]
    """Names and patterns."""
    columns: tuple[str, ...]
    """The columns read from a log."""
    typed: StructType | None = None
    """The resulting columns if payloads are read as columns."""
    partitions: tuple[int, ...] | None = None
    query: Query = ALL
    start: Bound = Bound("earliest")
    start_if_none: Literal["error", "latest"] = "error"
    """What to do if nothing was recorded since the starting timestamp."""
    end: Bound = Bound("latest")
    splits_min: int = 1
    split_events_max: int | None = None
    split_bytes: int = SPLIT_BYTES
    trigger_events_max: int | None = None
    trigger_events_min: int | None = None
    trigger_bytes_max: int | None = None
    trigger_delay_ms: int = TRIGGER_DELAY_MS
    stream_name: str | None = None
    """The name under which the server shows the progress of a stream; None to hide it."""
    fails_on_loss: bool = True
    archive: str | None = None
    pushes_filters: bool = False
    borrows: bool = True
    """Whether to read large slices from the log's files, if the server is on this machine and lends them."""
    compression: Literal["lz4", "zstd"] | None = None
    """The compression on the network."""

    def wants(self, log: str) -> bool:
        """Whether it is one of the logs to read."""
        return is_meant(log, self.logs)

    def may_lose(self, log: str) -> bool:
        """Whether the log may disappear: it matches a pattern, and the options allow it."""
        return not self.fails_on_loss and log not in self.logs

    @property
    def has_pattern(self) -> bool:
        """Whether only the server can resolve the logs."""
        return any(is_pattern(name) for name in self.logs)


def _logs(given: str) -> tuple[str, ...]:
    found = names(given)
    for name in found:
        if not is_pattern(name):
            _check_name(name)
    if len(set(found)) < len(found):
        raise InvalidInput(f"a log occurs twice in {show(given)}")
    return found


def _check_name(name: str) -> str:
    """The name itself. Raises InvalidLogName. The server's own logs can be read, too."""
    check_log_name(name.removeprefix("$"))
    return name


def _table(given: str) -> str:
    """The path for workers, which have another working directory."""
    return given if "://" in text(given) else os.path.abspath(given)


def _paths(given: str) -> tuple[str, ...]:
    """Several paths in the form of `load`."""
    return _logs(",".join(json.loads(given)))


def _partitions(given: str) -> tuple[int, ...]:
    read = number(0, PARTITIONS_MAX - 1)
    return tuple(sorted({read(word) for word in names(given)}))


_position = number(1)


def _place(given: object) -> Place:
    word = str(given).strip().lower()
    if word in ("earliest", "latest"):
        return word  # type: ignore[return-value]
    return _position(word)


def _places(given: str) -> Bound:
    if not given.lstrip().startswith("{"):
        return Bound(_place(given))
    said = json.loads(given)
    return Bound("earliest", {_check_name(log): _place(place) for log, place in said.items()})


def _time(given: str) -> Bound:
    if not given.lstrip().startswith("{"):
        return Bound(Moment(timestamp_ms(given)))
    said = json.loads(given)
    return Bound("earliest", {_check_name(log): Moment(timestamp_ms(str(time))) for log, time in said.items()})


def _stream_name(given: str) -> str:
    try:
        return check_stream_name(given)
    except InvalidInput:
        raise ValueError from None


def _compression(given: str) -> str | None:
    word = choice("none", "lz4", "zstd")(given)
    return None if word == "none" else word


_PLACES = f'earliest, latest, a number from 1 to {SEQUENCE_NUMBER_MAX}, or an object such as {{"orders": 17}}'
_TIME = 'ISO 8601 such as 2026-11-21T12:00:00Z, or ms since 1970, or an object of these, {"orders": "2026-11-21"}'
_COUNT = number(1)
_LOG_NAMES = "names or patterns of logs, such as orders or orders-*, separated by commas"

SHARED = (
    *CONNECTION,
    Option("log", _LOG_NAMES, _logs),
    Option("path", _LOG_NAMES, _logs),
    Option("paths", _LOG_NAMES, _paths),
    Option("partitions", f"numbers from 0 to {PARTITIONS_MAX - 1} separated by commas", _partitions),
    Option("query", "a query", parse_query),
    Option("columns", "names of columns separated by commas", lambda given: check_columns(names(given))),
    Option("includeMetadata", "true or false", boolean),
    Option("payloadSchema", "columns such as `order string, total double`, in DDL, JSON or JSON Schema", payload_type),
    Option("startingPosition", _PLACES, _places),
    Option("startingTimestamp", _TIME, _time),
    Option("startingTimestampStrategy", "error or latest", choice("error", "latest")),
    Option("endingPosition", _PLACES, _places),
    Option("endingTimestamp", _TIME, _time),
    Option("minPartitions", "a whole number from 1 to 100000", number(1, 100_000)),
    Option("maxEventsPerPartition", "a whole number from 1", _COUNT),
    Option("splitBytes", "a size such as 64m", size),
    Option("failOnDataLoss", "true or false", boolean),
    Option("archive", "the path of a Delta table", _table),
    Option("mapSegments", "true or false", boolean),
    Option("compression", "none, lz4 or zstd", _compression),
)
BATCH_ONLY = (Option("filterPushdown", "true or false", boolean),)
STREAM_ONLY = (
    Option("maxEventsPerTrigger", "a whole number from 1", _COUNT),
    Option("minEventsPerTrigger", "a whole number from 1", _COUNT),
    Option("maxBytesPerTrigger", "a size such as 64m", size),
    Option("maxTriggerDelay", "a duration such as 500ms, 30s or 15m", duration_ms),
    Option("streamName", f"1 to {STREAM_CHARS_MAX} characters without control characters", _stream_name),
)
READING = (*SHARED, *BATCH_ONLY, *STREAM_ONLY)
"""All options of reads and streams."""

_FIELDS = {
    "partitions": "partitions",
    "query": "query",
    "startingTimestampStrategy": "start_if_none",
    "minPartitions": "splits_min",
    "maxEventsPerPartition": "split_events_max",
    "splitBytes": "split_bytes",
    "failOnDataLoss": "fails_on_loss",
    "archive": "archive",
    "filterPushdown": "pushes_filters",
    "mapSegments": "borrows",
    "compression": "compression",
    "maxEventsPerTrigger": "trigger_events_max",
    "minEventsPerTrigger": "trigger_events_min",
    "maxBytesPerTrigger": "trigger_bytes_max",
    "maxTriggerDelay": "trigger_delay_ms",
    "streamName": "stream_name",
}


def batch_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read. Raises InvalidOption."""
    _refuse(given, STREAM_ONLY, "only for streams; a batch read ends at endingPosition")
    options = _options(read_options(given, READING, "a read of format headwater"))
    _refuse_place(options.start, "latest", "startingPosition", "a batch read that starts there reads nothing")
    return options


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a streaming read. Raises InvalidOption."""
    _refuse(given, BATCH_ONLY, "only for batch reads; use query and partitions to filter a stream")
    options = _options(read_options(given, READING, "a stream of format headwater"))
    low, high = options.trigger_events_min, options.trigger_events_max
    if low is not None and high is not None and low > high:
        raise InvalidOption(f"{low} exceeds maxEventsPerTrigger ({high})", "minEventsPerTrigger")
    return options


def with_schema(options: ReadOptions, schema: StructType) -> ReadOptions:
    """The options for rows of that schema: the one they define, or one that a user declares.

    Raises InvalidInput: columns that are not ours, or have other types.
    """
    columns = columns_of(schema)
    return replace(options, columns=sources_of(columns), typed=schema if PAYLOAD in columns else None)


def columns_asked(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that `columns`, `includeMetadata` and `payloadSchema` select. Raises InvalidOption."""
    is_typed = "payloadSchema" in values
    if "columns" in values and "includeMetadata" in values:
        raise InvalidOption("columns already selects the columns; use only one of the two", "includeMetadata")
    if "columns" in values:
        columns: tuple[str, ...] = values["columns"]
        if is_typed and PAYLOAD not in columns:
            raise InvalidOption(f"column {PAYLOAD}, required by payloadSchema, is not among them", "columns")
        if not is_typed and (typed := [name for name in columns if name in TYPED]):
            raise InvalidOption(f"column {typed[0]} conflicts with payloadSchema", "columns")
        return columns
    all = [each for name in COLUMNS for each in (TYPED if is_typed and name == "data" else (name,))]
    return tuple([name for name in all if values.get("includeMetadata", True) or name not in METADATA])


def _options(values: dict[str, Any]) -> ReadOptions:
    given = {_FIELDS[name]: value for name, value in values.items() if name in _FIELDS}
    for edge, bound in (("starting", "start"), ("ending", "end")):
        place, time = f"{edge}Position", f"{edge}Timestamp"
        if place in values and time in values:
            raise InvalidOption(f"{place} is also set; use only one of the two", time)
        if place in values or time in values:
            given[bound] = values.get(place) or values[time]
    if "start_if_none" in given and "startingTimestamp" not in values:
        raise InvalidOption("requires startingTimestamp", "startingTimestampStrategy")
    if given.get("end") and given["end"].by_log:
        given["end"] = Bound("latest", given["end"].by_log)
    options = ReadOptions(address_of(values), _log_names(values), columns_asked(values), **given)
    _refuse_place(options.end, "earliest", "endingPosition", "a read that ends there reads nothing")
    _refuse_reverse(options)
    return options


def _log_names(values: Mapping[str, Any]) -> tuple[str, ...]:
    given = [name for name in ("log", "path", "paths") if name in values]
    if not given:
        raise InvalidOption(
            f"expected {_LOG_NAMES}, got none; a table of Spark's catalog keeps its "
            "options only if it was created without a list of columns",
            "log",
        )
    if len(given) > 1:
        raise InvalidOption("the argument of load already names the logs", "log")
    return values[given[0]]  # type: ignore[no-any-return]


def _refuse(given: Mapping[str, str], table: tuple[Option, ...], why: str) -> None:
    by_lower = {option.name.lower(): option.name for option in table}
    for name in given:
        if name.lower() in by_lower:
            raise InvalidOption(why, by_lower[name.lower()])


def _refuse_place(bound: Bound, place: Place, name: str, why: str) -> None:
    if place in (bound.place, *bound.by_log.values()):
        raise InvalidOption(f"got {place}: {why}", name)


def _refuse_reverse(options: ReadOptions) -> None:
    """Raises InvalidOption if the start is after the end, as far as this can be checked without the logs."""
    start, end = options.start, options.end
    for log in {*start.by_log, *end.by_log, ""}:  # no log has the empty name: it stands for all the others
        first, last = start.of(log), end.of(log)
        if isinstance(first, Moment) and isinstance(last, Moment) and first.ms > last.ms:
            of = f" of log {log!r}" if log else ""
            raise InvalidOption(f"it is later than endingTimestamp{of}", "startingTimestamp")
        if isinstance(first, int) and isinstance(last, int) and first > last:
            of = f" of log {log!r}" if log else ""
            raise InvalidOption(f"{first} is above endingPosition {last}{of}", "startingPosition")
