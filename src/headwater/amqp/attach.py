"""Attaches a link to a log, to information on a log (`LOG/$info`), or to a node of the server."""

from __future__ import annotations

from ..core.access import Right
from ..core.limits import show
from .connections.addresses import CLAIMS, EVENTS, MANAGEMENT, is_claims, parse_address, server_node
from .connections.transport import Transport
from .container import Container
from .management.listener import attach_listener
from .management.node import ManagementNode
from .management.requests import attach_requests
from .protocol import conditions
from .protocol.conditions import ConnectionFault, LinkFault
from .protocol.link import Link, Receiver, Sender
from .protocol.performatives import Source, Target
from .protocol.types import Symbol
from .streams.consumer_attach import attach_consumer, is_kept
from .streams.group_links import attach_group_link
from .streams.info_link import InfoSource
from .streams.link_properties import CONSUMER_GROUP
from .streams.producer import attach_producer
from .streams.termini import find_terminus, sources_elsewhere

SHARED = Symbol("shared")
"""The source capability by which several receivers share one subscription (JMS 2.0)."""


async def attach(container: Container, management: ManagementNode, transport: Transport, link: Link) -> None:
    """Answer a peer's attach. Raises AmqpError or EventLogError if it is refused."""
    assert link.remote is not None
    if container.is_stopping:
        raise LinkFault(conditions.LINK_DETACH_FORCED, "the server is stopping")
    check_is_served(link)
    if isinstance(link, Receiver):
        if link.remote.target is None and container.nodes.suspended.holds(key := transport.key(link)):
            link.remote.target = Target(address=container.nodes.suspended.address(key))  # its earlier target (2.6.3)
        if not isinstance(link.remote.target, Target):
            raise LinkFault(conditions.NOT_IMPLEMENTED, "a target is required; transactions are not supported")
        await _attach_sender(container, management, transport, link, link.remote.target)
    else:
        assert isinstance(link, Sender)
        if link.remote.source is None:
            await _attach_again(container, transport, link)
            return
        if not isinstance(link.remote.source, Source):
            raise LinkFault(conditions.INVALID_FIELD, "a source is required")
        await _attach_receiver(container, management, transport, link, link.remote.source)


def check_is_served(link: Link) -> None:
    """Refuse requests that other servers support and this one does not.

    Raises ConnectionFault for `$cbs`, because clients wait for it for minutes if only its links are refused; LinkFault
    for a shared subscription, before any of it is remembered.
    """
    assert link.remote is not None
    source = link.remote.source
    asked = source if isinstance(link, Sender) else link.remote.target
    if isinstance(asked, Source | Target) and is_claims(asked.address):
        problem = f"{CLAIMS} is not supported: log in with SASL (PLAIN with name and password, or EXTERNAL)"
        raise ConnectionFault(conditions.NOT_IMPLEMENTED, problem)
    if isinstance(link, Sender) and isinstance(source, Source) and SHARED in (source.capabilities or ()):
        problem = "shared subscriptions are not supported: use a consumer group to share a log"
        how = f"address LOG/$group/NAME, or link property {CONSUMER_GROUP}"
        raise LinkFault(conditions.NOT_IMPLEMENTED, f"{problem} ({how})")


async def _attach_again(container: Container, transport: Transport, link: Sender) -> None:
    """Attach again to the source that the link had (2.6.3). JMS clients then close it to unsubscribe."""
    assert link.remote is not None
    node, source = await find_terminus(container.nodes, transport, link)
    if not link.is_waiting:
        return  # the peer has changed its mind in the meantime, made a mistake, or disconnected
    link.remote.source = source  # so that later reads of the link find its source
    transport.steal(link)
    await attach_consumer(transport, link, source, node)


async def _attach_sender(
    container: Container, management: ManagementNode, transport: Transport, link: Receiver, target: Target
) -> None:
    """Attach a peer that wants to send."""
    address = server_node(target.address)
    if target.dynamic:
        management.attach_mailbox(transport, link, target)
    elif address == MANAGEMENT:
        attach_requests(management, transport, link, target)
    elif address is not None:
        raise LinkFault(conditions.NOT_ALLOWED, f"{show(address)} is read-only")
    else:
        await attach_producer(container.nodes, transport, link, target)


async def _attach_receiver(
    container: Container, management: ManagementNode, transport: Transport, link: Sender, source: Source
) -> None:
    """Attach a peer that wants to receive."""
    address = server_node(source.address)
    if address == EVENTS:
        await attach_listener(management, transport, link, source)
    elif source.dynamic or address is not None:
        management.attach_replies(transport, link, source, address)
    else:
        await attach_reader(container, transport, link, source)


async def attach_reader(container: Container, transport: Transport, link: Sender, source: Source) -> None:
    """Attach a receiver to a log, perhaps for a consumer group, or to information on the log."""
    address = parse_address(source.address or "")
    node = await container.nodes.node(transport, address.log, Right.READ)
    if not link.is_waiting:
        return  # the peer has changed its mind in the meantime, made a mistake, or disconnected
    transport.steal(link)
    if address.is_info:
        InfoSource.attach(transport, link, node)
        return
    if address.group is not None:
        await attach_group_link(transport, link, source, node, address.group)
        return
    replaced = await sources_elsewhere(container.nodes, transport, link, node) if is_kept(source) else {}
    if not link.is_waiting:
        return
    await attach_consumer(transport, link, source, node, address.start)
    if node.positions.remembered(transport.remembered_as, link.name) is not None:
        for other, known in replaced.items():
            if not other.is_attached(known):
                other.forget(known)
