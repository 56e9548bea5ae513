"""Pages of conformance, of all protocols: each table says where a MUST is not kept."""

from __future__ import annotations

from collections.abc import Iterator

from ..proofs import DEVIATION, PROOF, ROOT, cells, page, rows
from .documents import check_none, line_of

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


def test_every_table_of_proofs_has_the_column() -> None:
    check_none(fault for name in PAGES for fault in _of_heads(name))


def _of_heads(name: str) -> Iterator[str]:
    heads = [(line, each) for line, each in enumerate(page(name).splitlines(), start=1) if "| Proof |" in each]
    if not heads:
        yield f"{_path(name)}: has no table of proofs"
    if "The last column" not in page(name).partition("\n## ")[0].replace("\n", " "):
        yield f"{_path(name)}: does not say what the last column is"
    for line, head in heads:
        if cells(head)[-2:] != ["Proof", DEVIATION]:
            yield f"{_path(name)}:{line}: the last columns are not Proof and {DEVIATION}"


def test_a_row_has_three_cells_and_a_reason_where_it_deviates() -> None:
    check_none(fault for name in PAGES for fault in _of_rows(name))


def _of_rows(name: str) -> Iterator[str]:
    text = page(name)
    for row in rows(text.partition("\n## ")[2]):
        rule, _, proof, *deviation = cells(row)
        faults = {
            "it has no rule": not rule and name != "cne",
            "it names no proof": not PROOF.search(proof),
            "it has more than a reason, or an empty one": len(deviation) > 1 or not all(deviation),
        }
        yield from (f"{_path(name)}:{line_of(text, text.index(row))}: {fault}" for fault in faults if faults[fault])


def test_known_deviations_are_marked_as_such() -> None:
    deviating = {name: [cells(row)[0] for row in rows(page(name)) if len(cells(row)) == 4] for name in PAGES}
    check_none(
        f"{_path(name)}: no row that begins with {rule!r} deviates"
        for name, rules in EXPECTED.items()
        for rule in rules
        if not any(each.startswith(rule) for each in deviating[name])
    )
    check_none(f"{_path(name)}: (**deviation**)" for name in PAGES if "(**deviation**)" in page(name))


def _path(name: str) -> str:
    return f"docs/conformance/{name}.md"
