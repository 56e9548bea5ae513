"""Partitions as AMQP names them: symbols, `0` and up (event streams, 4)."""

from __future__ import annotations

from ...core.limits import show
from ..protocol import conditions
from ..protocol.conditions import LinkFault
from ..protocol.performatives import Attach
from ..protocol.types import Symbol

PARTITION = Symbol("event-streams-partition")
CONSUMER_GROUP = Symbol("event-streams-consumer-group")
EPOCH = Symbol("event-streams-epoch")


def bound_partition(attach: Attach | None, partitions: int) -> int | None:
    """The partition that a link asks to be bound to; None if it does not. Raises LinkFault if there is none."""
    wanted = (attach.properties or {}).get(PARTITION) if attach is not None else None
    if wanted is None:
        return None
    if not isinstance(wanted, str):
        raise LinkFault(conditions.INVALID_FIELD, f"{PARTITION} is a symbol, {show(wanted)} given")
    partition = partition_number(wanted, partitions)
    if partition is None:
        raise LinkFault(conditions.NOT_FOUND, f"partition {show(str(wanted))} given, 0 to {partitions - 1} are there")
    return partition


def partition_number(name: str, partitions: int) -> int | None:
    """The partition of that name, or None."""
    if not name.isascii() or not name.isdecimal() or (len(name) > 1 and name[0] == "0") or len(name) > 9:
        return None
    return number if (number := int(name)) < partitions else None
