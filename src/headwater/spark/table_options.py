"""Options of tables in Spark's catalog: `CREATE TABLE orders USING headwater OPTIONS (log 'orders')`.

Spark hands them over when it asks for the table's columns, and to no read of the table. But the columns that were
answered come with each read: so the comment of the first one says what the options are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from .options import InvalidOption, Option

NOTE = "headwater: "
"""So the comment begins; JSON follows."""
_PREFIX = "option."
_NAMES_LOGS = frozenset({"log", "path", "paths"})


def given_to_table(options: Mapping[str, str], known: tuple[Option, ...]) -> dict[str, str] | None:
    """The options of the table that is being created; None where the columns are those of a read.

    Spark names each twice, the second time as `option.NAME`, among properties of the table. Raises InvalidOption for a
    secret, which the catalog would show.
    """
    if "provider" not in options:
        return None
    lowered = {name.lower(): value for name, value in options.items()}
    given = {name.removeprefix(_PREFIX): value for name, value in lowered.items() if name.startswith(_PREFIX)}
    for option in known:
        if option.is_secret and option.name.lower() in given:
            remedy = "a table shows it; set HEADWATER_TOKEN, or HEADWATER_USER and HEADWATER_PASSWORD, instead"
            raise InvalidOption(remedy, option.name)
    return given


def noted(schema: StructType | str, first: StructType | str, given: Mapping[str, str]) -> StructType | str:
    """The columns, the first with the options as its comment. `first` is that column alone, as DDL where `schema` is:
    the type of a payload has commas and quotes of its own.
    """
    note = NOTE + json.dumps(given, ensure_ascii=False)
    if isinstance(schema, str):
        assert isinstance(first, str)
        text = note.replace("\\", "\\\\").replace("'", "\\'")
        return f"{first} COMMENT '{text}'{schema.removeprefix(first)}"
    first_field, *others = schema.fields
    return StructType([StructField(first_field.name, first_field.dataType, True, {"comment": note}), *others])


def with_noted(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The options of a read: with those of the table, where the read names no log itself."""
    lowered = {name.lower(): value for name, value in options.items()}
    comment = schema.fields[0].metadata.get("comment", "") if schema.fields else ""
    if not comment.startswith(NOTE) or _NAMES_LOGS & lowered.keys():
        return options
    try:
        kept = json.loads(comment.removeprefix(NOTE))
        return {**{name: str(value) for name, value in kept.items()}, **lowered}
    except (ValueError, AttributeError):  # somebody has changed the comment
        return options
