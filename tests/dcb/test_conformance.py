"""The conformance page names tests that exist."""

from __future__ import annotations

from tests.proofs import faults, page, rows


def test_every_row_names_tests_that_exist():
    found = rows(page("dcb"))
    assert len(found) > 40
    assert faults(found) == []
