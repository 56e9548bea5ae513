"""Parses `payloadSchema`: the columns of JSON payloads, as Spark DDL or JSON Schema.

Spark itself parses DDL; other schemas are parsed here. Types that the kernels of `payload_reader` cannot read are
rejected, with the path of the field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...core.errors import InvalidInput
from ...core.limits import show

PAYLOAD, MALFORMED = "payload", "_malformed"
"""The columns that replace `data`."""
SCHEMA_CHARS_MAX = 65_536
DEPTH_MAX = 32
FIELDS_MAX = 2000

_LEAVES = (
    StringType, BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType, DateType,
    TimestampType,
)  # fmt: skip
_ALLOWED = "string, boolean, tinyint to bigint, float, double, decimal, date, timestamp, array or struct"


def payload_type(given: str) -> StructType | str:
    """The given schema as a Spark type, or as text if it is DDL, which only Spark's Java can parse.

    Raises InvalidInput, ValueError.
    """
    text = given.strip()
    if not text or len(text) > SCHEMA_CHARS_MAX:
        raise InvalidInput(f"expected 1 to {SCHEMA_CHARS_MAX} characters, got {len(text)}")
    if text.startswith("{"):
        return _of_json(text)
    return text if text.lower().startswith("struct<") else f"struct<{text}>"


def check_payload(type: DataType) -> StructType:
    """The type itself. Raises InvalidInput, with the path of the field, if payloads cannot be read as that type."""
    if not isinstance(type, StructType):
        raise InvalidInput(f"expected columns such as `order string, total double`, got {show(given_as(type))}")
    for fields, (path, depth, found) in enumerate(_walk(type)):
        if fields > FIELDS_MAX or depth > DEPTH_MAX:
            raise InvalidInput(f"at most {FIELDS_MAX} fields and {DEPTH_MAX} levels are allowed")
        if isinstance(found, StructType):
            _check_fields(path, found)
        elif not isinstance(found, (*_LEAVES, ArrayType)):
            raise InvalidInput(f"expected {_ALLOWED}, got {given_as(found)}", path)
    return type


def given_as(type: DataType) -> str:
    """A type in Spark's notation."""
    return type.simpleString()


def _walk(root: DataType) -> Iterator[tuple[str, int, DataType]]:
    waiting: list[tuple[str, int, DataType]] = [(PAYLOAD, 0, root)]
    while waiting:
        path, depth, found = waiting.pop()
        yield path, depth, found
        if isinstance(found, StructType):
            waiting += [(f"{path}.{field.name}", depth + 1, field.dataType) for field in found.fields]
        elif isinstance(found, ArrayType):
            waiting.append((f"{path}[]", depth + 1, found.elementType))


def _check_fields(path: str, struct: StructType) -> None:
    if not struct.fields:
        raise InvalidInput("expected at least one field, got none", path)
    seen: set[str] = set()
    for field in struct.fields:
        if field.name.lower() in seen:
            raise InvalidInput(f"field {field.name!r} occurs twice", path)
        if not field.nullable:
            raise InvalidInput("events may not contain it; remove NOT NULL", f"{path}.{field.name}")
        seen.add(field.name.lower())


def _of_json(text: str) -> StructType:
    """Raises InvalidInput."""
    try:
        said = msgspec.json.decode(text)
        if said.get("type") == "struct":
            return check_payload(StructType.fromJson(said))
        return check_payload(_of_schema(said, PAYLOAD))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"it starts like JSON but is not valid: {error}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInput(f"Spark cannot parse this schema: {error!r}") from None


def _of_schema(said: Any, path: str) -> DataType:
    """The type that a JSON Schema describes. Optional and additional properties do not change it."""
    kind = _kind(said, path)
    if kind == "object":
        properties = said.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            raise InvalidInput("an object needs properties", path)
        return StructType([StructField(name, _of_schema(each, f"{path}.{name}")) for name, each in properties.items()])
    if kind == "array":
        return ArrayType(_of_schema(said.get("items"), f"{path}[]"))
    if kind == "string":
        return {"date": DateType(), "date-time": TimestampType()}.get(str(said.get("format")), StringType())
    return {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}[kind]


def _kind(said: Any, path: str) -> str:
    """The only type other than null."""
    given = said.get("type") if isinstance(said, Mapping) else None
    kinds = [kind for kind in (given if isinstance(given, list) else [given]) if kind != "null"]
    known = ("object", "array", "string", "integer", "number", "boolean")
    if len(kinds) != 1 or kinds[0] not in known:
        raise InvalidInput(f"expected a JSON Schema with `type`, one of {', '.join(known)}, got {show(said)}", path)
    return str(kinds[0])
