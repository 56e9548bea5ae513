"""The data source `headwater` for Spark: from its options to a schema, a batch read, a stream.

`pyspark_headwater` calls this, so importing that stays cheap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from ..columns.schema import select, with_payload
from ..options import InvalidOption, Option, read_options
from ..session.python_workers import settle
from .batch import BatchReader, reader_of
from .options import READING, batch_options, columns_asked, with_schema
from .stream import StreamReader


def read_schema(options: Mapping[str, str]) -> StructType | str:
    """The columns that the options select; as DDL if the options use it. It is not yet known whether for a batch or a
    stream.

    Raises InvalidOption for any invalid option, so that `load` reports it instead of the first action.
    """
    settle()
    of_table = given_to_table(options, READING)
    if of_table is not None:
        batch_options(of_table)
    values = read_options(options if of_table is None else of_table, READING, "a read of format headwater")
    columns = columns_asked(values)
    schema, first = [
        with_payload(some, values["payloadSchema"]) if "payloadSchema" in values else select(some)
        for some in (columns, columns[:1])
    ]
    return schema if of_table is None else noted(schema, first, of_table)


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """A batch read of the schema's columns. Raises InvalidOption, InvalidInput (other columns)."""
    settle()
    return reader_of(with_schema(batch_options(with_noted(options, schema)), schema))


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """A streaming read of the schema's columns. Raises nothing; the reader raises errors when it is used."""
    return StreamReader(dict(with_noted(options, schema)), schema)


NOTE = "headwater: "
"""The prefix of the comment of a table's first column; the table's options follow as JSON.

Spark passes those (`CREATE TABLE orders USING headwater OPTIONS (log 'orders')`) when it asks for the table's columns,
but not with reads. The columns returned then come with each read.
"""
_PREFIX = "option."
_NAMES_LOGS = frozenset({"log", "path", "paths"})


def given_to_table(options: Mapping[str, str], known: tuple[Option, ...]) -> dict[str, str] | None:
    """The options of the table being created; None if the columns are those of a read.

    Spark passes each twice, the second time as `option.NAME`, among the table's properties. Raises InvalidOption for a
    secret, which the catalog would show.
    """
    if "provider" not in options:
        return None
    lowered = {name.lower(): value for name, value in options.items()}
    given = {name.removeprefix(_PREFIX): value for name, value in lowered.items() if name.startswith(_PREFIX)}
    for option in known:
        if option.is_secret and option.name.lower() in given:
            remedy = "a table would expose it; set HEADWATER_TOKEN, or HEADWATER_USER and HEADWATER_PASSWORD, instead"
            raise InvalidOption(remedy, option.name)
    return given


def noted(schema: StructType | str, first: StructType | str, given: Mapping[str, str]) -> StructType | str:
    """The columns, the first with the options as its comment. `first` is that column alone, as DDL if `schema` is: the
    type of a payload contains commas and quotes.
    """
    note = NOTE + json.dumps(given, ensure_ascii=False)
    if isinstance(schema, str):
        assert isinstance(first, str)
        text = note.replace("\\", "\\\\").replace("'", "\\'")
        return f"{first} COMMENT '{text}'{schema.removeprefix(first)}"
    first_field, *others = schema.fields
    return StructType([StructField(first_field.name, first_field.dataType, True, {"comment": note}), *others])


def with_noted(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The options of a read, with those of the table if the read names no log itself."""
    lowered = {name.lower(): value for name, value in options.items()}
    comment = schema.fields[0].metadata.get("comment", "") if schema.fields else ""
    if not comment.startswith(NOTE) or _NAMES_LOGS & lowered.keys():
        return options
    try:
        kept = json.loads(comment.removeprefix(NOTE))
        return {**{name: str(value) for name, value in kept.items()}, **lowered}
    except (ValueError, AttributeError):  # someone has changed the comment
        return options
