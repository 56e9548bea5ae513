"""The conformance page of event streams names tests that exist, and has a row for each rule of the draft."""

from __future__ import annotations

import re

from tests.proofs import faults, page, rows

PAGE = page("amqp-event-streams")


def test_every_row_names_tests_that_exist():
    assert len(rows(PAGE)) > 75
    assert faults(rows(PAGE)) == []


def test_every_section_of_the_draft_with_rules_has_rows():
    named = set(re.findall(r"\b\d(?:\.\d)*\b", " ".join(row.split("|")[1] for row in rows(PAGE))))
    assert named >= {
        "1", "3.1", "3.2", "4", "4.1", "4.2", "4.3", "4.4", "4.5", "4.5.1", "4.5.2", "4.6.1", "4.6.2", "4.6.3", "4.6.4",
        "4.6.5", "4.6.6", "4.6.7", "5", "5.1", "5.1.1", "5.1.2", "5.2", "6", "8.1", "8.2", "8.3",
    }  # fmt: skip
