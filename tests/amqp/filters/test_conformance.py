"""The conformance page of the source filters names tests that exist, and every test is named there."""

from __future__ import annotations

from tests.proofs import PROOF, faults, names_of_tests, page, rows

from headwater.amqp.filters import FILTERS

PAGE = page("amqp-filters")


def test_every_row_names_tests_that_exist():
    found = rows(PAGE.partition("## ")[2])
    assert len(found) > 80
    assert faults(found) == []


def test_every_test_of_a_language_is_named():
    named = set(PROOF.findall(PAGE))
    for module in ("event_streams", "offsets", "properties", "selector", "soundness", "source", "sql", "totality"):
        path = f"tests/amqp/filters/test_{module}.py"
        assert {(path, name) for name in names_of_tests(path)} <= named


def test_every_filter_is_named():
    assert all(f"`{name}`" in PAGE for name in FILTERS)
