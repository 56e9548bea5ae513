"""Every link between the documents leads somewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .documents import DOCUMENTS, ROOT, anchors, check_none, name_of, numbered_links, relative_links


def dead_links(document: Path) -> Iterator[str]:
    """The links of a document that lead to no file or to no heading."""
    for line, link in numbered_links(document):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists():
            yield f"{document}:{line}: {link} is not there"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{document}:{line}: {link}: {target.name} has no such heading"


def test_every_relative_link_resolves() -> None:
    check_none(fault.removeprefix(f"{ROOT}/") for document in DOCUMENTS for fault in dead_links(document))


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading\n\n[itself](#a-heading) [it](page.md#a-heading) [web](https://x/y)\n"
        "[file](gone.md)\n\n```sh\n[no](link.md)\n```\n[heading](page.md#gone) [here](#gone)\n"
    )
    assert list(dead_links(page)) == [
        f"{page}:4: gone.md is not there",
        f"{page}:9: page.md#gone: page.md has no such heading",
        f"{page}:9: #gone: page.md has no such heading",
    ]


def test_index_leads_to_every_document_and_its_list_of_records_to_every_record() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in (index, index.parent / "decisions" / "index.md")
        for link in relative_links(page)
    }
    of_users = [each for each in DOCUMENTS if each.is_relative_to(ROOT / "docs")]
    check_none(f"{name_of(each)}: no index has a link to it" for each in of_users if each not in linked | {index})
