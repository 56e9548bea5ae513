"""The conformance page of management names tests that exist, and has rows for every part of both proposals."""

from __future__ import annotations

import re

from tests.proofs import faults, page, rows

PAGE = page("management")
NODE_OPERATIONS = ("QUERY", "GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS", "GET-MGMT-NODES")


def test_every_row_names_tests_that_exist() -> None:
    assert len(rows(PAGE)) > 60
    assert faults(rows(PAGE)) == []


def test_every_operation_has_rows() -> None:
    rules = " ".join(row.split("|")[1] for row in rows(PAGE))
    for operation in (*NODE_OPERATIONS, "CREATE", "READ", "UPDATE", "DELETE", "GET-EVENTS", "REGISTER"):
        assert operation in rules, operation


def test_every_part_has_rows() -> None:
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert len(parts) == 5
    assert all(part.count("\n| ") > 5 for part in parts)
