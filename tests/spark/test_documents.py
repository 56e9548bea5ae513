"""docs/reference/spark.md has every option with its default, and the schema."""

from __future__ import annotations

import re

from headwater.spark.clients import address_of
from headwater.spark.columns.schema import EVENT_SCHEMA
from headwater.spark.options import DEFAULT_URL
from headwater.spark.source.options import READING, SPLIT_BYTES, TRIGGER_DELAY_MS, ReadOptions
from tests.docs.documents import ROOT, table_after

PAGE = ROOT / "docs" / "reference" / "spark.md"


def documented() -> dict[str, str]:
    """Each option and its default, from all tables of options."""
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| .*\|$", text.partition("## Options")[2], re.MULTILINE)
    return {name: default.strip("`") for name, default in rows}


def test_every_option_is_documented_and_none_that_is_not_there() -> None:
    assert sorted(documented()) == sorted(option.name for option in READING)


def test_documented_defaults_are_those_of_the_code() -> None:
    address, options, said = address_of({}), ReadOptions(address_of({}), ("a",), ()), documented()

    assert said["url"] == f"variable `HEADWATER_FLIGHT_URL`, otherwise `{DEFAULT_URL}"
    assert said["timeout"] == f"{address.timeout_s:.0f}s"
    assert said["retries"] == str(address.retries)
    assert (said["splitBytes"], said["maxTriggerDelay"]) == (f"{SPLIT_BYTES >> 20}m", f"{TRIGGER_DELAY_MS // 60_000}m")
    assert said["startingPosition"] == options.start.place
    assert said["endingPosition"] == options.end.place
    assert said["minPartitions"] == str(options.splits_min)
    assert said["failOnDataLoss"] == str(options.fails_on_loss).lower()
    assert said["filterPushdown"] == str(options.pushes_filters).lower()


def test_the_schema_is_documented_column_by_column() -> None:
    rows = [
        (name.strip("`"), kind.replace("&lt;", "<").replace("&gt;", ">"))
        for name, kind, _ in table_after(PAGE, "columns")
    ]

    assert rows == [(field.name, field.dataType.simpleString()) for field in EVENT_SCHEMA.fields]
