"""A link to `$management`. Its requests are processed one at a time, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from ...core.access import Unauthenticated
from ...core.actor import act_as
from ...core.limits import show
from ...management.operations import Answer, Request
from ...management.statuses import Status, refusal_of
from ..connections.link_end import Ending, LinkEnd
from ..connections.refusals import refuse
from ..connections.transport import Transport
from ..errors import MessageFault
from ..protocol import conditions
from ..protocol.codec import EncodeError
from ..protocol.conditions import LinkFault
from ..protocol.link import Delivery, Receiver
from ..protocol.performatives import Accepted, Target
from ..protocol.sizes import held_bytes
from .messages import RequestMessage, answer_message, read_request
from .node import ManagementNode
from .replies import Replies, paired_properties

_logger = logging.getLogger("headwater.amqp")

LINKS_MAX = 16
"""The maximum number of links to `$management` per connection. Each holds some requests, even after it is detached."""
CREDIT = 8
"""The maximum number of requests in progress on one link. The next one is processed after the answer to the last one
was sent.
"""
REQUEST_BYTES_MAX = 64 * 1024
LARGE_ANSWER = 50
"""Answers with more results than this are encoded in a thread."""


def attach_requests(node: ManagementNode, transport: Transport, link: Receiver, target: Target) -> None:
    """Answer the attach of a sender to `$management`, with its first credit. Raises LinkFault."""
    assert link.remote is not None
    of_connection = node.requests.setdefault(transport, set())
    if len(of_connection) >= LINKS_MAX:
        problem = f"this connection has {len(of_connection)} links to $management, including those with pending answers"
        raise LinkFault(conditions.RESOURCE_LIMIT_EXCEEDED, f"{problem}, which is the maximum")
    transport.steal(link)
    link.accept(
        source=link.remote.source,
        target=Target(address=target.address, capabilities=target.capabilities),
        max_message_size=REQUEST_BYTES_MAX,
        properties=paired_properties(link),
    )
    requests = Requests(node, transport, link)
    of_connection.add(requests)
    transport.adopt(link, requests)
    link.grant(CREDIT)


class Requests(LinkEnd):
    """One link that receives requests."""

    def __init__(self, node: ManagementNode, transport: Transport, link: Receiver) -> None:
        self._node, self._transport, self._link = node, transport, link
        self._waiting: deque[tuple[RequestMessage, int]] = deque()
        """Requests, each with the number of bytes reserved for it."""
        self._under_way = 0
        self._is_busy = False
        self._is_over = False

    def on_messages(self) -> None:
        """See LinkEnd. Valid requests are accepted at once; others are rejected."""
        for delivery in self._link.take():
            self.deliveries += 1
            try:
                request = self._read(delivery)
                held = held_bytes(request.properties) + held_bytes(request.body)
                if not self._transport.share.take(held):
                    refusal = self._transport.share.refusal(held, "the request")
                    raise MessageFault(conditions.RESOURCE_LIMIT_EXCEEDED, str(refusal))
            except MessageFault as fault:
                if not self._is_over:
                    refuse(self._transport, self._link, delivery, fault)
            else:
                self._accept(delivery)
                self._under_way += 1
                self._waiting.append((request, held))
        self._grant()
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._node.spawn(self._serve())

    def on_detached(self, ending: Ending) -> None:
        """See LinkEnd. Accepted requests are still processed, unless the connection has ended."""
        self._is_over = True
        if ending is Ending.CONNECTION:
            self._transport.share.give(sum(held for _, held in self._waiting))
            self._waiting.clear()
        self._leave()

    def _read(self, delivery: Delivery) -> RequestMessage:
        if delivery.payload is None:
            problem = f"the request has {delivery.bytes} bytes, at most {REQUEST_BYTES_MAX} are allowed"
            raise MessageFault(conditions.LINK_MESSAGE_SIZE_EXCEEDED, problem)
        request = read_request(delivery.payload)
        if self._replies_for(request) is None:
            given = "none" if request.reply_to is None else show(request.reply_to)
            problem = (
                f"reply-to: expected the address of a dynamic source of this connection, or the target address of its "
                f"receiver from $management, got {given}"
            )
            raise MessageFault(conditions.PRECONDITION_FAILED, problem)
        return request

    def _replies_for(self, request: RequestMessage) -> Replies | None:
        return self._node.replies.find(self._transport, self._link, request.reply_to)

    async def _serve(self) -> None:
        try:
            while self._waiting:
                request, held = self._waiting.popleft()
                try:
                    answer = await self._perform(request)
                    if (replies := self._replies_for(request)) is not None:
                        await replies.send(await self._message(answer, request, replies))
                finally:
                    self._transport.share.give(held)
                self._under_way -= 1
                self._grant()
                self._transport.flush_soon()
        except Exception:
            _logger.exception("a request was not answered", extra={"fields": {"peer": self._transport.peer}})
            if not self._is_over:
                self._transport.expel(self._link, conditions.INTERNAL_ERROR, "internal error; see the server's log")
        finally:
            self._is_busy = False
            self._leave()

    def _leave(self) -> None:
        if self._is_over and not self._is_busy:
            self._node.forget_requests(self._transport, self)

    async def _perform(self, request: RequestMessage) -> Answer:
        try:
            user = self._node.user(self._transport)
            act_as(user.name)
        except Unauthenticated as error:
            refusal = refusal_of(error)
            return Answer(refusal.status, {}, refusal.description)
        self._transport.shared.turns.activity.what = "amqp", f"management {show(request.properties.get('operation'))}"
        return await self._node.management.perform(Request(user, request.properties, request.body))

    async def _message(self, answer: Answer, request: RequestMessage, replies: Replies) -> bytes:
        try:
            if (answer.count or 0) > LARGE_ANSWER:
                message = await asyncio.to_thread(answer_message, answer, request)
            else:
                message = answer_message(answer, request)
        except EncodeError:  # one failed answer must neither end the link nor block the answers after it
            _logger.exception("an answer was not written", extra={"fields": {"peer": self._transport.peer}})
            problem = "internal error; see the server's log"
            return answer_message(Answer(Status.INTERNAL_ERROR, {}, problem), request)
        if replies.bytes_max is not None and len(message) > replies.bytes_max:
            problem = (
                f"the answer has {len(message)} bytes, but your link's maximum is {replies.bytes_max}; request less"
            )
            return answer_message(Answer(Status.BAD_REQUEST, {}, problem), request)
        return message

    def _accept(self, delivery: Delivery) -> None:
        if not delivery.is_settled and not self._is_over:
            self._link.settle(delivery.id, delivery.id, Accepted())

    def _grant(self) -> None:
        room = CREDIT - self._under_way
        if self._link.is_attached and room - self._link.credit >= CREDIT >> 1:
            self._link.grant(room)
