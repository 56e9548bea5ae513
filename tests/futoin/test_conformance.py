"""The conformance page names tests that exist."""

from __future__ import annotations

from tests.proofs import faults, page, rows


def test_every_row_names_tests_that_exist() -> None:
    found = rows(page("futoin"))
    assert len(found) > 60
    assert faults(found) == []
