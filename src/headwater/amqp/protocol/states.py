"""Delivery states (part 3, section 3.4), their transactional forms (part 4, section 4.5), and error conditions."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from . import fields
from .codec import encode
from .composite import Composite, Group, composite, kind_of
from .encoding import write_binary, write_map
from .types import Described


@composite("error", 0x1D)
class ErrorCondition(Composite):
    """The details of an error (part 2, section 2.8.14)."""

    condition: Annotated[str, fields.SYMBOL]
    description: Annotated[str | None, fields.STRING] = None
    info: Annotated[Mapping[Any, Any] | None, fields.SYMBOL_MAP] = None


ERROR: Final = kind_of(Group("error", [ErrorCondition]))


@composite("received", 0x23)
class Received(Composite):
    """Part of the delivery was received (3.4.1)."""

    section_number: Annotated[int, fields.UINT]
    section_offset: Annotated[int, fields.ULONG]


@composite("accepted", 0x24)
class Accepted(Composite):
    """The delivery was processed (3.4.2)."""


@composite("rejected", 0x25)
class Rejected(Composite):
    """The delivery is invalid (3.4.3)."""

    error: Annotated[ErrorCondition | Described | None, ERROR] = None


@composite("released", 0x26)
class Released(Composite):
    """The delivery was not, and will not be, processed (3.4.4)."""


@composite("modified", 0x27)
class Modified(Composite):
    """The delivery was not processed, and is changed before it is delivered again (3.4.5)."""

    delivery_failed: Annotated[bool, fields.BOOLEAN] = False
    undeliverable_here: Annotated[bool, fields.BOOLEAN] = False
    message_annotations: Annotated[Mapping[Any, Any] | None, fields.ANNOTATIONS] = None


Outcome = Accepted | Rejected | Released | Modified
OUTCOME: Final = kind_of(Group("outcome", [Accepted, Rejected, Released, Modified]))


@composite("declared", 0x33)
class Declared(Composite):
    """The outcome of a transaction's declaration (part 4, section 4.5.5)."""

    txn_id: Annotated[bytes, fields.BINARY]


@composite("transactional-state", 0x34)
class TransactionalState(Composite):
    """The state of a delivery within a transaction (part 4, section 4.5.8)."""

    txn_id: Annotated[bytes, fields.BINARY]
    outcome: Annotated[Outcome | Described | None, OUTCOME] = None


DeliveryState = Received | Accepted | Rejected | Released | Modified | Declared | TransactionalState
DELIVERY_STATE: Final = kind_of(
    Group("delivery state", [Received, Accepted, Rejected, Released, Modified, Declared, TransactionalState])
)


def _read_unsettled(buffer: bytes, at: int) -> tuple[dict[bytes, Any], int]:
    entries, after = fields.DELIVERY_MAP.read(buffer, at)
    return {tag: _state_of(value) for tag, value in entries.items()}, after


def _state_of(value: object) -> Any:
    """Read a described value as a state, and leave any other value as it is."""
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


UNSETTLED: Final = fields.Kind("map of delivery states", _read_unsettled, _write_unsettled)
"""The unsettled deliveries of a link (2.7.3): by delivery tag, the state, or None."""
