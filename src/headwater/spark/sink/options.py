"""The options and columns of a write, as one checked, serializable value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from ...core.condition import AppendCondition, check_condition
from ...core.errors import InvalidInput
from ...core.limits import PARTITIONS_MAX, show
from ...core.settings import check_log_name
from ...flight.calls.address import BulkAddress
from ...flight.wire import ConditionJson, condition_of
from ..clients import CONNECTION, address_of
from ..options import InvalidOption, Option, choice, nearest, number, read_options

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

OPTIONAL_COLUMNS = ("tags", "id", "source", "attributes", "group_key", "envelope", "encoding")
REQUIRED_COLUMNS = ("type", "data")
IGNORED_COLUMNS = ("log", "sequence_number", "recorded_at", "partition")
"""Columns that a read adds and the target assigns: ignored, so that what was read can be written."""
ROUTING_COLUMNS = {
    "log": "a write appends to one log, the option log; select the rows of each log, and write them separately",
    "partition": "the log derives it from group_key; set the option partition for all rows",
}
"""Refused, unless the frame was read from a log: Kafka users would expect them to route each row."""
READ_COLUMN = "sequence_number"
"""A frame with this column was read from a log."""
WRITER_CHARS_MAX = 200
"""A stream adds its query's id to it; the log allows 256."""
SPARKS_OWN = ("checkpointlocation", "queryname")
"""Options that Spark adds to those of a stream."""


@dataclass(frozen=True)
class SinkOptions:
    """The destination of the events, and how to write them."""

    address: BulkAddress
    log: str
    columns: tuple[str | None, ...]
    """For each column of the frame the corresponding column of the log; None if it is ignored."""
    partition: int | None = None
    condition: AppendCondition | None = None
    on_duplicate: Literal["fail", "skip"] = "fail"
    writer: str | None = None
    batch: int | None = None


def sink_options(given: Mapping[str, str], schema: StructType, *, is_stream: bool) -> SinkOptions:
    """The options and columns of a write. Raises InvalidOption, and InvalidInput for a column, naming the nearest."""
    purpose = "a streaming write" if is_stream else "a write"
    passed = {name: value for name, value in given.items() if not (is_stream and name.lower() in SPARKS_OWN)}
    values = read_options(passed, _OPTIONS, purpose)
    if len(logs := {values[name] for name in ("log", "path") if name in values}) != 1:
        raise InvalidOption("one log is required: .option('log', NAME), or its name as the path", "log")
    if is_stream:
        for name in ("condition", "batchId"):
            if name in values:
                raise InvalidOption("only a batch write supports it, for example inside foreachBatch", name)
    elif "batchId" in values and "writerId" not in values:
        raise InvalidOption("it numbers the batches of a writer; also set writerId", "batchId")
    return SinkOptions(
        address_of(values),
        logs.pop(),
        columns_of(schema),
        values.get("partition"),
        values.get("condition"),
        values.get("onDuplicate", "fail"),
        values.get("writerId"),
        values.get("batchId"),
    )


def columns_of(schema: StructType) -> tuple[str | None, ...]:
    """The log column for each column of a frame; names in any case. Raises InvalidInput."""
    names = [field.name.lower() for field in schema.fields]
    for field in schema.fields:
        _check_column(field.name, field.dataType)
    for name in REQUIRED_COLUMNS:
        if name not in names:
            raise InvalidInput(f"column {name} is missing; the columns are {', '.join(names) or 'none'}", "columns")
    for name in ROUTING_COLUMNS.keys() & set(names) if READ_COLUMN not in names else ():
        raise InvalidInput(f"it cannot route rows: {ROUTING_COLUMNS[name]}; and drop the column", f"column {name}")
    if len(set(names)) < len(names):
        raise InvalidInput(f"a column occurs twice among {', '.join(names)}", "columns")
    return tuple([None if name in IGNORED_COLUMNS else name for name in names])


def _check_column(given: str, type: DataType) -> None:
    name, found = given.lower(), type.simpleString()
    if name in IGNORED_COLUMNS:
        return
    if name not in (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS):
        known = [*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS]
        raise InvalidInput(f"a log has no such column{nearest(given, known)}", f"column {given}")
    allowed = _TYPES.get(name, ("string",))
    if found.startswith(("varchar", "char")):
        found = "string"
    if found not in allowed:
        hint = "; convert it with to_json" if name == "data" else ""
        raise InvalidInput(f"expected {' or '.join(allowed)}, got {found}{hint}", f"column {given}")


_TYPES = {
    "data": ("binary", "string"),
    "tags": ("array<string>",),
    "attributes": ("map<string,string>",),
    "envelope": ("binary",),
    "encoding": ("tinyint", "smallint", "int", "bigint"),
}


def _condition(given: str) -> AppendCondition:
    try:
        condition = condition_of(msgspec.json.decode(given, type=ConditionJson))
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{error}, in {show(given)}") from None
    assert condition is not None
    check_condition(condition)
    return condition


def _writer(given: str) -> str:
    if not 1 <= len(given) <= WRITER_CHARS_MAX or not given.isprintable():
        raise ValueError
    return given


_OPTIONS = (
    *CONNECTION,
    Option("log", "the name of a log", check_log_name),
    Option("path", "the name of a log", check_log_name),
    Option("partition", f"a number from 0 to {PARTITIONS_MAX - 1}", number(0, PARTITIONS_MAX - 1)),
    Option(
        "condition", 'JSON such as {"fail_if_events_match": "type=OrderPlaced tag=order:17", "after": 42}', _condition
    ),
    Option("onDuplicate", "fail or skip", choice("fail", "skip")),
    Option("writerId", f"1 to {WRITER_CHARS_MAX} printable characters", _writer),
    Option("batchId", "a whole number", number(0)),
)
