"""The tables of types and attributes in docs/reference/management.md, from where entities are declared.

`python -m tests.docs.entities` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.management.entities import COMMON, CREATE, DELETE, READ, TYPES, UPDATE, Attribute, EntityType

from .documents import ROOT, table, with_table

PAGE = ROOT / "docs" / "reference" / "management.md"
OPERATIONS = (CREATE, READ, UPDATE, DELETE)


def written(page: str) -> str:
    """The page with the tables that the declarations make."""
    page = with_table(
        page, "operations", table(("type", "entities", "operations", "rights"), map(_type, TYPES.values()))
    )
    page = with_table(page, "common", _attributes(COMMON))
    for type in TYPES.values():
        if type.own:
            page = with_table(page, type.name, _attributes(type.own))
    return page


def _type(type: EntityType) -> tuple[str, ...]:
    operations = ", ".join(operation for operation in OPERATIONS if operation in type.operations)
    return f"`{type.name}`", type.about, operations, type.rights


def _attributes(attributes: tuple[Attribute, ...]) -> Iterator[str]:
    return table(("attribute", "meaning"), map(_cells, attributes))


def _cells(attribute: Attribute) -> tuple[str, str]:
    """Its name, kind and what may be given; what it means."""
    given = {"C": attribute.is_initial, "U": attribute.is_changeable, "null": attribute.is_removable}
    named = ", ".join([f"`{attribute.name}` {attribute.kind}", *(mark for mark, may_be in given.items() if may_be)])
    return named, f"{attribute.meaning}{'; write-only' if attribute.is_secret else ''}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
