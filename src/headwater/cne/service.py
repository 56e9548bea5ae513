"""What the routes do: register and greet subscribers and publishers, publish, tell current states. No HTTP in here.

The log is opened (or made) when the first one needs it, and watched from the start where it is there. When it is
deleted, the feed ends; when one of its name is made again, a new feed begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..core.bus import Bus
from ..core.errors import Closed, DuplicateEventId, EventLogError, LogNotFound
from ..core.event import Event
from ..core.local import LocalLog
from ..core.store import LogStore
from . import rendering
from .addresses import Pattern, parse
from .endpoint import Endpoint, Undeliverable
from .feed import Feed, kept_endpoints
from .notification import Dialect, Notification
from .records import BINARY, Publisher, Registry, Request, Subscription
from .settings import Settings
from .stored import Stored, for_dialect
from .webhook import JSON_HEADERS, Outcome, Webhooks, endpoint_uri

POLL_S = 1.0
"""How often it is looked whether somebody else has made the log."""
READY_S = 10.0
CATCH_UP_S = 5.0
"""How long a question for a state waits for the feed; by then it may answer an older one."""
GREETING_S_V1 = 10.0
GREETINGS_MAX = 32

_logger = logging.getLogger("headwater.cne")


class HandshakeFailed(Exception):
    """The endpoint did not answer as an endpoint must."""


class ResourceUnknown(Exception):
    """Nothing is known of the resource: no state, no publisher."""


class AlreadyThere(Exception):
    """That endpoint has that subscription."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        super().__init__(f"subscription {subscription.id} is the same")


class TooMany(Exception):
    """There are as many subscriptions, or publishers, as there may be."""


class _Making(NamedTuple):
    """Something that is being registered."""

    owner: str
    is_over: asyncio.Event


