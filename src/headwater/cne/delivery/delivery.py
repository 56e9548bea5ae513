"""Delivery: renders and sends events to webhooks, and greets new subscribers.

The endpoint decides when, how often and in which order (`endpoint`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Mapping, Sequence

from msgspec.structs import replace

from ...core.loop.traffic import Traffic
from ...core.watch.spans import Spans
from ...formats.tracing import headers_of
from ..notifications import writer
from ..notifications.envelope import enveloped
from ..notifications.notification import Dialect
from ..notifications.records import BINARY, STARLINGX, Subscription
from ..notifications.stored import Stored
from ..settings import Settings
from .webhook import JSON_HEADERS, Outcome, Webhooks, shown

GREETING_S_V1 = 10.0
GREETINGS_MAX = 32
"""The number of newest states that a subscriber must accept before it is registered. It gets the others afterwards."""
ORIGIN = "headwater"
"""The origin that a webhook must allow in CloudEvents' OPTIONS handshake."""
_MUST = "the endpoint must be on a host in cne.hosts and answer 204 in time; see the server's log for its answer"
_logger = logging.getLogger("headwater.cne")


class HandshakeFailed(Exception):
    """The endpoint's answer was not valid. The error does not include the actual answer, because subscribers could use
    the server to scan ports that only it can reach. The server's own log contains it."""


class Undeliverable(Exception):
    """The event can never be sent to that subscription, regardless of the endpoint's answer."""


class Delivery:
    """Sends events to webhooks, in the form that each subscription requests."""

    def __init__(self, webhooks: Webhooks, settings: Settings, spans: Spans | None = None) -> None:
        """`spans` gets each call, if they are collected."""
        self.traffic = Traffic()
        """Counts of events appended and events accepted by webhooks."""
        self._webhooks, self._settings, self._spans = webhooks, settings, spans

    def send(self, subscription: Subscription, stored: Stored) -> Awaitable[Outcome]:
        """Send one event to one subscription, once. Raises Undeliverable immediately."""
        headers, body = self._rendered(subscription, stored)
        if len(body) > (limit := self._settings.event_bytes_max) and len(stored.event.data) > limit:
            raise Undeliverable(f"the event has {len(body)} bytes, but at most {limit} can be delivered")
        if subscription.mode == STARLINGX:
            body = enveloped(body, subscription.resource)
        trace = headers_of(stored.event.attributes)
        if self._spans is not None:
            return self._post_as_span(self._spans, subscription.endpoint, body, headers, trace)
        return self._webhooks.post(subscription.endpoint, body, {**headers, **trace} if trace else headers)

    async def _post_as_span(
        self, spans: Spans, uri: str, body: bytes, headers: Mapping[str, str], trace: Mapping[str, str]
    ) -> Outcome:
        """The same, recorded as a span of the event's trace, so that the subscriber's work appears below it."""
        call = spans.calls(uri, shown(uri), trace)
        outcome = Outcome(0, "cancelled")
        try:
            outcome = await self._webhooks.post(uri, body, {**headers, **call.headers})
        finally:
            call.end(outcome.status, outcome.problem)
        return outcome

    async def handshake(self, uri: str) -> None:
        """CloudEvents' OPTIONS handshake, if the settings require it. Raises HandshakeFailed."""
        if self._settings.webhook_handshake and not await self._webhooks.allows(uri, ORIGIN):
            raise HandshakeFailed("the endpoint does not allow this server to call it (WebHook-Allowed-Origin)")

    async def greet(self, subscription: Subscription, states: Sequence[Stored]) -> None:
        """Send the newest of the states to a new subscriber, each under a new id; an empty POST if there is none.

        Every one must be answered with 204. Raises HandshakeFailed, Undeliverable.
        """
        if not states:
            await self.probe(subscription.endpoint, GREETING_S_V1 if subscription.dialect is Dialect.V1 else None)
        for stored in states[-GREETINGS_MAX:]:
            fresh = replace(stored.notification, id=str(uuid.uuid4()))
            outcome = await self.send(subscription, Stored(stored.event, fresh, stored.addresses))
            _expect_204(subscription.endpoint, outcome)

    async def probe(self, uri: str, timeout_s: float | None = GREETING_S_V1) -> None:
        """An empty POST, which must be answered with 204. Raises HandshakeFailed."""
        _expect_204(uri, await self._webhooks.post(uri, b"", timeout_s=timeout_s))

    def _rendered(self, subscription: Subscription, stored: Stored) -> tuple[Mapping[str, str], bytes]:
        """The header fields and the body. The most common form is rendered once for all subscriptions
        (`Stored.structured`).
        """
        notification, number = stored.notification, stored.sequence_number
        if subscription.mode == BINARY:
            headers, body = writer.binary(notification, subscription.dialect, number)
            return {**JSON_HEADERS, **dict(headers)}, body
        if subscription.dialect is Dialect.V2:
            return JSON_HEADERS, stored.structured
        if self._settings.v1_wraps:
            return JSON_HEADERS, writer.wrapped_v1(notification, stored.addresses[0].text, number)
        # v1 has always carried the subscription's id in place of the event's.
        return JSON_HEADERS, writer.bare(
            notification, notification.id if self._settings.v1_unique_ids else subscription.id
        )


def _expect_204(uri: str, outcome: Outcome) -> None:
    if outcome.status != 204:
        _logger.info("%s was not registered: it must answer 204; %s", shown(uri), outcome.text)
        raise HandshakeFailed(_MUST)
