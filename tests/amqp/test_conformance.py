"""The conformance page of AMQP itself names tests that exist, and has rows for each part of the standard."""

from __future__ import annotations

import re

from tests.proofs import faults, page, rows

PAGE = page("amqp")


def test_every_row_names_tests_that_exist() -> None:
    assert len(rows(PAGE)) > 50
    assert faults(rows(PAGE)) == []


def test_every_part_of_the_standard_has_rows() -> None:
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert {number for part in parts for number in re.findall(r"part (\d)", part.splitlines()[0])} == set("12345")
    assert all(part.count("\n| ") > 2 for part in parts)
