"""The link properties of event streams (event streams 4.6): those of an attach, and those of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...core.limits import show
from ..protocol.conditions import INVALID_FIELD, LinkFault
from ..protocol.types import Symbol, ULong

PARTITION = Symbol("event-streams-partition")
CONSUMER_GROUP = Symbol("event-streams-consumer-group")
EPOCH = Symbol("event-streams-epoch")
RESET = Symbol("headwater:reset-position")
"""Our own property. If true, the group restarts in the link's partition, at the start given by the filter or the
default.
"""
GROUP_CHARS_MAX = 256


class Binding(NamedTuple):
    """The binding that an attach requests; None for unset fields."""

    partition: str | None
    """As the peer names it; see `partition_number`."""
    group: str | None
    epoch: int | None
    is_reset: bool = False
    """Whether to discard the group's position and start again."""


def binding_of(properties: Mapping[object, object] | None) -> Binding:
    """The binding that an attach's properties request. Symbols and strings are equivalent, as are all integer widths.

    Raises LinkFault if a property has the wrong type, or conflicts with the others.
    """
    given = properties or {}
    partition, group = _text(given, PARTITION), _text(given, CONSUMER_GROUP)
    epoch, is_reset = given.get(EPOCH), given.get(RESET, False)
    if group is not None:
        check_group(group, CONSUMER_GROUP)
    if not isinstance(is_reset, bool):
        raise LinkFault(INVALID_FIELD, f"{RESET}: expected true or false, got {show(is_reset)}")
    if is_reset and group is None:
        raise LinkFault(INVALID_FIELD, f"{RESET}: only valid with a consumer group; also set {CONSUMER_GROUP}")
    if epoch is None:
        return Binding(partition, group, None, is_reset)
    if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0:
        raise LinkFault(INVALID_FIELD, f"{EPOCH}: expected a non-negative integer, got {show(epoch)}")
    if group is None:
        raise LinkFault(INVALID_FIELD, f"{EPOCH}: only valid with a consumer group; also set {CONSUMER_GROUP}")
    return Binding(partition, group, int(epoch), is_reset)


def check_group(name: str, where: str) -> None:
    """Raises LinkFault if a consumer group cannot have that name; `where` names the source of the name."""
    if not (1 <= len(name) <= GROUP_CHARS_MAX and name.isprintable()):
        problem = f"expected 1 to {GROUP_CHARS_MAX} printable characters, got {show(name)}"
        raise LinkFault(INVALID_FIELD, f"{where}: {problem}")


def bound_properties(partition: int | None, group: str | None = None, epoch: int | None = None) -> dict[Symbol, object]:
    """The answer's properties: what the link is bound to (4.1, 4.3, 4.5.2); empty for an agnostic link."""
    found: dict[Symbol, object] = {}
    if partition is not None:
        found[PARTITION] = Symbol(partition)
    if group is not None:
        found[CONSUMER_GROUP] = group
    if epoch is not None:
        found[EPOCH] = ULong(epoch)
    return found


def partition_number(name: str, partitions: int) -> int | None:
    """The number of that partition among `partitions`; None if it does not exist. Only the exact name matches."""
    if name.isascii() and name.isdecimal() and len(name) <= 4 and (number := int(name)) < partitions:
        return number if name == str(number) else None
    return None


def _text(given: Mapping[object, object], name: Symbol) -> str | None:
    value = given.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    raise LinkFault(INVALID_FIELD, f"{name}: expected a symbol or a string, got {show(value)}")
