"""The logic of the routes: register and greet subscribers and publishers, append, return current states. No HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

from ..core.clocks import wall_clock_ms
from ..core.errors import DuplicateEventId, EventLogError
from ..core.event import Event
from ..core.followers import Follower, FollowerKind, events_behind
from ..core.loop.scheduler import FairScheduler
from ..core.loop.slices import Slices
from ..core.store import LogStore
from ..core.watch.bus import Bus
from ..core.watch.notification_types import NotificationType
from ..core.watch.spans import Spans
from . import repeats
from .conflicts import Conflicts
from .delivery.delivery import GREETINGS_MAX, Delivery
from .delivery.endpoint import Endpoint, Standing, stop_all
from .delivery.webhook import Webhooks, endpoint_uri, shown
from .feed import Feed
from .notifications.addresses import Pattern, canonical, parse
from .notifications.notification import Dialect, Notification
from .notifications.records import MODES, STRUCTURED, Publisher, Request, Subscription
from .notifications.stored import Stored
from .registry import AlreadyThere, Registry, ResourceUnknown, StatesFull
from .settings import Settings
from .supervision import FeedSupervisor

APPEND_ATTEMPTS = 5
"""The number of attempts of an append if others append the same ids at the same time."""
FORGET_S = 60.0
"""The interval between checks for endpoints that have been suspended for too long."""
LANDED_S = 1.0
"""The interval between checks whether a change with an unknown outcome was made."""
_logger = logging.getLogger("headwater.cne")


class Service:
    """One front end's logic, on one event loop: `start` it, and `close` it before the log store."""

    def __init__(
        self,
        store: LogStore,
        settings: Settings,
        bus: Bus,
        turns: FairScheduler | None = None,
        spans: Spans | None = None,
    ) -> None:
        """`bus` gets the notifications of endpoints that fail and recover; `turns` schedules the loop's time; `spans`
        gets the webhook calls.
        """
        self.settings = settings
        self.subscriptions = Registry(store.state, "subscription", Subscription, settings)
        self.publishers = Registry(store.state, "publisher", Publisher, settings)
        self.conflicts = Conflicts()
        self.webhooks = Webhooks(settings, may_act=store.may_act)
        self._bus, self._may_act = bus, store.may_act
        self._delivery = Delivery(self.webhooks, settings, spans)
        self.traffic = self._delivery.traffic
        self._supervisor = FeedSupervisor(store, self.subscriptions, self._delivery, settings, bus, turns)
        self._is_started = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Load the registered subscriptions and publishers, and resume delivery."""
        if self._is_started:
            return
        self._is_started = True
        self.webhooks.start()
        await asyncio.to_thread(self.subscriptions.load)
        await asyncio.to_thread(self.publishers.load)
        self._supervisor.start()
        self._tasks = [
            asyncio.create_task(self._take_landed(), name="late cloud native events"),
            asyncio.create_task(self._forget_suspended(), name="suspended webhooks"),
        ]

    async def close(self) -> None:
        """Stop delivering, and save all positions."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._supervisor.close()
        await self.webhooks.close()

    async def append(self, events: Sequence[Event], known: Sequence[tuple[Event, Notification]] = ()) -> None:
        """Append to the log. Events that are already in the log are skipped. Raises IdReused, EventLogError.

        `known` are events with their already parsed notifications.
        """
        feed = await self._supervisor.feed()
        for event, notification in known:
            feed.announce(event, notification)
        if not events:
            return
        try:
            if len(events) == 1:
                result = await feed.asynchronous.submit_one(events[0])
            else:
                result = await feed.asynchronous.append(events)
        except DuplicateEventId:
            is_new = False
        else:
            is_new = not result.was_stored
        if not is_new:  # rare: the log already has some of them, or other events with their ids
            await self._append_new(feed, events)

    async def _append_new(self, feed: Feed, events: Sequence[Event]) -> None:
        """Append the events that are new to the log, with ids that are new. Raises IdReused, EventLogError."""
        for attempt in range(APPEND_ATTEMPTS):
            if not (left := await asyncio.to_thread(repeats.new_of, feed.log, events)):
                return
            try:
                result = await feed.asynchronous.append(left)
                if not result.was_stored:
                    return
                raise DuplicateEventId(left[0].id, left[0].source, result.first, 0)
            except DuplicateEventId:  # another append happened in between
                if attempt == APPEND_ATTEMPTS - 1:
                    raise

    async def states(self, resource: str) -> list[Stored]:
        """The current states that match a resource address as a pattern, except states that report no data.

        Raises StatesFull, EventLogError.
        """
        feed = await self._supervisor.feed_if_there()
        if feed is None:
            return []
        await feed.caught_up()
        found = await feed.states.find(Pattern(resource, self.settings.place), Slices())
        if not found:
            self._check_states(feed, resource)
        return [stored for stored in found if not stored.notification.is_absent]

    async def subscribe(self, request: Request, dialect: Dialect, owner: str, base: str) -> Subscription:
        """Greet the endpoint, then register a subscription. `base` is the URI before its id.

        Raises InvalidInput, AlreadyThere, ResourceUnknown, StatesFull, HandshakeFailed, TooMany, EventLogError.
        """
        self._check_endpoint(request)
        async with self.subscriptions.alone(owner, canonical(request.resource), request.endpoint):
            if (known := self.subscriptions.find(request.resource, request.endpoint)) is not None:
                self._revive(known)
                raise AlreadyThere(known)
            self.subscriptions.check_room(owner)
            feed, greetings = await self._supervisor.feed(), list[Stored]()
            await feed.caught_up()
            made = self.subscriptions.record_of(
                request, dialect, owner, base, mode=request.mode or self._mode(dialect), start=feed.position
            )
            if made.endpoint:
                await self._delivery.handshake(made.endpoint)
                greetings = await self._greetings(feed, made)
                await self._delivery.greet(made, greetings)
            self.conflicts.settle(owner, made.endpoint)
            await self.subscriptions.put(made)
            await self._deliver(
                await self._supervisor.feed(), made
            )  # a different log, if it was recreated in the meantime
            if len(greetings) > GREETINGS_MAX and (endpoint := self.endpoint(made)) is not None:
                endpoint.owe(made, 1, greetings[-GREETINGS_MAX - 1].sequence_number)
            return made

    async def unsubscribe(self, *subscriptions: Subscription) -> None:
        """Delete subscriptions and stop sending to them. Raises EventLogError: some may still exist."""
        try:
            await self.subscriptions.remove(each.id for each in subscriptions)
        finally:
            await self._end([each for each in subscriptions if each.id not in self.subscriptions.by_id])

    async def _deliver(self, feed: Feed, subscription: Subscription) -> None:
        """Deliver from its start, which may be a moment ago."""
        had_endpoint = subscription.endpoint in feed.endpoints
        feed.subscribe(subscription)
        if had_endpoint:
            await feed.catch_up(subscription)
            self._revive(subscription)

    async def _end(self, subscriptions: Sequence[Subscription]) -> None:
        slices, stopping = Slices(), []
        for each in subscriptions:
            await slices.pause()
            feed = self._supervisor.present
            if feed is not None and (endpoint := feed.unsubscribe(each)) is not None:
                stopping.append(endpoint)
        await stop_all(stopping)

    async def publisher(self, request: Request, dialect: Dialect, owner: str, base: str) -> Publisher:
        """Register a publisher, or return the existing one of that resource. `base` is the URI before its id.

        Raises InvalidInput, HandshakeFailed, TooMany.
        """
        self._check_endpoint(request)
        async with self.publishers.alone(owner, canonical(request.resource)):
            if (known := self.publishers.find(request.resource)) is not None:
                return known
            self.publishers.check_room(owner)
            if request.endpoint:
                await self._delivery.probe(request.endpoint)
            made = self.publishers.record_of(request, dialect, owner, base)
            await self.publishers.put(made)
            return made

    async def ping(self, subscription: Subscription) -> None:
        """Send all current states to a subscription again, alternating with events; resumes a suspended endpoint."""
        feed = await self._supervisor.feed()
        endpoint = feed.endpoints.get(subscription.endpoint)
        if endpoint is None:
            return
        if endpoint.standing is not Standing.DELIVERING:
            endpoint.resume()
        endpoint.owe(subscription, 1, feed.position)

    async def resume(self, subscription: Subscription) -> None:
        """Resume delivery to a suspended endpoint, and resend its dead letters."""
        feed = await self._supervisor.feed()
        if (endpoint := feed.endpoints.get(subscription.endpoint)) is not None:
            endpoint.resume()
            await feed.resend(endpoint)

    def endpoint(self, subscription: Subscription) -> Endpoint | None:
        """The endpoint to which a subscription is currently delivered, if any."""
        feed = self._supervisor.present
        return None if feed is None else feed.endpoints.get(subscription.endpoint)

    def endpoints(self) -> list[Endpoint]:
        """All endpoints that are currently delivered to. Thread-safe."""
        feed = self._supervisor.present
        return [] if feed is None else list(feed.endpoints.values())

    def position(self, subscription: Subscription) -> int | None:
        """The number up to which its endpoint has processed all its events; None if nothing is sent."""
        feed, endpoint = self._supervisor.present, self.endpoint(subscription)
        return None if feed is None or endpoint is None else feed.done_with(endpoint)

    def events_behind(self, subscription: Subscription) -> int | None:
        """The number of events in the log after `position`; None if nothing is sent."""
        feed, position = self._supervisor.present, self.position(subscription)
        return None if feed is None or position is None else events_behind(feed.log, position)

    async def followers(self) -> list[Follower]:
        """The log positions of all subscriptions' webhooks; other tasks get turns in between."""
        found, slices = list[Follower](), Slices()
        for each in list(self.subscriptions.by_id.values()):
            await slices.pause()
            feed, position = self._supervisor.present, self.position(each)
            if feed is not None and position is not None:
                found.append(Follower(feed.log, FollowerKind.WEBHOOK, each.id, "", position))
        return found

    async def _take_landed(self) -> None:
        """Apply changes that took effect after their caller got an unknown outcome."""
        while True:
            await asyncio.sleep(LANDED_S)
            try:
                await self.publishers.take_landed()
                made, removed = await self.subscriptions.take_landed()
                if (feed := self._supervisor.present) is not None:  # otherwise the next feed starts with them
                    for each in made:
                        await self._deliver(feed, each)
                await self._end(removed)
            except EventLogError as error:
                _logger.error("cannot apply late changes to subscriptions at present: %s", error)
            except Exception:
                _logger.exception("applying late changes to subscriptions failed; retrying")

    async def _forget_suspended(self) -> None:
        """Delete the subscriptions of endpoints suspended for longer than the configured time."""
        pause_s = min(FORGET_S, self.settings.forget_after_ms / 1000)
        while True:
            await asyncio.sleep(pause_s)
            try:
                if (feed := self._supervisor.present) is not None and self._may_act():
                    await self._forget(feed, wall_clock_ms() - self.settings.forget_after_ms)
            except EventLogError as error:
                _logger.error("cannot delete subscriptions of suspended webhooks at present: %s", error)
            except Exception:
                _logger.exception("deleting subscriptions of suspended webhooks failed; retrying")

    async def _forget(self, feed: Feed, before: int) -> None:
        due = {endpoint.uri: endpoint for endpoint in feed.suspended() if endpoint.kept.suspended_at <= before}
        if not due:
            return
        forgotten = [each for each in self.subscriptions.by_id.values() if each.endpoint in due]
        counts = Counter(each.endpoint for each in forgotten)
        await self.unsubscribe(*forgotten)
        for uri, endpoint in due.items():
            self._bus.emit(
                NotificationType.WEBHOOK_FORGOTTEN,
                log=self.settings.log,
                endpoint=shown(uri),
                subscriptions=counts[uri],
                missed=events_behind(feed.log, endpoint.cursor),
            )

    def _mode(self, dialect: Dialect) -> str:
        """The delivery mode of a subscription that does not specify one."""
        mode = self.settings.delivery_mode
        return mode if mode in MODES[dialect] else STRUCTURED

    def _check_endpoint(self, request: Request) -> None:
        """Raises InvalidInput if a webhook may not be at that address."""
        if request.endpoint:
            endpoint_uri(request.endpoint, self.webhooks.allowed, "EndpointUri")

    async def _greetings(self, feed: Feed, subscription: Subscription) -> list[Stored]:
        """The current states to greet a subscriber with; none in v1. Raises ResourceUnknown, StatesFull."""
        if subscription.dialect is Dialect.V1:
            return []
        pattern = Pattern(subscription.resource, self.settings.place)
        slices = Slices()
        if found := await feed.states.find(pattern, slices):
            return found
        for known in list(self.publishers.by_id.values()):
            await slices.pause()
            if pattern.matches(parse(known.resource)):
                return []
        self._check_states(feed, subscription.resource)
        raise ResourceUnknown(f"there is no event of {subscription.resource}")

    def _check_states(self, feed: Feed, resource: str) -> None:
        """Raises StatesFull if a resource may be unknown only because there was no room for it."""
        if not feed.states.has_room:
            limit = self.settings.states_max
            raise StatesFull(f"{resource} has no current state: the limit is reached (cne.states_max is {limit})")

    def _revive(self, subscription: Subscription) -> None:
        """Resume an endpoint that subscribes again."""
        endpoint = self.endpoint(subscription)
        if endpoint is not None and endpoint.kept.is_suspended:
            endpoint.resume()
