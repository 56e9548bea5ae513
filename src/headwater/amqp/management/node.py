"""The nodes `$management` and `$events` of one container: the state that their links share, and the entities."""

from __future__ import annotations

from ...core.access import Unauthenticated, User
from ...management import entities as managed
from ...management.logs import Consumers, LogRights, Logs, Partitions, Streams
from ...management.operations import Management
from ..connections.link_end import LinkEnd
from ..connections.transport import Transport
from ..container import Container
from ..protocol import conditions
from ..protocol.conditions import LinkFault
from ..protocol.link import Receiver, Sender
from ..protocol.performatives import Source, Target
from .groups import ConsumerGroups, DurableLinks
from .notifications import NotificationMessages
from .peers import Connections, Links, Servers, Sessions
from .replies import LIFETIME, ReplyBook

TEMPORARY = frozenset({"temporary-queue", "temporary-topic"})
"""Target capabilities by which JMS clients create temporary queues."""


class ManagementNode:
    """State shared by all links to `$management` and all links from `$events`."""

    def __init__(self, container: Container) -> None:
        self._guard, self.spawn = container.shared.guard, container.nodes.spawn
        self.management = Management(container.nodes.store.has_lapsed)
        self.replies = ReplyBook()
        self.notifications = NotificationMessages()
        self.requests: dict[Transport, set[LinkEnd]] = {}
        """Links to `$management` of each connection: attached, or detached with unanswered requests."""
        rights = LogRights(container.nodes.store, container.shared.guard)
        for type, entities in (
            (managed.SERVER, Servers(container)),
            (managed.LOG, Logs(rights)),
            (managed.PARTITION, Partitions(rights)),
            (managed.CONNECTION, Connections(container)),
            (managed.SESSION, Sessions(container)),
            (managed.LINK, Links(container)),
            (managed.DURABLE_LINK, DurableLinks(container, rights)),
            (managed.CONSUMER, Consumers(rights)),
            (managed.CONSUMER_GROUP, ConsumerGroups(container, rights)),
            (managed.STREAM, Streams(rights)),
        ):
            self.management.serve(type, entities)

    def user(self, transport: Transport) -> User:
        """The user of a connection, with current rights. Raises Unauthenticated if the user no longer exists."""
        if transport.user is None:
            raise Unauthenticated("the connection has no user")
        return self._guard.trusted(transport.user.name, transport.peer)

    def forget_requests(self, transport: Transport, requests: LinkEnd) -> None:
        """The link has ended, and its last request has been answered."""
        of_connection = self.requests.get(transport, set())
        of_connection.discard(requests)
        if not of_connection:
            self.requests.pop(transport, None)

    def attach_replies(self, transport: Transport, link: Sender, source: Source, address: str | None) -> None:
        """Answer the attach of a receiver of answers. Raises LinkFault."""
        if source.dynamic:
            if source.address is not None:
                problem = "the server chooses the address of a dynamic node; omit the address"
                raise LinkFault(conditions.NOT_IMPLEMENTED, problem)
            address = self.replies.new_address()
        assert address is not None
        transport.steal(link)
        self.replies.attach(transport, link, source, address)

    def attach_mailbox(self, transport: Transport, link: Receiver, target: Target) -> None:
        """Create a reply node for a client that creates temporary queues by sending to them, as JMS clients do.

        The link never gets credit: only this node sends there. Raises LinkFault.
        """
        if target.address is not None or not TEMPORARY & {str(each) for each in target.capabilities or ()}:
            problem = "dynamic targets are only supported as reply queues of $management"
            raise LinkFault(conditions.NOT_IMPLEMENTED, problem)
        assert link.remote is not None
        made = Target(
            address=self.replies.new_address(),
            dynamic=True,
            dynamic_node_properties=LIFETIME,
            capabilities=target.capabilities,
        )
        transport.steal(link)
        link.accept(source=link.remote.source, target=made)
        transport.adopt(link, LinkEnd())
