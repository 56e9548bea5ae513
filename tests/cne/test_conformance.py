"""The conformance page names tests that exist."""

from __future__ import annotations

from tests.proofs import faults, page, rows


def test_every_row_names_tests_that_exist():
    found = rows(page("cne"))
    assert len(found) > 50
    assert faults(found) == []
