"""docs/reference/management.md says what the code has: types, operations, attributes, statuses."""

from __future__ import annotations

from headwater.management.entities import CREATE, MANAGEMENT_NODE, TYPES
from headwater.management.statuses import Status
from tests.docs.documents import table_after
from tests.docs.entities import PAGE, written


def test_tables_of_types_and_attributes_are_made_from_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run python -m tests.docs.entities"


def test_operations_of_the_node_are_those_of_the_code() -> None:
    rows = [
        [name, ", ".join(f"`{argument}`" for argument in arguments)]
        for name, arguments in MANAGEMENT_NODE.operations.items()
    ]
    assert [row[:2] for row in table_after(PAGE, "node")] == rows


def test_statuses_are_those_of_the_code() -> None:
    assert [row[0] for row in table_after(PAGE, "statuses")] == [str(status.value) for status in Status]


def test_every_type_of_the_code_has_names_of_its_own_for_attributes() -> None:
    for type in TYPES.values():
        names = [each.name for each in type.attributes]
        assert len(set(names)) == len(names), type.name
        assert all(name[0].islower() and name.isalnum() for name in names)
        assert CREATE not in type.operations or not any(each.is_changeable and not each.is_initial for each in type.own)
