"""docs/reference/management.md says what the code has: types, operations, attributes, statuses."""

from __future__ import annotations

from headwater.management.entities import COMMON, CREATE, DELETE, MANAGEMENT_NODE, READ, TYPES, UPDATE, EntityType
from headwater.management.statuses import Status
from tests.docs.documents import ROOT, table_after, text_of
from tests.every import every

PAGE = ROOT / "docs" / "reference" / "management.md"


def test_the_table_of_types_and_operations_is_that_of_the_code() -> None:
    rows = [
        [f"`{type.name}`", type.about]
        + ["yes" if operation in type.operations else "" for operation in (CREATE, READ, UPDATE, DELETE)]
        + [type.rights]
        for type in TYPES.values()
    ]
    assert table_after(PAGE, "operations") == rows


def test_operations_of_the_node_are_those_of_the_code() -> None:
    rows = [
        [name, ", ".join(f"`{argument}`" for argument in arguments)]
        for name, arguments in MANAGEMENT_NODE.operations.items()
    ]
    assert [row[:2] for row in table_after(PAGE, "node")] == rows


def test_statuses_are_those_of_the_code() -> None:
    assert [row[0] for row in table_after(PAGE, "statuses")] == [str(status.value) for status in Status]


def test_common_attributes_are_those_of_the_code() -> None:
    assert table_after(PAGE, "common") == [[f"`{each.name}`", str(each.kind), each.meaning] for each in COMMON]


@every("type", [type for type in TYPES.values() if type.own], ids=lambda type: type.name)
def test_attributes_of_a_type_are_those_of_the_code(type: EntityType) -> None:
    rows = []
    for each in type.own:
        marks = {"C": each.is_initial, "U": each.is_changeable, "null": each.is_removable}
        given = ", ".join(mark for mark, is_so in marks.items() if is_so)
        told = "; write-only" if each.is_secret else ""
        kind = f"{each.kind}; {given}" if given else str(each.kind)
        rows.append(f"- `{each.name}` ({kind}): {each.meaning}{told}")
    listed = text_of(PAGE).partition(f"<!-- {type.name} -->\n")[2].partition("\n#")[0].splitlines()
    assert [line for line in listed if line.startswith("- `")] == rows


def test_every_type_of_the_code_has_names_of_its_own_for_attributes() -> None:
    for type in TYPES.values():
        names = [each.name for each in type.attributes]
        assert len(set(names)) == len(names), type.name
        assert all(name[0].islower() and name.isalnum() for name in names)
        assert CREATE not in type.operations or not any(each.is_changeable and not each.is_initial for each in type.own)
