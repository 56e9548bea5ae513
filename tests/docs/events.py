"""The types of notifications in docs/reference/events.md, from the catalog.

`python -m tests.docs.events` writes them. A comment in a section of the page names its groups of types:
`io.headwater.home.away` is of the group `home`. The group `shared` is no group of types: its section describes the
attributes that types of several sections have. Those that several types of one section have are described at its start.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from textwrap import fill

from headwater.management import CATALOG, LOST, Attribute, Entry

from .documents import ROOT

PAGE = ROOT / "docs" / "reference" / "events.md"
COMMON = ("eventType", "time", LOST)
"""Attributes of every type, which the page describes first."""
SHARED = "shared"

_MARKER = re.compile(r"<!-- ([a-z, ]+): written by python -m tests\.docs\.events -->\n")


def written(page: str) -> str:
    """The page with the types that the catalog has."""
    sections = page.split("\n## ")
    groups = [_types(marker[1].split(", ")) for each in sections if (marker := _MARKER.search(each))]
    shared = _shared(groups)
    return "\n## ".join(_section(each, shared) for each in sections)


def _types(groups: Container[str]) -> list[Entry]:
    """The types of some groups."""
    return [entry for entry in CATALOG.values() if entry.type.value.split(".")[2] in groups]


def _shared(sections: Iterable[Sequence[Entry]]) -> list[Attribute]:
    """The attributes of several sections, the most frequent one of each name."""
    counts = Counter(
        attribute for entries in sections for attribute in {each: 0 for entry in entries for each in _attributes(entry)}
    )
    found: dict[str, Attribute] = {}
    for attribute, count in counts.most_common():
        if count > 1:
            found.setdefault(attribute.name, attribute)
    return list(found.values())


def _section(text: str, shared: Sequence[Attribute]) -> str:
    """A section with what follows its comment; one without a comment stays."""
    if not (marker := _MARKER.search(text)):
        return text
    lines = [*map(_item, shared), ""] if marker[1] == SHARED else _described(_types(marker[1].split(", ")), shared)
    return "\n".join([text[: marker.end()], *lines])


def _described(entries: Sequence[Entry], shared: Sequence[Attribute]) -> Iterator[str]:
    """The lines of a section: the attributes of all or several of its types, then each type."""
    counts = Counter(attribute for entry in entries for attribute in _attributes(entry))
    of_all = [attribute for attribute, count in counts.items() if count == len(entries) > 1]
    if of_all:
        yield from (_filled(f"All have {_names(of_all)}."), "")
    described = [each for each, count in counts.items() if count > 1 and each not in shared]
    if described:
        yield from (*map(_item, described), "")
    for entry in entries:
        more = [each for each in _attributes(entry) if each not in of_all and (each in described or each in shared)]
        own = [each for each in _attributes(entry) if each not in described and each not in shared]
        about = f"{entry.when} Scope: {entry.scope.value}."
        yield from (f"### `{entry.type.value}`", "", _filled(f"{about} With {_names(more)}." if more else about), "")
        if own:
            yield from (*map(_item, own), "")


def _names(attributes: Iterable[Attribute]) -> str:
    return ", ".join(f"`{attribute.name}`" for attribute in attributes)


def _filled(text: str) -> str:
    return fill(text, 120, break_on_hyphens=False)


def _attributes(entry: Entry) -> list[Attribute]:
    return [attribute for attribute in entry.attributes if attribute.name not in COMMON]


def _item(attribute: Attribute) -> str:
    optional = "" if attribute.is_required else ", optional"
    return f"- `{attribute.name}` {attribute.kind.value}{optional}: {attribute.meaning}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
