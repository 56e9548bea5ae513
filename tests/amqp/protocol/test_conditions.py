"""Error conditions and faults."""

from __future__ import annotations

import pytest

from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError, ConnectionFault, LinkFault, SessionFault
from headwater.amqp.protocol.types import Symbol


def test_every_condition_is_a_symbol_named_as_its_constant() -> None:
    constants = {name: value for name, value in vars(conditions).items() if isinstance(value, Symbol)}
    assert constants
    for name, condition in constants.items():
        assert condition.replace("amqp:", "").replace(":", "-") == name.lower().replace("_", "-")


@pytest.mark.parametrize(
    ("fault", "scope"), [(ConnectionFault, "connection"), (SessionFault, "session"), (LinkFault, "link")]
)
def test_a_fault_says_what_ends_and_why(fault: type[AmqpError], scope: str) -> None:
    error = fault(conditions.NOT_FOUND, "there is no log 'x'", {Symbol("a"): 1})
    assert error.scope == scope
    assert (error.condition, error.description, error.info) == ("amqp:not-found", "there is no log 'x'", {"a": 1})
    assert str(error) == "amqp:not-found: there is no log 'x'"


def test_a_fault_needs_no_description() -> None:
    assert str(LinkFault(conditions.LINK_STOLEN)) == "amqp:link:stolen"
    assert LinkFault(conditions.LINK_STOLEN).info is None
