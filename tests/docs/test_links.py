"""Every link between the documents leads somewhere."""

from __future__ import annotations

import pytest

from .documents import DOCUMENTS, ROOT, anchors, name_of, relative_links


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_relative_link_resolves(document):
    for link in relative_links(document):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{name_of(document)} links to {link}, which is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(document)} links to {link}; {path} has no such heading"


def test_index_leads_to_every_document():
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in relative_links(index)}
    missing = [
        name_of(each) for each in DOCUMENTS if each.is_relative_to(ROOT / "docs") and each not in linked | {index}
    ]
    assert not missing
