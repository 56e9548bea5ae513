"""Remembered sources, as receivers find them again: without naming them, and with their unsettled deliveries.

An attach without a source asks for the one that its link had (2.6.3, 2.6.13): this is how JMS clients unsubscribe. A
source of durability unsettled-state reports which deliveries await their outcome (2.7.3, 3.5.5).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from ...core.access import Right
from ...core.errors import EventLogError
from ...core.limits import show
from ...core.settings import is_own
from ...core.store import LogStore
from ..connections.transport import Transport
from ..positions.stored import Remembered, remembers
from ..protocol import conditions
from ..protocol.composite import write_composite
from ..protocol.conditions import LinkFault
from ..protocol.link import Sender
from ..protocol.terminus import SOURCE, Source
from .node import EventLogNode
from .nodes import Nodes

UNSETTLED_STATE = 2
"""The durability of a terminus that keeps unsettled deliveries (3.5.5)."""
NAMED_MAX = 1000
"""The number of deliveries that the answer to an attach names. All deliveries of a receiver that fell behind may not
fit in a frame.
"""


class Unsettled(NamedTuple):
    """The unsettled deliveries in the answer to an attach (2.7.3)."""

    named: dict[bytes, None]
    """By tag. None of them has a state."""
    is_all: bool
    """Whether there are no others."""


NOTHING_UNSETTLED = Unsettled({}, True)


def unsettled_of(remembered: Remembered) -> Unsettled:
    """The unsettled deliveries of a source, for a receiver that says which ones it has, if any.

    A receiver that names none knows of no delivery, and gets them as new ones (2.6.13); go-amqp 1.7 cannot even read
    them. After a server restart they are not known individually, so everything above the position is sent again."""
    open = remembered.position.open
    named = {number.to_bytes(8, "big"): None for number in remembered.position.unsettled(NAMED_MAX)}
    return Unsettled(named, len(named) == open and not remembered.is_loaded)


def encoded_source(source: Source) -> bytes:
    """The stored form of a source; `decoded_source` is its inverse."""
    encoded = bytearray()
    write_composite(encoded, source)
    return bytes(encoded)


def decoded_source(remembered: Remembered, log: str) -> Source:
    """The source of a receiver. A source that was stored by 0.1.0 has an address and no filter."""
    if not remembered.source:
        expiry = remembered.expiry.symbol
        return Source(address=log, durable=UNSETTLED_STATE, expiry_policy=expiry, timeout=remembered.timeout_s)
    source = SOURCE.read(remembered.source, 0)[0]
    assert isinstance(source, Source)
    return source


async def find_terminus(nodes: Nodes, transport: Transport, link: Sender) -> tuple[EventLogNode, Source]:
    """The log and the source of an earlier link of that name. Raises LinkFault if none is remembered.

    It searches the logs that the peer may read: those in use, and the stored state of the others. It opens only the log
    that it finds.
    """
    for node, known in (await _sources_of(nodes, transport, link)).items():
        return node, decoded_source(known, node.log.name)
    problem = f"no source was given, and none is stored for link {show(link.name)} of container"
    raise LinkFault(conditions.NOT_FOUND, f"{problem} {show(transport.container_id)}")


async def sources_elsewhere(
    nodes: Nodes, transport: Transport, link: Sender, node: EventLogNode
) -> dict[EventLogNode, Remembered]:
    """The sources that a link of that name has in other logs; empty if it has one in this node's log.

    A link has one source, so forget these after it is attached to this log.
    """
    owner = transport.remembered_as
    if owner.count("@") > 1:  # in USER@CONTAINER, if names contain an @, it may be another user's
        return {}
    if node.positions.remembered(owner, link.name) is not None:
        return {}
    found = await _sources_of(nodes, transport, link)
    return {other: known for other, known in found.items() if other is not node}


async def _sources_of(nodes: Nodes, transport: Transport, link: Sender) -> dict[EventLogNode, Remembered]:
    """The sources of links of that name, in the logs that the peer may read; those in use come first."""
    assert transport.user is not None
    user, owner = transport.user, transport.remembered_as
    found: dict[EventLogNode, Remembered] = {}
    for node in nodes.all:
        if user.may(Right.READ, node.log.name) and (known := node.positions.remembered(owner, link.name)) is not None:
            found[node] = known
    for name in await asyncio.to_thread(_remembering, nodes.store, owner, link.name):
        if not user.may(Right.READ, name):
            continue
        with suppress(EventLogError):  # deleted in the meantime, or damaged, which its own links report
            node = await nodes.node_of(name)
            if (known := node.positions.remembered(owner, link.name)) is not None:
                found[node] = known
    return found


def _remembering(store: LogStore, container: str, link: str) -> list[str]:
    """The logs with a stored receiver of that name; blocks."""
    found = []
    for name in store.names():
        with suppress(EventLogError):
            if not is_own(name) and remembers(store.state, store.incarnation_of(name), container, link):
                found.append(name)
    return found