class Service:
    """One front end's logic, on one event loop: `start` it, and `close` it before the log store."""

    def __init__(self, store: LogStore, settings: Settings, bus: Bus | None = None) -> None:
        """`bus` is told of endpoints that fail and recover."""
        self.settings, self._bus = settings, bus or Bus()
        self.subscriptions: Registry[Subscription] = Registry(store.state, "cne/subscription", Subscription)
        self.publishers: Registry[Publisher] = Registry(store.state, "cne/publisher", Publisher)
        self._store = store
        self._webhooks: Webhooks | None = None
        self._feed: Feed | None = None
        self._ready = asyncio.Event()
        self._wanted = asyncio.Event()
        self._being_made: dict[tuple[str, ...], _Making] = {}
        self._task: asyncio.Task[None] | None = None
        self.origin = "headwater"

    @property
    def webhooks(self) -> Webhooks:
        """The client; there from `start` on."""
        assert self._webhooks is not None, "it was not started"
        return self._webhooks

    async def start(self) -> None:
        """Load what is registered, and go on delivering."""
        if self._task is not None:
            return
        self._webhooks = Webhooks(self.settings)
        await asyncio.to_thread(self.subscriptions.load)
        await asyncio.to_thread(self.publishers.load)
        self._task = asyncio.create_task(self._supervise(), name="cloud native events")

    async def close(self) -> None:
        """Stop delivering, and write down where everybody stands."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._webhooks is not None:
            await self._webhooks.close()

    async def feed(self) -> Feed:
        """The feed, of a log that is made where it is missing. Raises EventLogError."""
        if self._feed is not None and not self._feed.log.is_closed:
            return self._feed
        await asyncio.to_thread(self._store.create, self.settings.log)
        return await self._started()

    async def feed_if_there(self) -> Feed | None:
        """The feed, or None where there is no log yet."""
        if self._feed is not None and not self._feed.log.is_closed:
            return self._feed
        if self.settings.log not in await asyncio.to_thread(self._store.names):
            return None
        return await self._started()

    async def append(self, events: Sequence[Event], known: Sequence[Notification] = ()) -> None:
        """Append to the log; events that it has already, by source and id, are left out. Raises EventLogError.

        `known` is what those of them say whose ids were made here.
        """
        feed, left = await self.feed(), list(events)
        for notification in known:
            feed.announce(notification)
        while left:
            try:
                await feed.asynchronous.append(left)
                return
            except DuplicateEventId as duplicate:
                del left[duplicate.index]

    async def states(self, resource: str) -> list[Stored]:
        """The current states for a resource address, as pattern; those that say that there is none are left out."""
        feed = await self.feed_if_there()
        if feed is None:
            return []
        await self._caught_up(feed)
        found = feed.states.find(Pattern(resource, self.settings.place))
        return [stored for stored in found if not stored.notification.is_absent]

    async def subscribe(self, request: Request, dialect: Dialect, owner: str, base: str) -> Subscription:
        """Register a subscription, after its endpoint was greeted. `base` is the URI before its id.

        Raises InvalidInput, AlreadyThere, ResourceUnknown, HandshakeFailed, TooMany, EventLogError.
        """
        if request.endpoint:
            endpoint_uri(request.endpoint, self.webhooks.allowed, "EndpointUri")
        async with self._alone(owner, "subscription", request.resource, request.endpoint):
            if (known := self.subscriptions.find(request.resource, request.endpoint)) is not None:
                self._revive(known)
                raise AlreadyThere(known)
            self._check_room(self.subscriptions, "subscription", owner)
            feed = await self.feed()
            await self._caught_up(feed)
            made = _subscription(request, dialect, owner, base, feed.position)
            if request.endpoint:
                await self._greet(feed, made)
            await self.subscriptions.put(made)
            feed = await self.feed()  # another one, if the log was made anew meanwhile
            had_endpoint = made.endpoint in feed.endpoints
            feed.subscribe(made)
            if had_endpoint:
                feed.catch_up(made)
                self._revive(made)
            return made

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription; nothing more is sent to it."""
        await self.subscriptions.remove(subscription.id)
        if self._feed is not None and (endpoint := self._feed.unsubscribe(subscription)) is not None:
            await endpoint.stop()

    async def publisher(self, request: Request, dialect: Dialect, owner: str, base: str) -> Publisher:
        """Register a publisher, or answer the one of that resource.

        Raises InvalidInput, HandshakeFailed, TooMany.
        """
        if request.endpoint:
            endpoint_uri(request.endpoint, self.webhooks.allowed, "EndpointUri")
        async with self._alone(owner, "publisher", request.resource):
            if (known := self.publishers.find(request.resource)) is not None:
                return known
            self._check_room(self.publishers, "publisher", owner)
            if request.endpoint:
                _expect_204(await self.webhooks.post(request.endpoint, b"", timeout_s=GREETING_S_V1))
            id = str(uuid.uuid4())
            made = Publisher(id=id, location=f"{base}/{id}", **_common(request, dialect, owner))  # type: ignore[arg-type]
            await self.publishers.put(made)
            return made

    async def ping(self, subscription: Subscription) -> None:
        """Send the current states to a subscription again, out of turn; a suspended endpoint is resumed."""
        feed = await self.feed()
        endpoint = feed.endpoints.get(subscription.endpoint)
        if endpoint is None:
            return
        if endpoint.failures or endpoint.kept.is_suspended:
            endpoint.resume()
        found = feed.states.find(Pattern(subscription.resource, self.settings.place))
        for stored in found[-GREETINGS_MAX:]:
            endpoint.offer_extra(stored, subscription)

    def endpoint(self, subscription: Subscription) -> Endpoint | None:
        """Where a subscription is delivered to, if it is at the moment."""
        return None if self._feed is None else self._feed.endpoints.get(subscription.endpoint)

    def endpoints(self) -> list[Endpoint]:
        """All endpoints that are delivered to at the moment; may be called from any thread."""
        return [] if self._feed is None else list(self._feed.endpoints.values())

    async def resume(self, subscription: Subscription) -> None:
        """Deliver again to a suspended endpoint, and send its dead letters once more."""
        feed = await self.feed()
        if (endpoint := feed.endpoints.get(subscription.endpoint)) is not None:
            endpoint.resume()
            feed.resend(endpoint)

    async def send(self, subscription: Subscription, stored: Stored) -> Outcome:
        """Send one event to one subscription, once. Raises Undeliverable."""
        headers, body = self._rendered(subscription, stored)
        if len(body) > self.settings.event_bytes_max:
            raise Undeliverable(f"{len(body)} bytes, at most {self.settings.event_bytes_max} are delivered")
        return await self.webhooks.post(subscription.endpoint, body, headers)

    def _rendered(self, subscription: Subscription, stored: Stored) -> tuple[Mapping[str, str], bytes]:
        if subscription.mode == BINARY:
            headers, body = rendering.binary(stored.notification, subscription.dialect, stored.sequence_number)
            return {**JSON_HEADERS, **dict(headers)}, body
        settings = self.settings
        wraps, has_unique_ids = settings.v1_wraps, settings.v1_unique_ids
        body = for_dialect(stored, subscription.dialect, subscription.id, wraps=wraps, has_unique_ids=has_unique_ids)
        return JSON_HEADERS, body

    async def _greet(self, feed: Feed, subscription: Subscription) -> None:
        """v1: an empty POST. v2: the current states, each under an id of its own; empty where there is none as yet.

        Every one must be answered with 204. Raises HandshakeFailed, ResourceUnknown.
        """
        if self.settings.webhook_handshake and not await self.webhooks.allows(subscription.endpoint, self.origin):
            raise HandshakeFailed("the endpoint does not allow this server to call it (WebHook-Allowed-Origin)")
        if subscription.dialect is Dialect.V1:
            _expect_204(await self.webhooks.post(subscription.endpoint, b"", timeout_s=GREETING_S_V1))
            return
        pattern = Pattern(subscription.resource, self.settings.place)
        found = feed.states.find(pattern)
        if not found:
            if not any(pattern.matches(parse(its.resource)) for its in self.publishers.by_id.values()):
                raise ResourceUnknown(f"nothing is known of {subscription.resource}")
            _expect_204(await self.webhooks.post(subscription.endpoint, b""))
        for stored in found[-GREETINGS_MAX:]:
            fresh = replace(stored.notification, id=str(uuid.uuid4()))
            greeting = Stored(stored.event, fresh, stored.addresses)
            _expect_204(await self.send(subscription, greeting))

    def _revive(self, subscription: Subscription) -> None:
        """An endpoint that subscribes is there again."""
        endpoint = self.endpoint(subscription)
        if endpoint is not None and endpoint.kept.is_suspended:
            endpoint.resume()

    @contextlib.asynccontextmanager
    async def _alone(self, owner: str, *key: str) -> AsyncIterator[None]:
        """One at a time registers the same thing, so that the second one finds what the first one made."""
        while (other := self._being_made.get(key)) is not None:
            await other.is_over.wait()
        self._being_made[key] = _Making(owner, asyncio.Event())
        try:
            yield
        finally:
            self._being_made.pop(key).is_over.set()

    def _check_room(self, registry: Registry[Subscription] | Registry[Publisher], kind: str, owner: str) -> None:
        """Whether there may be one more, which is being made already. Raises TooMany."""
        made = [its.owner for its in registry.by_id.values()]
        made += [its.owner for key, its in self._being_made.items() if key[0] == kind]
        if len(made) > (limit := self.settings.subscriptions_max):
            raise TooMany(f"there may be {limit} {kind}s")
        # Behind one address there may be many, and addresses are all that is known where there are no users.
        if not owner.startswith("address:") and made.count(owner) > (limit := self.settings.owner_subscriptions_max):
            raise TooMany(f"one user may have {limit} {kind}s")

    async def _caught_up(self, feed: Feed) -> None:
        """Wait until what was appended by now is in the states. A feed that lags for long answers what it has."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await feed.reached(feed.log.head())

    async def _started(self) -> Feed:
        self._wanted.set()
        try:
            async with asyncio.timeout(READY_S):
                while self._feed is None or self._feed.log.is_closed:
                    self._ready.clear()
                    await self._ready.wait()
        except TimeoutError:
            raise Closed(self.settings.log) from None
        return self._feed

    async def _supervise(self) -> None:
        while True:
            try:
                log = await asyncio.to_thread(self._opened)
                if log is not None:
                    await self._follow(log)
            except EventLogError as error:
                _logger.error("log %s cannot be followed at present: %s", self.settings.log, error)
            except Exception:
                _logger.exception("following log %s failed; it is tried again", self.settings.log)
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._wanted.wait()

    def _opened(self) -> LocalLog | None:
        try:
            return self._store.open(self.settings.log)
        except LogNotFound:
            return None

    async def _follow(self, log: LocalLog) -> None:
        feed = Feed(log, self._store.state, self.send, self.settings, self._bus)
        try:
            await asyncio.to_thread(feed.restore)
            kept = await asyncio.to_thread(kept_endpoints, self._store.state)
            for subscription in self.subscriptions.by_id.values():
                feed.subscribe(subscription, kept.get(subscription.endpoint))
            self._feed = feed
            self._ready.set()
            await feed.run()
        finally:
            self._feed = None
            await feed.close()


def _common(request: Request, dialect: Dialect, owner: str) -> dict[str, object]:
    return {
        "resource": request.resource,
        "endpoint": request.endpoint,
        "dialect": dialect,
        "owner": owner,
        "created_at": time.time_ns() // 1_000_000,
    }


def _subscription(request: Request, dialect: Dialect, owner: str, base: str, start: int) -> Subscription:
    id = str(uuid.uuid4())
    common = _common(request, dialect, owner)
    return Subscription(id=id, location=f"{base}/{id}", start=start, mode=request.mode, **common)  # type: ignore[arg-type]


def _expect_204(outcome: Outcome) -> None:
    if outcome.status != 204:
        raise HandshakeFailed(f"the endpoint must answer 204; {outcome.text}")
