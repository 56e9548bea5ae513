"""The types of notifications in docs/reference/events.md, from the catalog.

`python -m tests.docs.events` writes them. A comment in a section of the page names its groups of types:
`io.headwater.home.away` is of the group `home`. An attribute that several types of a section have is described once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import fill

from headwater.management import CATALOG, LOST, Attribute, Entry

from .documents import ROOT, table

PAGE = ROOT / "docs" / "reference" / "events.md"
COMMON = ("eventType", "time", LOST)
"""Attributes of every type, which the page describes first."""
HEAD = ("attribute", "meaning")

_MARKER = re.compile(r"<!-- ([a-z, ]+): written by python -m tests\.docs\.events -->\n")


def written(page: str) -> str:
    """The page with the types that the catalog has."""
    return "\n## ".join(map(_section, page.split("\n## ")))


def _section(text: str) -> str:
    """A section with its types, after its comment; one without a comment stays."""
    if not (marker := _MARKER.search(text)):
        return text
    groups = marker[1].split(", ")
    entries = [entry for entry in CATALOG.values() if entry.type.value.split(".")[2] in groups]
    return "\n".join([text[: marker.end()], *_types(entries)])


def _types(entries: Sequence[Entry]) -> Iterator[str]:
    """The lines of a section: the attributes that are shared in it, then each type."""
    counts = Counter(attribute for entry in entries for attribute in _attributes(entry))
    shared = [attribute for attribute, count in counts.items() if count > 1]
    if shared:
        yield from table(HEAD, map(_cells, shared))
        yield ""
    for entry in entries:
        own = [attribute for attribute in _attributes(entry) if attribute not in shared]
        yield from (f"### `{entry.type.value}`", "", fill(_about(entry, bool(shared)), 120, break_on_hyphens=False), "")
        if own:
            yield from table(HEAD, map(_cells, own))
            yield ""


def _about(entry: Entry, with_attributes: bool) -> str:
    """When it is emitted and who sees it; the names of its attributes, if only some are described below."""
    names = ", ".join(f"`{attribute.name}`" for attribute in _attributes(entry))
    about = f"{entry.when} Scope: {entry.scope.value}."
    return f"{about} Attributes: {names}." if with_attributes and names else about


def _attributes(entry: Entry) -> list[Attribute]:
    return [attribute for attribute in entry.attributes if attribute.name not in COMMON]


def _cells(attribute: Attribute) -> tuple[str, str]:
    optional = "" if attribute.is_required else ", optional"
    return f"`{attribute.name}` {attribute.kind.value}{optional}", attribute.meaning


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
