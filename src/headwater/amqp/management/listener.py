"""A link from `$events`. It sends notifications as credit allows. Its queue is bounded, and drops the oldest."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...core.access import Right, Unauthenticated, User
from ...core.loop.scheduler import STEP_S
from ...core.quoting import cut
from ...core.watch.bus import Notification
from ...management.notifications.catalog import CATALOG, Scope, as_seen_by
from ...management.notifications.queue import NotificationQueue
from ..connections.addresses import EVENTS
from ..connections.link_end import Ending, LinkEnd
from ..connections.transport import Transport
from ..errors import refusal_of
from ..filters import InvalidFilter
from ..protocol import conditions
from ..protocol.conditions import LinkFault
from ..protocol.link import SETTLED, Sender
from ..protocol.performatives import DeliveryState, Source
from ..protocol.types import Described, Symbol
from .event_filter import EventFilter, read_event_filter
from .node import ManagementNode
from .transformation import TRANSFORMATION, Transformation, read_transformation

_logger = logging.getLogger("headwater.amqp")

TURN = 64
"""The maximum number of notifications that one listener is sent before others get their turn."""
LISTENERS_MAX = 64
"""The maximum number of links from `$events` per connection. Each has a queue."""
WAITING_MIN = 1000
"""The number of notifications that may wait for any listener, even if its connection has many listeners."""
NOTIFICATION_BYTES = 2048
"""Approximate memory of a waiting notification."""
COUNTED_STEP = 32
"""Memory is reserved and released for this many notifications at a time."""
_OF_ANYBODY = frozenset(entry.type for entry in CATALOG.values() if entry.scope is not Scope.SERVER)
"""The types visible without the right to manage the server."""
_DOING = "amqp", f"listener to {EVENTS}"
UNSETTLED = 0
"""snd-settle-mode (2.8.2)."""


async def attach_listener(node: ManagementNode, transport: Transport, link: Sender, source: Source) -> None:
    """Answer the attach of a receiver from `$events`. Raises LinkFault, Unauthenticated."""
    assert link.remote is not None
    user = node.user(transport)
    try:
        read = partial(read_event_filter, source.filter)
        wanted = await transport.shared.read_filter(transport.flow, link, source.filter, read)
        if wanted is None:
            return
        transformation, properties = _transformation(wanted, link.remote.properties)
    except InvalidFilter as error:
        raise LinkFault(conditions.INVALID_FIELD, refusal_of(error).description) from None
    count = sum(isinstance(end, NotificationLink) for _, _, end in transport.links)
    if count >= LISTENERS_MAX:
        problem = f"this connection has {count} links from $events, which is the maximum"
        raise LinkFault(conditions.RESOURCE_LIMIT_EXCEEDED, problem)
    transport.steal(link)
    link.accept(
        source=Source(
            address=EVENTS,
            distribution_mode=Symbol("copy"),
            filter=wanted.accepted or None,
            default_outcome=source.default_outcome,
            outcomes=source.outcomes,
        ),
        target=link.remote.target,
        properties=properties,
        snd_settle_mode=UNSETTLED if link.remote.snd_settle_mode == UNSETTLED else SETTLED,
    )
    waiting_max = _waiting_max(transport.shared.settings.listener_events_max, count)
    listener = NotificationLink(node, transport, link, user, wanted, transformation, waiting_max)
    transport.adopt(link, listener)
    listener.start(wanted)


class NotificationLink(LinkEnd):
    """One link that sends notifications."""

    def __init__(
        self,
        node: ManagementNode,
        transport: Transport,
        link: Sender,
        user: User,
        wanted: EventFilter,
        transformation: Transformation | None,
        waiting_max: int,
    ) -> None:
        self._waiting_max = waiting_max
        self._node, self._transport, self._link, self._user = node, transport, link, user
        self._matches, self._names_lost, self._transformation = wanted.matches, wanted.names_lost, transformation
        self._bytes_max = (link.remote and link.remote.max_message_size) or None
        self._loop, self._bus = transport.shared.loop, transport.shared.bus
        self._turns, self._flow = transport.shared.turns, transport.flow
        self._unsettled_max = transport.shared.settings.unsettled_max
        self._is_turn_due = self._is_over = False
        self._counted = 0
        """The number of waiting notifications with reserved memory."""
        self._queue: NotificationQueue | None = None

    def start(self, wanted: EventFilter) -> None:
        """Listen from now on. A listener therefore does not get the notification of its own attach."""
        types = wanted.types if self._user.may(Right.MANAGE, "*") else wanted.types & _OF_ANYBODY
        self._queue = NotificationQueue(
            self._bus, self._wake, types, accepts=self._accepts, waiting_max=self._waiting_max
        )
        self.on_ready()

    @property
    def has_more(self) -> bool:
        return self._queue is not None and not self._queue.is_empty and self._room() > 0

    def on_ready(self) -> None:
        """See LinkEnd: continue sending."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._turns.now(self._flow, self._turn)

    def on_outcomes(self, contexts: Sequence[Any], state: DeliveryState | Described | None) -> None:
        """See LinkEnd. A notification is never sent again, regardless of its outcome, but its outcome makes room for
        others.
        """
        self._take_turn_soon()

    def on_detached(self, ending: Ending) -> None:
        self._is_over = True
        self._transport.share.give(self._counted * NOTIFICATION_BYTES)
        self._counted = 0
        if self._queue is not None:
            self._queue.close()
            self._queue = None  # it refers to this link: break the cycle, so that both are freed at once

    def _wake(self) -> None:
        """A notification is waiting; called in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, so there is nothing left to wake
            self._loop.call_soon_threadsafe(self.on_ready)

    def _accepts(self, notification: Notification) -> bool:
        """Rights are checked before filters, so that hidden notifications cost nothing, and the cost of a filter
        reveals nothing.
        """
        seen = as_seen_by(self._user, notification)
        if seen is None or self._matches is None:
            return seen is not None
        try:
            return self._matches(seen)
        except Exception:
            self._skip(notification)
            return False

    def _skip(self, notification: Notification) -> None:
        """Skip a notification whose filter or encoding failed; later ones are not affected."""
        self._transport.shared.statistics.notifications_skipped += 1
        about = {"type": notification.type.value, "link": cut(self._link.name)}
        _logger.exception("a notification was skipped", extra={"fields": about})

    def _turn(self) -> None:
        self._is_turn_due = False
        self._turns.activity.what = _DOING
        until = self._turns.cpu() + STEP_S
        queue, room = self._queue, self._room()
        if queue is None or self._is_over:
            return
        try:
            self._user = self._node.user(self._transport)  # so that a revoked right takes effect here too
            if room <= 0:
                self._wait(queue, until)
                return
            for notification in queue.take(room, goes_on=lambda: self._turns.cpu() < until):
                if (seen := as_seen_by(self._user, notification)) is not None:  # checked again, since it has waited
                    self._send(seen)
        except Unauthenticated as error:
            self._transport.expel(self._link, conditions.UNAUTHORIZED_ACCESS, str(error))
            return
        except Exception:  # other listeners wait for their turn after this one
            _logger.exception("a listener failed", extra={"fields": {"link": cut(self._link.name)}})
            self._transport.expel(self._link, conditions.INTERNAL_ERROR, "internal error; see the server's log")
            return
        self._count(queue)
        if not queue.is_empty:
            self._take_turn_soon()
        elif self._link.is_draining:
            self._link.drained()
        self._transport.flush_soon()

    def _wait(self, queue: NotificationQueue, until: float) -> None:
        """Nothing can be sent at present. Apply the filter now, so that only matching notifications use memory. A
        filter that uses `lost` cannot be applied yet, because that number is known only when a notification is sent.
        """
        if not self._names_lost:
            queue.look(lambda: self._turns.cpu() < until)
            if not queue.is_looked_at:
                self._take_turn_soon()
        self._count(queue)
        if self._link.is_draining and self._is_full:
            self._link.drained()  # outcomes make room, and may arrive after the end of the drain

    def _count(self, queue: NotificationQueue) -> None:
        """Reserve memory for waiting notifications, or release it. If there is no memory, drop the oldest
        notifications.
        """
        share = self._transport.share
        while (more := queue.waiting - self._counted) > 0:
            more += -more % COUNTED_STEP
            if share.take(more * NOTIFICATION_BYTES):
                self._counted += more
                return
            for _ in range(max(queue.waiting // 4, 1)):
                queue.lose_oldest()
        if more < -2 * COUNTED_STEP and not self._is_over:
            more += -more % COUNTED_STEP
            share.give(-more * NOTIFICATION_BYTES)
            self._counted += more

    def _take_turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._turns.soon(self._flow, self._turn)

    @property
    def _is_full(self) -> bool:
        """Whether the number of messages that await their outcome has reached its limit."""
        return self._link.unsettled >= self._unsettled_max

    def _room(self) -> int:
        if self._is_over or not self._transport.has_room:
            return 0
        return min(self._link.sendable, self._unsettled_max - self._link.unsettled, TURN)

    def _send(self, notification: Notification) -> None:
        if self._is_over:
            return
        try:
            message = self._node.notifications.message(notification, self._transformation)
        except Exception:
            self._skip(notification)
            return
        if self._bytes_max is not None and len(message) > self._bytes_max:
            problem = f"a notification has {len(message)} bytes, but the link's maximum is {self._bytes_max}"
            self._transport.expel(self._link, conditions.LINK_MESSAGE_SIZE_EXCEEDED, problem)
            return
        self.deliveries += 1
        try:
            self._link.send(message, self.deliveries, self.deliveries, is_settled=self._link.sends_settled)
        except LinkFault as fault:
            self._transport.expel(self._link, fault.condition, fault.description)


def _waiting_max(listener_events_max: int, others: int) -> int:
    """The number of notifications that may wait for a listener. All listeners of a connection share the limit of
    one."""
    return max(listener_events_max // (others + 1), min(WAITING_MIN, listener_events_max))


def _transformation(
    wanted: EventFilter, properties: Mapping[Any, Any] | None
) -> tuple[Transformation | None, dict[Symbol, object] | None]:
    """The transformation in effect, and the link properties that report it. Raises InvalidFilter."""
    given = (properties or {}).get(TRANSFORMATION)
    if given is None:
        return wanted.transformation, None
    if wanted.transformation is not None:
        raise InvalidFilter(TRANSFORMATION, "given both as a filter and as a link property; specify only one")
    return read_transformation(given), {TRANSFORMATION: given}
