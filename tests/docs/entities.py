"""The table of types and the lists of attributes in docs/reference/management.md, from where entities are declared.

`python -m tests.docs.entities` writes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from headwater.management.entities import COMMON, CREATE, DELETE, READ, TYPES, UPDATE, Attribute, EntityType

from .documents import ROOT, table, with_table

PAGE = ROOT / "docs" / "reference" / "management.md"
OPERATIONS = (CREATE, READ, UPDATE, DELETE)


def written(page: str) -> str:
    """The page with the tables that the declarations make."""
    page = with_table(page, "operations", table(("type", "entities", "operations"), map(_type, TYPES.values())))
    counts = Counter(_cells(attribute) for type in TYPES.values() for attribute in type.own)
    shared = [cells for cells, count in counts.items() if count > 1]
    page = with_table(page, "common", map(_item, [*map(_cells, COMMON), *shared]))
    for type in TYPES.values():
        if type.own:
            page = with_table(page, type.name, map(_item, _parts(type.own, shared)))
    return page


def _parts(attributes: tuple[Attribute, ...], shared: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The attributes of a type; those that other types have too are only named, at the end."""
    yield from (cells for each in attributes if (cells := _cells(each)) not in shared)
    if names := [f"`{each.name}`" for each in attributes if _cells(each) in shared]:
        yield ", ".join(names), "[above](#attributes)"


def _type(type: EntityType) -> tuple[str, ...]:
    operations = ", ".join(operation for operation in OPERATIONS if operation in type.operations)
    return f"`{type.name}`", type.about, operations


def _cells(attribute: Attribute) -> tuple[str, str]:
    """Its name, kind and what may be given; what it means."""
    given = {"C": attribute.is_initial, "U": attribute.is_changeable, "null": attribute.is_removable}
    named = ", ".join([f"`{attribute.name}` {attribute.kind}", *(mark for mark, may_be in given.items() if may_be)])
    return named, f"{attribute.meaning}{'; write-only' if attribute.is_secret else ''}"


def _item(cells: tuple[str, str]) -> str:
    return "- {}: {}".format(*cells)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
