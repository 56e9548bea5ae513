"""Pages of conformance, of all protocols: each table says where a MUST is not kept."""

from __future__ import annotations

import re

import pytest

from ..proofs import DEVIATION, PROOF, ROOT, cells, page, rows

PAGES = sorted(path.stem for path in (ROOT / "docs/conformance").glob("*.md"))
EXPECTED = {
    "amqp": ("2.6.5", "2.7.5", "3.2.2", "3.5.3", "5.3.1"),
    "amqp-event-streams": ("5.2", "1, 5.2", "4.5.2"),
    "amqp-filters": ("FILTEX: an unsupported filter", "streams 5.2"),
    "cne": ("intermediaries MUST wrap",),
    "futoin": ("RFC 9110, 9.1",),
    "management": ("QUERY: without count", "what is delivered MUST be equivalent"),
}
"""Rules that are known not to be kept to the letter, by page: the beginnings of their rows."""


@pytest.mark.parametrize("name", PAGES)
def test_every_table_of_proofs_has_the_column(name: str) -> None:
    heads = [line for line in page(name).splitlines() if "| Proof |" in line]
    assert heads and all(cells(head)[-2:] == ["Proof", DEVIATION] for head in heads)
    assert "The last column" in page(name).partition("\n## ")[0].replace("\n", " ")


@pytest.mark.parametrize("name", PAGES)
def test_a_row_has_three_cells_and_a_reason_where_it_deviates(name: str) -> None:
    found = rows(page(name).partition("\n## ")[2])
    for row in found:
        rule, _, proof, *deviation = cells(row)
        assert rule or name == "cne", row
        assert PROOF.search(proof), row
        assert len(deviation) <= 1 and all(deviation), row


@pytest.mark.parametrize("name", PAGES)
def test_known_deviations_are_marked_as_such(name: str) -> None:
    deviating = [cells(row)[0] for row in rows(page(name)) if len(cells(row)) == 4]
    for rule in EXPECTED.get(name, ()):
        assert any(each.startswith(rule) for each in deviating), rule
    assert not re.search(r"\(\*\*deviation\*\*\)", page(name))
