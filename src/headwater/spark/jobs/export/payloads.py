"""JSON payloads as columns: infers their schema, or uses the given one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ....core.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

PREFIX = "payload_"


def payload_schema(ddl: str) -> StructType:
    """The schema given by a user, such as `total double, lines array<string>`. Raises InvalidInput."""
    from pyspark.sql.types import StructType

    try:
        return _checked(StructType.fromDDL(ddl))
    except InvalidInput:
        raise
    except Exception as error:
        problem = f"expected columns such as `total double, lines array<string>`, got {ddl!r}"
        raise InvalidInput(problem, "--payload-schema") from error


def found_schema(events: DataFrame) -> StructType:
    """The common schema of all payloads; fields of several types become text. Raises InvalidInput."""
    from pyspark.sql.types import StructType

    row = events.selectExpr("schema_of_variant_agg(try_parse_json(cast(data as string)))").first()
    said = row[0] if row is not None else None
    if not said or not said.startswith("OBJECT<") or said == "OBJECT<>":
        raise InvalidInput(
            "the payloads are not JSON objects with a common schema; specify the columns with --payload-schema",
            "--flatten",
        )
    return _checked(StructType.fromDDL(_as_ddl(said)[len("STRUCT<") : -1]))


def _as_ddl(variant: str) -> str:
    """The schema of a variant as DDL; names in backticks are kept."""
    parts = variant.split("`")
    for at in range(0, len(parts), 2):
        parts[at] = parts[at].replace("OBJECT<>", "STRING").replace("OBJECT<", "STRUCT<")
        parts[at] = re.sub(r"\b(?:VOID|VARIANT)\b", "STRING", parts[at])
    return "`".join(parts)


def _checked(schema: DataType) -> StructType:
    from pyspark.sql.types import StructType

    if not isinstance(schema, StructType):
        raise InvalidInput("expected column names with their types", "--payload-schema")
    seen: dict[str, str] = {}
    for name in schema.fieldNames():
        if (other := seen.setdefault(name.lower(), name)) != name:
            problem = f"{other!r} and {name!r} differ only in case; specify the columns with --payload-schema"
            raise InvalidInput(problem, "--flatten")
    return schema


def with_payload_columns(events: DataFrame, schema: StructType, *, is_flat: bool) -> DataFrame:
    """The frame with a column `payload_NAME` for each field, null if missing. `flat`: nested fields are JSON."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    payload = F.from_json(F.col("data").cast("string"), schema)
    events = events.withColumn("_payload", payload)
    for field in schema.fields:
        column = F.col("_payload").getField(field.name)
        if is_flat and isinstance(field.dataType, StructType | ArrayType | MapType):
            column = F.to_json(column)
        events = events.withColumn(PREFIX + field.name, column)
    return events.drop("_payload")
