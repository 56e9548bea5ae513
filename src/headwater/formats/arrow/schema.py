"""The Arrow columns from which events can be created."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

import pyarrow as pa

from ...core.errors import InvalidEvent
from .columns import EVENT_SCHEMA

IGNORED = ("sequence_number", "recorded_at", "log", "partition")
"""Columns of stored events that an append ignores: a batch that was read can be appended elsewhere unchanged."""


def check_schema(schema: pa.Schema) -> None:
    """Raises InvalidEvent if a schema does not describe events."""
    known = [*EVENT_SCHEMA.names, *IGNORED]
    seen: set[str] = set()
    try:
        schema.names  # noqa: B018  # they are decoded where they are asked for
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"a column name is not UTF-8: {error.object[:80]!r}", "schema") from None
    for field in schema:
        if field.name not in known:
            near = get_close_matches(field.name, known, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; the columns are {', '.join(EVENT_SCHEMA.names)}"
            raise InvalidEvent(f"there is no column {field.name!r}{hint}", "schema")
        if field.name in seen:
            raise InvalidEvent(f"column {field.name!r} occurs twice", "schema")
        seen.add(field.name)
        if field.name not in IGNORED and not pa.types.is_null(field.type) and not _FITTING[field.name](field.type):
            expected = _EXPECTED[field.name]
            raise InvalidEvent(f"column {field.name!r} has type {field.type}, expected {expected}", "schema")
    for name in ("type", "data"):
        if name not in seen:
            raise InvalidEvent(f"there is no column {name!r}", "schema")


def check_plain(schema: pa.Schema) -> None:
    """Raises InvalidEvent for columns whose values may be shared by many rows, because these are small here, but
    unbounded when they are expanded.
    """
    for field in schema:
        if not _is_plain(field.type):
            problem = (
                f"column {field.name!r} has type {field.type}; dictionaries and views are not supported; cast them"
            )
            raise InvalidEvent(problem, "schema")


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return False
    return all(_is_plain(kind.field(index).type) for index in range(kind.num_fields))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    if _is_text(kind):
        return True
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether it is some kind of list (maps excluded)."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_texts(kind: pa.DataType) -> bool:
    return is_list(kind) and (_is_text(kind.value_type) or bool(pa.types.is_null(kind.value_type)))


def _is_mapping(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _is_text(kind.key_type) and _is_text(kind.item_type)
    if not is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    pair = kind.value_type
    return pair.num_fields == 2 and _is_text(pair.field(0).type) and _is_text(pair.field(1).type)


_FITTING: dict[str, Callable[[pa.DataType], bool]] = {
    "type": _is_text,
    "data": _is_bytes,
    "tags": _is_texts,
    "id": _is_text,
    "source": _is_text,
    "attributes": _is_mapping,
    "group_key": _is_text,
    "envelope": _is_bytes,
    "encoding": pa.types.is_integer,
}
_EXPECTED = {
    **dict.fromkeys(("type", "id", "source", "group_key"), "string"),
    **dict.fromkeys(("data", "envelope"), "binary or string"),
    "tags": "list of strings",
    "attributes": "map of strings to strings",
    "encoding": "an integer type",
}
