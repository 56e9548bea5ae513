"""Links of producers: which log they lead to, bound to a partition or not, and what their attach is answered (4.1)."""

from __future__ import annotations

from ...core.limits import APPEND_BYTES_MAX
from ..protocol.link import Receiver
from ..protocol.performatives import Accepted, Target
from ..transport import Transport
from .consuming import bound_partition
from .links import binding_of, bound_properties
from .nodes import Nodes
from .producer import Producer


async def attach_producer(nodes: Nodes, transport: Transport, link: Receiver, target: Target) -> None:
    """Answer a producer's attach, with its first credit. Raises LinkFault and EventLogError where it is refused."""
    assert link.remote is not None
    if target.address is None:
        node, partition, bytes_max = None, None, APPEND_BYTES_MAX
    else:
        node = await nodes.producers_node(transport, target.address)
        partition = bound_partition(binding_of(link.remote.properties), node.partitions)
        bytes_max = node.log.settings.event_bytes_max
    if not link.is_waiting:
        return  # the peer has changed its mind meanwhile, made a mistake, or gone
    transport.steal(link)
    accepted = nodes.suspended.take(transport.key(link))
    producer = Producer(nodes, transport, link, node, partition, accepted)
    link.accept(
        source=link.remote.source,
        target=Target(address=target.address, capabilities=target.capabilities),  # nothing of it outlives the server
        unsettled={tag: Accepted() for tag in accepted} or None,
        max_message_size=bytes_max,
        properties=bound_properties(partition) or None,
    )
    transport.adopt(link, producer)
    producer.grant()
