"""Payloads as columns: what the kernels make of JSON, and which schemas are taken. No session is needed."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.core.errors import InvalidInput
from headwater.spark.columns.payload_reader import PayloadReader
from headwater.spark.columns.payload_schema import DEPTH_MAX, FIELDS_MAX, check_payload, payload_type
from headwater.spark.options import InvalidOption
from headwater.spark.source.data_source import read_schema


def struct(**fields: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


ORDER = struct(order=StringType(), total=DoubleType())
DEEP = struct(
    at=TimestampType(), day=DateType(), price=DecimalType(10, 2), days=ArrayType(DateType()),
    customer=struct(name=StringType(), since=DateType()),
)  # fmt: skip


def read(type: StructType, *payloads: bytes) -> list[Any]:
    """Of each payload the struct, or the bytes where it is malformed."""
    reader = PayloadReader(to_arrow_type(type, timezone="UTC"))
    structs, malformed = reader.read(pa.array(payloads, pa.binary()))
    assert len(structs) == len(malformed) == len(payloads)
    assert structs.type == to_arrow_type(type, timezone="UTC")
    pairs = list(zip(structs.to_pylist(), malformed.to_pylist(), strict=True))
    assert not any(found is not None and left is not None for found, left in pairs)
    return [found if left is None else left for found, left in pairs]


def test_payloads_are_columns_and_what_more_they_have_or_lack_makes_no_difference() -> None:
    found = read(ORDER, b'{"order": "a", "total": 2.5}', b'{"more": [1, {}], "total": 3}', b" {}\n")

    assert found == [{"order": "a", "total": 2.5}, {"order": None, "total": 3.0}, {"order": None, "total": None}]


def test_times_days_decimals_and_what_is_nested_are_read() -> None:
    given = b"""{"at": "2026-11-21T13:00:00.5+01:00", "day": "2026-11-21", "price": "12.5",
                 "days": ["2026-01-02", null],
                 "customer": {"name": "Z\xc3\xbcrich", "since": "2020-02-29"}}"""

    assert read(DEEP, given) == [
        {
            "at": dt.datetime(2026, 11, 21, 12, 0, 0, 500_000, dt.UTC),
            "day": dt.date(2026, 11, 21),
            "price": Decimal("12.50"),
            "days": [dt.date(2026, 1, 2), None],
            "customer": {"name": "Zürich", "since": dt.date(2020, 2, 29)},
        }
    ]


def test_an_empty_payload_and_null_are_null_and_not_malformed() -> None:
    assert read(ORDER, b"", b"null", b"{}") == [None, None, {"order": None, "total": None}]
    assert read(ORDER) == []
    assert read(ORDER, b"", b"") == [None, None]


@pytest.mark.parametrize(
    "malformed",
    [
        b"{", b"{}}", b"[]", b"7", b'"text"', b"nul", b"\x00\x01", b"\xff", b'{"order": "\xff"}', b'{"more": "\xff"}',
        b'{"order": 1}', b'{"total": "1"}', b'{"order": "a", "order": "b"}', b'{"order": "a"} {"order": "b"}',
        b'{"order": {}}', b"  ", b'{"order": "a"}, "more": 1', b'{"order": "a"}, {}', b'null, "more": 1',
        b'{"total": NaN}', b'{"total": -Infinity}',
    ],
)  # fmt: skip
def test_what_is_malformed_is_kept_as_it_is_and_its_neighbours_are_read(malformed: bytes) -> None:
    good = [b'{"order": "%d"}' % number for number in range(5)]
    read_of_good = [{"order": str(number), "total": None} for number in range(5)]

    assert read(ORDER, malformed) == [malformed]
    assert read(ORDER, malformed, *good, malformed) == [malformed, *read_of_good, malformed]
    assert read(ORDER, *good[:2], malformed, malformed, *good[2:]) == [
        *read_of_good[:2], malformed, malformed, *read_of_good[2:]
    ]  # fmt: skip


@pytest.mark.parametrize(
    "malformed", [b'{"day": "2026-02-30"}', b'{"price": 1.234}', b'{"at": "noon"}', b'{"days": [5]}']
)
def test_a_value_that_its_type_cannot_have_makes_a_payload_malformed(malformed: bytes) -> None:
    good = b'{"day": "2026-02-28"}'

    found = read(DEEP, good, malformed, good, malformed)

    assert found[1::2] == [malformed, malformed]
    assert [each["day"] for each in found[::2]] == [dt.date(2026, 2, 28)] * 2


def test_times_with_nine_digits_of_a_second_are_read_beside_years_that_nanoseconds_cannot_hold() -> None:
    fine, coarse, wrong = (b'{"at": "%s"}' % text for text in (
        b"2026-11-21T12:00:00.123456789Z", b"9999-12-31T00:00:00Z", b"2026-11-21T12:00:00.1234567891Z"))  # fmt: skip

    found = read(struct(at=TimestampType()), coarse, fine, fine, wrong, coarse, fine)

    read_fine = {"at": dt.datetime(2026, 11, 21, 12, 0, 0, 123456, dt.UTC)}
    read_coarse = {"at": dt.datetime(9999, 12, 31, tzinfo=dt.UTC)}
    assert found == [read_coarse, read_fine, read_fine, wrong, read_coarse, read_fine]


def test_what_a_float_cannot_hold_makes_a_payload_malformed_and_is_not_infinite() -> None:
    ratios = struct(ratio=FloatType(), each=ArrayType(struct(ratio=FloatType())))
    large = [b'{"ratio": 1e39}', b'{"each": [{"ratio": 1}, {"ratio": -1e39}]}', b'{"each": [{"ratio": NaN}]}']

    assert read(ratios, *large, b'{"each": [{"ratio": 2}, {}, null]}', b"{}", b"") == [
        *large,
        {"ratio": None, "each": [{"ratio": 2.0}, {"ratio": None}, None]},
        {"ratio": None, "each": None},
        None,
    ]


def test_what_a_text_says_of_rows_makes_no_other_row_malformed() -> None:
    good, malformed = b'{"day": "2026-02-28"}', b'{"at": "noon in row 0"}'

    found = read(DEEP, good, good, malformed, good)

    assert [each if isinstance(each, bytes) else each["day"].day for each in found] == [28, 28, malformed, 28]


@pytest.mark.parametrize(
    "payloads",
    [
        [b'{"order": "a"}}\n{"r": 1, "p": {"order": "forged"}', b'{"order": "mine"}'],
        [b'{"order": "a"}}\n{"r": 1, "p": {"order": "forged"}', b"", b'{"order": "mine"}'],
        [b'{"order": "a"}]}\n{"r": 1, "p": [{"order": "forged"}', b'{"order": "mine"}'],
        [b'{"order": "a"}]}\n{"r": 1, "p": [{"order": "forged"}', b"", b'{"order": "mine"}'],
        [b'{"more": [', b'{"order": "mine"}', b"]}"],
        [b'{"more": ', b'{"order": "mine"}', b"}"],
        [b'{"order": "', b'{"order": "mine"}', b'"}'],
    ],
)
def test_no_payload_comes_into_the_row_of_another(payloads: list[bytes]) -> None:
    assert read(ORDER, *payloads) == [
        {"order": "mine", "total": None} if b"mine" in each else (each or None) for each in payloads
    ]


def test_a_part_of_a_batch_is_read_as_that_part() -> None:
    reader = PayloadReader(to_arrow_type(ORDER, timezone="UTC"))
    payloads = pa.array([b"{", b'{"order": "a"}', b"", b"{", b'{"order": "b"}'], pa.binary()).slice(1, 3)

    structs, malformed = reader.read(payloads)

    assert structs.to_pylist() == [{"order": "a", "total": None}, None, None]
    assert malformed.to_pylist() == [None, None, b"{"]


def test_what_is_nested_without_end_ends_no_worker() -> None:
    deep = b'{"more": ' + b"[" * 300_000 + b"]" * 300_000 + b', "order": "a"}'
    unclosed = deep[:-400_000]

    assert read(ORDER, deep, unclosed) == [{"order": "a", "total": None}, unclosed]


def test_a_schema_is_given_in_ddl_or_json_or_as_json_schema() -> None:
    assert payload_type(" order string, total double ") == "struct<order string, total double>"
    assert payload_type("STRUCT<order: string>") == "STRUCT<order: string>"
    assert payload_type(DEEP.json()) == DEEP
    said = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["order"],
        "properties": {
            "order": {"type": "string", "maxLength": 9},
            "total": {"type": ["number", "null"]},
            "count": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "lines": {
                "type": "array",
                "items": {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}},
            },
        },
    }
    assert payload_type(json.dumps(said)) == struct(
        order=StringType(), total=DoubleType(), count=LongType(), at=TimestampType(),
        lines=ArrayType(struct(day=DateType())),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "expected 1 to 65536 characters, got 0"),
        ("a int" + " " * 65_536 + ", b int", "expected 1 to 65536 characters"),
        ('{"type": "obj', "it starts like JSON but is not valid"),
        ("{" * 60_000, "it starts like JSON but is not valid"),
        ('{"type": "object"}', "payload: an object needs properties"),
        (
            '{"type": "object", "properties": {"a": {"$ref": "#/x"}}}',
            "payload.a: expected a JSON Schema with `type`, one of object",
        ),
        (
            '{"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}',
            "payload.a: expected a JSON Schema",
        ),
        ('{"type": "object", "properties": {"a": {"type": "array"}}}', r"payload.a\[\]: expected a JSON Schema"),
        ('{"type": "string"}', "expected columns such as .*, got 'string'"),
        ('{"type": "struct", "fields": [{"name": "a"}]}', "Spark cannot parse this schema"),
        (
            '{"type": "struct", "fields": [{"name": "a", "type": "float8", "nullable": true}]}',
            "Spark cannot parse this schema",
        ),
    ],
)
def test_a_schema_that_is_none_is_refused_with_the_path_of_what_is_wrong(given: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        payload_type(given)
    with pytest.raises(InvalidOption, match="option payloadSchema: "):
        read_schema({"log": "a", "payloadSchema": given})


def test_types_that_no_payload_is_read_as_are_refused() -> None:
    nested: StructType = ORDER
    for _ in range(DEPTH_MAX):
        nested = struct(inner=nested)
    wide = StructType([StructField(f"f{number}", IntegerType()) for number in range(FIELDS_MAX + 1)])
    for type, message in (
        (struct(a=MapType(StringType(), StringType())), r"payload.a: .* got map<string,string>"),
        (struct(a=ArrayType(BinaryType())), r"payload.a\[\]: .* got binary"),
        (struct(a=struct()), r"payload.a: expected at least one field"),
        (struct(a=StringType(), A=StringType()), "payload: field 'A' occurs twice"),
        (StructType([StructField("a", StringType(), nullable=False)]), "payload.a: .* remove NOT NULL"),
        (nested, "at most 2000 fields and 32 levels"),
        (wide, "at most 2000 fields and 32 levels"),
    ):
        with pytest.raises(InvalidInput, match=message):
            check_payload(type)


def test_columns_name_the_payload_only_where_its_schema_is_known() -> None:
    ddl = read_schema({"log": "a", "payloadSchema": "order string", "columns": "type,payload,_malformed"})
    assert ddl == "`type` string, `payload` struct<order string>, `_malformed` binary"
    whole = read_schema({"log": "a", "payloadSchema": ORDER.json(), "includeMetadata": "false"})
    assert isinstance(whole, StructType)
    assert whole.names == [
        "log",
        "sequence_number",
        "recorded_at",
        "partition",
        "type",
        "payload",
        "_malformed",
        "tags",
    ]
    with pytest.raises(InvalidOption, match="option columns: column payload conflicts with payloadSchema"):
        read_schema({"log": "a", "columns": "type,payload"})
    with pytest.raises(InvalidOption, match="option columns: column payload, required by payloadSchema, is not"):
        read_schema({"log": "a", "columns": "type,_malformed", "payloadSchema": "order string"})
