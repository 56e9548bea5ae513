"""Settings and names of logs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.core import LogSettings, check_log_name
from headwater.core.errors import InvalidLogName, InvalidSettings

from ..builders import refusal


@pytest.mark.parametrize("name", ["a", "0", "orders", "A.b-c_9", "a..", "x" * 64])
def test_a_name_of_the_right_form_is_taken(name: str) -> None:
    assert check_log_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "_a", "$system", "a/b", "a b", "ž", "a\n", "x" * 65, None, 5])
def test_another_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidLogName, match="does not match") as caught:
        check_log_name(name)
    assert caught.value.where == "name"


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("partitions", [1, 1024], [0, 1025, True, 1.0, "1", None]),
        ("partition_by", ["", "source", "subject", "tag:a", "tag:tenant.id", "tag:" + "k" * 1100],
         ["Source", "tag:", "tag", "tag:a:b", "tag:a\n", "tag:" + "k" * 1101, "source:", None, 1]),
        ("retention_ms", [None, 1, 10**18], [0, -1, True, 1.5, "1", 10**18 + 1]),
        ("retention_bytes", [None, 1, 10**18], [0, -1, False, 10**18 + 1]),
        ("retention_until_acknowledged", [True, False], [1, None, "true"]),
        ("event_bytes_max", [1024, 64 * 2**20], [1023, 64 * 2**20 + 1, None]),
        ("id_horizon", [None, 1, 10**18], [0, -5]),
        ("keeps_history", [True, False], [0, None]),
        ("consumer_age_ms_max", [None, 1], [0, "1"]),
        ("default_start", ["latest", "earliest"], ["", "first", "Latest", None, 0]),
    ],
)  # fmt: skip
def test_each_setting_has_its_range(name: str, allowed: list[Any], refused: list[Any]) -> None:
    for value in allowed:
        assert getattr(replace(LogSettings(), **{name: value}), name) == value
    for value in refused:
        with pytest.raises(InvalidSettings) as caught:
            replace(LogSettings(), **{name: value})
        assert caught.value.where == name
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("partitions", 2), ("partition_by", "source")])
def test_what_is_fixed_at_creation_cannot_change(name: str, value: Any) -> None:
    old = LogSettings()
    problem = f"cannot change after creation: expected {getattr(old, name)!r}, got {value!r}"
    with refusal(InvalidSettings(problem, name)):
        old.check_change(replace(old, **{name: value}))


def test_the_rest_may_change() -> None:
    new = LogSettings(
        retention_ms=1,
        retention_bytes=1,
        retention_until_acknowledged=True,
        event_bytes_max=2048,
        id_horizon=5,
        keeps_history=False,
        consumer_age_ms_max=7,
        default_start="earliest",
    )
    LogSettings().check_change(new)
    new.check_change(LogSettings())
