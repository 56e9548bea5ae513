"""What a composite type makes of the fields that it declares."""

from __future__ import annotations

import pytest

from headwater.amqp.protocol.composite import Composite
from headwater.amqp.protocol.performatives import Accepted, Released
from tests.amqp.composites import NESTED, PERFORMATIVES, SASL_FRAMES, SECTIONS

COMPOSITES = (*PERFORMATIVES, *SASL_FRAMES, *NESTED, *SECTIONS)
MANDATORY = {
    "open": ["container_id"],
    "begin": ["next_outgoing_id", "incoming_window", "outgoing_window"],
    "attach": ["name", "handle", "role"],
    "flow": ["incoming_window", "next_outgoing_id", "outgoing_window"],
    "transfer": ["handle"],
    "disposition": ["role", "first"],
    "detach": ["handle"],
    "sasl-mechanisms": ["sasl_server_mechanisms"],
    "sasl-init": ["mechanism"],
    "sasl-challenge": ["challenge"],
    "sasl-response": ["response"],
    "sasl-outcome": ["code"],
    "received": ["section_number", "section_offset"],
    "declared": ["txn_id"],
    "transactional-state": ["txn_id"],
    "error": ["condition"],
}
"""By type, as the standard has them; the other types have none."""


def test_fields_are_mandatory_where_the_standard_says_so() -> None:
    found = {type.NAME: [field.name for field in type.FIELDS if field.is_mandatory] for type in COMPOSITES}
    assert {name: fields for name, fields in found.items() if fields} == MANDATORY


@pytest.mark.parametrize("type", COMPOSITES)
def test_a_composite_takes_its_fields_by_name_and_in_order(type: type[Composite]) -> None:
    names = [field.name for field in type.FIELDS]
    values = [object() for _ in names]
    in_order, by_name = type(*values), type(**dict(zip(reversed(names), reversed(values), strict=True)))
    assert [getattr(in_order, name) for name in names] == [getattr(by_name, name) for name in names] == values
    assert in_order == by_name


@pytest.mark.parametrize("type", COMPOSITES)
def test_a_composite_has_no_other_attributes(type: type[Composite]) -> None:
    made = type(*[None] * len(type.FIELDS))
    with pytest.raises(AttributeError):
        made.unknown = 1  # type: ignore[attr-defined]


def test_composites_are_equal_if_type_and_fields_are() -> None:
    for type in COMPOSITES:
        for index in range(len(type.FIELDS)):
            values = [None] * len(type.FIELDS)
            assert type(*values) != type(*values[:index], 1, *values[index + 1 :]), type.FIELDS[index].name
    assert Accepted() == Accepted() != Released()
