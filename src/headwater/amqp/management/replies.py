"""Links that send answers, and how a request's reply-to finds its link.

A reply-to is, within the connection of the request:

- the address of a link from a dynamic source, which the server has named, or from any `$reply/...`;
- the target address of a link from `$management`, as used by clients of CBS and of Event Hubs;
- `$me`: the link from `$management` with the name of the request's link, in its session (link pairing).

Without a reply-to, the answer goes to the only link from `$management` of the request's session.

Answers wait for credit. The requests in progress limit their number; their bytes are counted in the connection's share
of the memory. If there is no memory for an answer, its link ends.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque

from ..connections.addresses import REPLY
from ..connections.link_end import Ending, LinkEnd
from ..connections.transport import Transport
from ..protocol import conditions
from ..protocol.conditions import LinkFault
from ..protocol.link import Link, Sender
from ..protocol.performatives import Source, Target
from ..protocol.session import Session
from ..protocol.terminus import SESSION_END
from ..protocol.types import Described, Symbol, ULong

PAIRED = "$me"
DELETE_ON_CLOSE = Described(ULong(0x2B), [])
LIFETIME = {Symbol("lifetime-policy"): DELETE_ON_CLOSE}
"""Of a dynamic node (3.5.10)."""


class Replies(LinkEnd):
    """One link that sends answers, in order, as credit allows."""

    def __init__(self, book: ReplyBook, transport: Transport, link: Sender) -> None:
        self._book, self._transport, self.link = book, transport, link
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._is_over = False
        self.address: str | None = None
        """Its address in a reply-to, within its connection."""
        self.is_paired = False
        """Whether it comes from `$management`, so that the link's name identifies it too."""
        self.bytes_max = (link.remote and link.remote.max_message_size) or None
        """The largest message that the receiver accepts (2.7.3); None = any."""

    @property
    def waiting(self) -> int:
        """The number of waiting answers."""
        return len(self._waiting)

    async def send(self, message: bytes) -> None:
        """Send an answer, and wait until it has been sent. It is dropped if the link ends first."""
        if self._is_over:
            return
        sent: asyncio.Future[None] = self._transport.shared.loop.create_future()
        share = self._transport.share
        if not share.take(len(message)):
            problem = str(
                share.refusal(len(message), f"an answer, in addition to the {self.waiting} waiting for credit,")
            )
            self._transport.expel(self.link, conditions.RESOURCE_LIMIT_EXCEEDED, problem)
            return
        self._waiting.append((message, sent))
        self.on_ready()
        self._transport.flush_soon()
        await sent

    def on_ready(self) -> None:
        link = self.link
        unsettled_max = self._transport.shared.settings.unsettled_max
        while self._waiting and link.sendable > 0 and link.unsettled < unsettled_max and self._transport.has_room:
            try:
                link.check_size(len(self._waiting[0][0]))
            except LinkFault as fault:
                self._transport.expel(link, fault.condition, fault.description)
                return
            message, sent = self._waiting.popleft()
            self._transport.share.give(len(message))
            self.deliveries += 1
            try:
                link.send(message, self.deliveries, self.deliveries, is_settled=link.sends_settled)
            except LinkFault as fault:
                self._transport.expel(link, fault.condition, fault.description)
            if not sent.done():
                sent.set_result(None)
        if link.is_draining and not self._waiting:
            link.drained()
        self._transport.flush_soon()

    def on_outcomes(self, contexts: object, state: object) -> None:
        """See LinkEnd. A refused answer is not sent again, but it makes room for others."""
        self.on_ready()

    def on_detached(self, ending: Ending) -> None:
        self._is_over = True
        self._book.forget(self._transport, self)
        while self._waiting:
            message, sent = self._waiting.popleft()
            self._transport.share.give(len(message))
            if not sent.done():
                sent.set_result(None)


class ReplyBook:
    """All reply links, by the names that requests use."""

    def __init__(self) -> None:
        self._by_address: dict[tuple[Transport, str], Replies] = {}
        self._by_name: dict[tuple[Session, str], Replies] = {}
        self._of_session: dict[Session, dict[Replies, None]] = {}
        self._numbers = itertools.count(1)

    def new_address(self) -> str:
        """A new address for a dynamic node."""
        return f"{REPLY}{next(self._numbers)}"

    def attach(self, transport: Transport, link: Sender, given: Source, address: str) -> None:
        """Answer a receiver's attach; `address` is that of its source, `$management` or a reply node."""
        assert link.remote is not None
        source = Source(
            address=address,
            expiry_policy=SESSION_END,
            dynamic=given.dynamic,
            dynamic_node_properties=LIFETIME if given.dynamic else None,
            outcomes=given.outcomes,
            capabilities=given.capabilities,
        )
        link.accept(source=source, target=link.remote.target, properties=paired_properties(link))
        replies = Replies(self, transport, link)
        if address.startswith(REPLY):
            replies.address = address
        else:
            replies.is_paired = True
            self._by_name[link.session, link.name] = replies
            self._of_session.setdefault(link.session, {})[replies] = None
            if isinstance(link.remote.target, Target):
                replies.address = link.remote.target.address
        if replies.address is not None:
            self._by_address[transport, replies.address] = replies
        transport.adopt(link, replies)
        replies.on_ready()

    def find(self, transport: Transport, link: Link, reply_to: str | None) -> Replies | None:
        """The link for the answer to a request on `link`; None if there is none."""
        if reply_to is None:
            found = self._of_session.get(link.session, {})
            return next(iter(found)) if len(found) == 1 else None
        if reply_to == PAIRED:
            return self._by_name.get((link.session, link.name))
        return self._by_address.get((transport, reply_to))

    def forget(self, transport: Transport, replies: Replies) -> None:
        """Forget a link that is over."""
        if replies.address is not None and self._by_address.get((transport, replies.address)) is replies:
            del self._by_address[transport, replies.address]
        if replies.is_paired:
            session, name = replies.link.session, replies.link.name
            if self._by_name.get((session, name)) is replies:
                del self._by_name[session, name]
            del self._of_session[session][replies]
            if not self._of_session[session]:
                del self._of_session[session]


def paired_properties(link: Link) -> dict[Symbol, object] | None:
    """The link property of a pair of links, returned if it was given."""
    given = (link.remote and link.remote.properties) or {}
    return {Symbol("paired"): True} if given.get("paired") is True else None
