"""docs/reference/mapping.md says the same as the tables of these tests."""

from __future__ import annotations

import pytest

from tests.docs.documents import ROOT, table_after

from .mapping import READER_ROWS, WRITER_ROWS

PAGE = ROOT / "docs" / "reference" / "mapping.md"


@pytest.mark.parametrize(
    ("marker", "rows"), [("in", WRITER_ROWS), ("out", READER_ROWS)], ids=["on the way in", "on the way out"]
)
def test_page_has_every_choice_and_no_other(marker, rows):
    assert [cells[0] for cells in table_after(PAGE, marker)] == [row.title for row in rows]
