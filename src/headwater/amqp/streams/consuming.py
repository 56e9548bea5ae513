"""Links of consumers: where they begin, what they filter, and what their attach is answered (4.3, 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..filters import InvalidFilter, SourceFilter, source_filter
from ..protocol import conditions
from ..protocol.conditions import LinkFault
from ..protocol.link import Sender
from ..protocol.performatives import Source
from ..protocol.types import Symbol
from .consumer import Consumer
from .node import EventLogNode
from .partitions import PARTITION, bound_partition

if TYPE_CHECKING:
    from ..transport import Transport

OUTCOMES = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))


def read_filter(source: Source, node: EventLogNode, head: int) -> SourceFilter:
    """The filter of a source, its times turned into numbers. Raises LinkFault (FILTEX: amqp:invalid-field)."""
    try:
        wanted = source_filter(source.filter, latest=head)
    except InvalidFilter as error:
        raise LinkFault(conditions.INVALID_FIELD, str(error)) from None
    if wanted.recorded_from is not None:
        wanted = replace(wanted, after=max(wanted.after, node.log.sequence_number_at(wanted.recorded_from) - 1))
    return wanted


def answered_source(source: Source, wanted: SourceFilter) -> Source:
    """What the consumer gets of the source that it asked for: only filters that are in effect (3.5.3)."""
    return Source(
        address=source.address,
        durable=source.durable,
        expiry_policy=source.expiry_policy,
        timeout=source.timeout,
        distribution_mode=Symbol("copy"),
        filter=wanted.accepted or None,
        default_outcome=source.default_outcome,
        outcomes=source.outcomes or OUTCOMES,
        capabilities=source.capabilities,
    )


async def attach_consumer(transport: Transport, link: Sender, source: Source, node: EventLogNode) -> None:
    """Answer a consumer's attach. Raises LinkFault and EventLogError where it is refused."""
    assert link.remote is not None
    head = node.log.head()
    wanted = read_filter(source, node, head)
    partition = bound_partition(link.remote, node.partitions)
    start = wanted.after if wanted.names_position else head
    properties: dict[Symbol, Any] = {}
    if partition is not None:
        properties[PARTITION] = Symbol(str(partition))
    link.accept(source=answered_source(source, wanted), target=link.remote.target, properties=properties or None)
    consumer = Consumer(transport, link, node, wanted, partition, start)
    transport.adopt(link, consumer)
    consumer.on_ready()
