"""The nodes `$management` and `$events` of one container: what their links share, and what can be managed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...core.access import Unauthenticated, User
from ...management.entities import CONNECTION, CONSUMER, CONSUMER_GROUP, LINK, LOG, PARTITION, SERVER, SESSION
from ...management.logs import Consumers, LogRights, Logs, Partitions
from ...management.operations import Management
from ..link_end import LinkEnd
from ..protocol import conditions
from ..protocol.conditions import LinkFault
from ..protocol.link import Receiver, Sender
from ..protocol.performatives import Source, Target
from .groups import ConsumerGroups
from .notifications import NotificationMessages
from .peers import Connections, Links, Servers, Sessions
from .replies import LIFETIME, ReplyBook
from .requests import Requests

if TYPE_CHECKING:
    from ..container import Container
    from ..transport import Transport

TURNS = 4
"""Operations under way at the same time, of all peers: they take threads that others need too."""
LINKS_MAX = 16
"""Links to `$management` of one connection: each holds some requests, also when it is gone."""
TEMPORARY = frozenset({"temporary-queue", "temporary-topic"})
"""Capabilities of the targets by which clients of JMS make temporary queues."""


class ManagementNode:
    """What all links to `$management`, and all from `$events`, share."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self.management = Management()
        self.replies = ReplyBook()
        self.notifications = NotificationMessages()
        self.turns = asyncio.Semaphore(TURNS)
        self._requests: dict[Transport, set[Requests]] = {}
        """Links to `$management` of each connection: attached, or gone with requests that are not answered yet."""
        rights = LogRights(container.store, container.guard)
        for type, entities in (
            (SERVER, Servers(container)),
            (LOG, Logs(rights)),
            (PARTITION, Partitions(rights)),
            (CONNECTION, Connections(container)),
            (SESSION, Sessions(container)),
            (LINK, Links(container)),
            (CONSUMER, Consumers(rights)),
            (CONSUMER_GROUP, ConsumerGroups(container, rights)),
        ):
            self.management.serve(type, entities)

    def user(self, transport: Transport) -> User:
        """Who asks, with the rights that they have now. Raises Unauthenticated: nobody that is known any more."""
        if transport.user is None:
            raise Unauthenticated("the connection has no user")
        return self._container.guard.trusted(transport.user.name, transport.peer)

    def attach_requests(self, transport: Transport, link: Receiver, target: Target) -> None:
        """Answer the attach of a sender to `$management`. Raises LinkFault."""
        count = len(self._requests.get(transport, ()))
        if count >= LINKS_MAX:
            problem = f"this connection has {count} links to $management with those whose answers wait, and no more"
            raise LinkFault(conditions.RESOURCE_LIMIT_EXCEEDED, f"{problem} are allowed")
        self._container.steal(transport, link)
        self._requests.setdefault(transport, set()).add(Requests.attach(self, transport, link, target))

    def forget_requests(self, transport: Transport, requests: Requests) -> None:
        """The link is over, and so is the last request that came on it."""
        its = self._requests.get(transport, set())
        its.discard(requests)
        if not its:
            self._requests.pop(transport, None)

    def attach_replies(self, transport: Transport, link: Sender, source: Source, address: str | None) -> None:
        """Answer the attach of a receiver of answers. Raises LinkFault."""
        if source.dynamic:
            if source.address is not None:
                raise LinkFault(conditions.NOT_IMPLEMENTED, "a node that is made on demand is given its address")
            address = self.replies.new_address()
        assert address is not None
        self._container.steal(transport, link)
        self.replies.attach(transport, link, source, address)

    def attach_mailbox(self, transport: Transport, link: Receiver, target: Target) -> None:
        """Make a reply node for a client that makes its temporary queues by sending to them, as JMS clients do.

        It never gets credit: only this node sends there. Raises LinkFault.
        """
        if target.address is not None or not TEMPORARY & {str(each) for each in target.capabilities or ()}:
            problem = "no nodes are made on demand to send to, but temporary queues for answers of $management"
            raise LinkFault(conditions.NOT_IMPLEMENTED, problem)
        assert link.remote is not None
        made = Target(
            address=self.replies.new_address(),
            dynamic=True,
            dynamic_node_properties=LIFETIME,
            capabilities=target.capabilities,
        )
        self._container.steal(transport, link)
        link.accept(source=link.remote.source, target=made)
        transport.adopt(link, LinkEnd())
