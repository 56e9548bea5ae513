"""Delivery states (part 3, section 3.4), their transactional forms (part 4, section 4.5), and what an error is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .codec import encode
from .composite import Composite, Group, kind_of
from .encoding import write_binary, write_map
from .fields import (
    ANNOTATIONS,
    BINARY,
    BOOLEAN,
    DELIVERY_MAP,
    STRING,
    SYMBOL,
    SYMBOL_MAP,
    UINT,
    ULONG,
    Field,
    Kind,
    mandatory,
    names,
)
from .types import Described


class ErrorCondition(Composite):
    """The details of an error (part 2, section 2.8.14)."""

    NAME = "error"
    CODE = 0x1D
    FIELDS = (mandatory("condition", SYMBOL), Field("description", STRING), Field("info", SYMBOL_MAP))
    __slots__ = names(FIELDS)

    def __init__(self, condition: str, description: str | None = None, info: Mapping[Any, Any] | None = None) -> None:
        self.condition = condition
        self.description = description
        self.info = info


ERROR: Final = kind_of(Group("error", [ErrorCondition]))


class Received(Composite):
    """So much of the delivery was received (3.4.1)."""

    NAME = "received"
    CODE = 0x23
    FIELDS = (mandatory("section_number", UINT), mandatory("section_offset", ULONG))
    __slots__ = names(FIELDS)

    def __init__(self, section_number: int, section_offset: int) -> None:
        self.section_number = section_number
        self.section_offset = section_offset


class Accepted(Composite):
    """The delivery was processed (3.4.2)."""

    __slots__ = ()
    NAME = "accepted"
    CODE = 0x24
    FIELDS = ()


class Rejected(Composite):
    """The delivery is invalid (3.4.3)."""

    NAME = "rejected"
    CODE = 0x25
    FIELDS = (Field("error", ERROR),)
    __slots__ = names(FIELDS)

    def __init__(self, error: ErrorCondition | Described | None = None) -> None:
        self.error = error


class Released(Composite):
    """The delivery was not, and will not be, processed (3.4.4)."""

    __slots__ = ()
    NAME = "released"
    CODE = 0x26
    FIELDS = ()


class Modified(Composite):
    """The delivery was not processed, and is changed before it is delivered again (3.4.5)."""

    NAME = "modified"
    CODE = 0x27
    FIELDS = (
        Field("delivery_failed", BOOLEAN, False),
        Field("undeliverable_here", BOOLEAN, False),
        Field("message_annotations", ANNOTATIONS),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        message_annotations: Mapping[Any, Any] | None = None,
    ) -> None:
        self.delivery_failed = delivery_failed
        self.undeliverable_here = undeliverable_here
        self.message_annotations = message_annotations


Outcome = Accepted | Rejected | Released | Modified
OUTCOME: Final = kind_of(Group("outcome", [Accepted, Rejected, Released, Modified]))


class Declared(Composite):
    """The outcome of a transaction's declaration (part 4, section 4.5.5)."""

    NAME = "declared"
    CODE = 0x33
    FIELDS = (mandatory("txn_id", BINARY),)
    __slots__ = names(FIELDS)

    def __init__(self, txn_id: bytes) -> None:
        self.txn_id = txn_id


class TransactionalState(Composite):
    """The state of a delivery within a transaction (part 4, section 4.5.8)."""

    NAME = "transactional-state"
    CODE = 0x34
    FIELDS = (mandatory("txn_id", BINARY), Field("outcome", OUTCOME))
    __slots__ = names(FIELDS)

    def __init__(self, txn_id: bytes, outcome: Outcome | Described | None = None) -> None:
        self.txn_id = txn_id
        self.outcome = outcome


DeliveryState = Received | Accepted | Rejected | Released | Modified | Declared | TransactionalState
DELIVERY_STATE: Final = kind_of(
    Group("delivery state", [Received, Accepted, Rejected, Released, Modified, Declared, TransactionalState])
)


def _read_unsettled(buffer: bytes, at: int) -> tuple[dict[bytes, Any], int]:
    entries, after = DELIVERY_MAP.read(buffer, at)
    return {tag: _state_of(value) for tag, value in entries.items()}, after


def _state_of(value: object) -> Any:
    """A map is read as what any map is: of its values, described ones are states."""
    return DELIVERY_STATE.read(encode(value), 0)[0] if isinstance(value, Described) else value


def _write_unsettled(out: bytearray, value: Mapping[bytes, Any]) -> None:
    content = bytearray()
    for tag, state in value.items():
        write_binary(content, tag)
        if state is None:
            content.append(0x40)
        else:
            DELIVERY_STATE.write(content, state)
    write_map(out, len(value), content)


UNSETTLED: Final = Kind("map of delivery states", _read_unsettled, _write_unsettled)
"""What a link has unsettled (2.7.3): by delivery tag, the state, or None."""
