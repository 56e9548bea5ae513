"""The feed: follows the log, keeps the current states, and offers each event to the endpoints that ask for it.

One position for all of it. What it led to is written to the state store a few times a second (the states that changed,
then the cursors of the endpoints that lag), and then acknowledged: the feed is a registered consumer of the log, so
that nothing is trimmed before the states have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from ..core.asynchronous import AsyncLog
from ..core.bus import Bus
from ..core.errors import EventLogError, PositionOfOtherIncarnation, PositionTrimmed
from ..core.event import SequencedEvent
from ..core.local import LocalLog
from ..core.query import ALL
from ..core.state import StateStore
from ..formats import envelope
from .addresses import Address, Pattern
from .endpoint import Endpoint, Kept, Piece, Send
from .notification import Notification
from .records import Subscription
from .settings import Settings
from .states import States
from .stored import Stored, stored_of

CONSUMER = ("headwater", "cne")
"""Under which the feed is registered."""
SAVE_INTERVAL_S = 0.2
GRACE_S = 2.0
PIECE_EVENTS = 100
PARSED_MAX = 1024
ROUTES_MAX = 4096
TURN_EVENTS = 20
"""Events after which others on the loop get their turn."""
DATA_BYTES_FACTOR = 4
"""Data so many times larger than the largest delivery is not even looked at."""

_logger = logging.getLogger("headwater.cne")
_ENDPOINT_KIND, _POSITION_KIND = "cne/endpoint", "cne/position"


class Positions(msgspec.Struct):
    """Where everybody stands, as it is kept: the feed, and the endpoints that lag behind it."""

    position: int
    behind: dict[str, int] = {}


class Feed:
    """The feed of one open log, on one event loop. `restore` it, then `run` it."""

    def __init__(
        self, log: LocalLog, state: StateStore, send: Send, settings: Settings, bus: Bus | None = None
    ) -> None:
        """`bus` is told of endpoints that fail and recover."""
        self._bus = bus or Bus()
        self.log = log
        self.asynchronous = AsyncLog(log)
        self.states = States()
        self.position = 0
        self.endpoints: dict[str, Endpoint] = {}
        self._state, self._send, self._settings = state, send, settings
        self._state_kind = f"cne/state/{log.name}"
        self._patterns: dict[str, Pattern] = {}
        self._routes: dict[tuple[Address, ...], tuple[Endpoint, ...]] = {}
        self._parsed: OrderedDict[int, Stored | None] = OrderedDict()
        self._announced: dict[str, Notification] = {}
        self._positions = Positions(0)
        self._saved: Positions | None = None
        self._unsaved: set[str] = set()
        self._moved = asyncio.Event()
        self._saving = asyncio.Lock()

    def restore(self) -> None:
        """Read what was kept; blocks.

        Cursors hold for every log of this name, because numbers never come twice under a name. States are those of one
        log: they go on with a restored one, whose consumers are restored with it, and not with one that is new.
        """
        entry = self._state.get(_POSITION_KIND, self.log.name)
        self._positions = msgspec.json.decode(entry.value, type=Positions) if entry else Positions(0)
        consumer = self.log.register_consumer(*CONSUMER, after=0)
        self.position = consumer.acknowledged
        kept = list(self._state.items(self._state_kind))
        if consumer.epoch == 1:
            for address, _ in kept:
                self._state.delete(self._state_kind, address)
            return
        restored = [(address, envelope.decode_event(row.value)) for address, row in kept]
        for address, event in sorted(restored, key=lambda pair: pair[1].sequence_number):
            if (stored := self._stored(event)) is not None:
                self.states.restore(stored, address)

    def announce(self, notification: Notification) -> None:
        """Say what an event that is about to be appended means, so that it need not be read once more."""
        if len(self._announced) >= PARSED_MAX:
            self._announced.clear()
        self._announced[notification.id] = notification

    def subscribe(self, subscription: Subscription, kept: Kept | None = None) -> None:
        """Deliver to a subscription from its start on; makes its endpoint where it is the first there."""
        self._patterns[subscription.id] = Pattern(subscription.resource, self._settings.place)
        self._routes.clear()
        if not subscription.endpoint:
            return
        endpoint = self.endpoints.get(subscription.endpoint)
        if endpoint is None:
            endpoint = self._endpoint(subscription, kept)
        endpoint.subscriptions[subscription.id] = subscription

    def catch_up(self, subscription: Subscription) -> None:
        """Send what came between the greeting of a new subscription and its registration, if anything did."""
        endpoint, after = self.endpoints[subscription.endpoint], subscription.start
        while after < self.position:
            piece = self.read(after)
            for stored in piece.notifications:
                if endpoint.misses(stored.sequence_number) and self._asks(endpoint, stored) is subscription:
                    endpoint.offer_extra(stored, subscription)
            after = piece.cursor

    def resend(self, endpoint: Endpoint) -> None:
        """Send the dead letters of an endpoint again, as far as the log still has them; they stay until they arrive."""
        for letter in endpoint.kept.dead_letters:
            page = self.log.read_page(ALL, letter.sequence_number - 1, upto=letter.sequence_number, limit=1)
            stored = self._stored(page.events[0]) if page.events else None
            subscription = None if stored is None else self._asks(endpoint, stored)
            if stored is not None and subscription is not None:
                endpoint.offer_extra(stored, subscription)

    def unsubscribe(self, subscription: Subscription) -> Endpoint | None:
        """Deliver to it no more; answers the endpoint if that was its last one, to be stopped."""
        self._patterns.pop(subscription.id, None)
        self._routes.clear()
        endpoint = self.endpoints.get(subscription.endpoint)
        if endpoint is None:
            return None
        endpoint.subscriptions.pop(subscription.id, None)
        if endpoint.subscriptions:
            return None
        self._unsaved.add(endpoint.uri)
        return self.endpoints.pop(endpoint.uri)

    async def run(self) -> None:
        """Follow the log until it closes."""
        saver = asyncio.create_task(self._save_now_and_then())
        try:
            async with contextlib.aclosing(self.asynchronous.follow(self.position)) as pages:
                async for page in pages:
                    for index, event in enumerate(page.events, 1):
                        self._take(event)
                        if index % TURN_EVENTS == 0:
                            await asyncio.sleep(0)
                    self.position = max(self.position, page.cursor)
                    self._tell()
        finally:
            saver.cancel()

    async def reached(self, number: int) -> None:
        """Wait until the feed has dealt with that event."""
        while self.position < number:
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        """Let every endpoint finish what it is at, within a moment, and write down where they stand."""
        await asyncio.gather(*(endpoint.stop(GRACE_S) for endpoint in self.endpoints.values()))
        if not self.log.is_closed:
            await self.save()
        self.asynchronous.close()

    def read(self, after: int) -> Piece:
        """See endpoint.Feed."""
        gap = None
        first = self._first_retained(after)
        if first - 1 > after:
            gap = (after + 1, min(first - 1, self.position))
            after = gap[1]
        page = self.log.read_page(ALL, after, upto=self.position, limit=PIECE_EVENTS)
        found = [stored for stored in map(self._stored, page.events) if stored is not None]
        return Piece(found, max(page.cursor, after), gap)

    def newest_between(self, after: int, upto: int, subscription: Subscription) -> list[Stored]:
        """See endpoint.Feed."""
        found = self.states.find(self._patterns[subscription.id])
        return [stored for stored in found if after <= stored.sequence_number <= upto]

    def changed(self, endpoint: Endpoint) -> None:
        """See endpoint.Feed."""
        self._unsaved.add(endpoint.uri)

    async def save(self) -> None:
        """Write down what changed since the last time, and acknowledge it to the log."""
        async with self._saving:
            addresses, uris, positions = self.states.unsaved, self._unsaved, self._present_positions()
            if not addresses and not uris and positions == self._saved:
                return
            self.states.unsaved, self._unsaved = set(), set()
            try:
                await asyncio.to_thread(self._write, self._changes(addresses, uris), positions)
            except BaseException:
                self.states.unsaved |= addresses
                self._unsaved |= uris
                raise
            self._saved = positions

    def _endpoint(self, subscription: Subscription, kept: Kept | None) -> Endpoint:
        uri = subscription.endpoint
        cursor = max(self._positions.behind.pop(uri, self._positions.position), subscription.start)
        made = Endpoint(uri, self, self._send, self._settings, cursor=cursor, kept=kept, bus=self._bus)
        made.asks = lambda stored: self._asks(made, stored)
        self.endpoints[uri] = made
        made.start()
        return made

    def _asks(self, endpoint: Endpoint, stored: Stored) -> Subscription | None:
        """The oldest subscription of an endpoint that asks for an event: it gets it, the others do not again."""
        for subscription in endpoint.subscriptions.values():
            if subscription.start < stored.sequence_number:
                pattern = self._patterns[subscription.id]
                if any(pattern.matches(address) for address in stored.addresses):
                    return subscription
        return None

    def _take(self, event: SequencedEvent) -> None:
        """One event, in one go: nobody may see the position between the endpoints' queues."""
        stored = self._stored(event)
        if stored is not None:
            self.states.apply(stored)
            for endpoint in self._route(stored):
                if endpoint.asks(stored) is not None:
                    endpoint.offer(stored)
        self.position = event.sequence_number

    def _route(self, stored: Stored) -> tuple[Endpoint, ...]:
        """The endpoints with a subscription for these addresses."""
        found = self._routes.get(stored.addresses)
        if found is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            found = self._routes[stored.addresses] = tuple(
                endpoint
                for endpoint in self.endpoints.values()
                if any(
                    self._patterns[id].matches(address) for id in endpoint.subscriptions for address in stored.addresses
                )
            )
        return found

    def _stored(self, event: SequencedEvent) -> Stored | None:
        """The notification that an event is; remembered, because several endpoints may read it."""
        number = event.sequence_number
        if number in self._parsed:
            return self._parsed[number]
        known = self._announced.pop(event.id, None)
        stored = stored_of(event, DATA_BYTES_FACTOR * self._settings.event_bytes_max, known)
        self._parsed[number] = stored
        if len(self._parsed) > PARSED_MAX:
            self._parsed.popitem(last=False)
        return stored

    def _first_retained(self, after: int) -> int:
        """The first number above `after` that can still be read, as far as events were trimmed."""
        try:
            self.log.check_position(after + 1)
        except PositionTrimmed as trimmed:
            return trimmed.first_retained
        except PositionOfOtherIncarnation as foreign:
            return foreign.first
        return after + 1

    def _tell(self) -> None:
        self._moved.set()

    async def _save_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            try:
                await self.save()
            except EventLogError as error:
                _logger.warning("cannot write down where the webhooks stand, will try again: %s", error)
            except Exception:  # a full disk, in whatever words the state store has for it
                _logger.exception("cannot write down where the webhooks stand, will try again")

    def _changes(self, addresses: set[str], uris: set[str]) -> list[Callable[[], object]]:
        """The writes that are due."""
        due = [self._state_write(address, self.states.get(address)) for address in addresses]
        for uri in uris:
            endpoint = self.endpoints.get(uri)
            due.append(self._endpoint_write(uri, None if endpoint is None else msgspec.json.encode(endpoint.kept)))
        return due

    def _state_write(self, address: str, event: SequencedEvent | None) -> Callable[[], object]:
        if event is None:
            return lambda: self._state.delete(self._state_kind, address)
        return lambda: self._state.put(self._state_kind, address, envelope.encode_event(event), is_durable=False)

    def _endpoint_write(self, uri: str, kept: bytes | None) -> Callable[[], object]:
        if kept is None:
            return lambda: self._state.delete(_ENDPOINT_KIND, uri)
        return lambda: self._state.put(_ENDPOINT_KIND, uri, kept, is_durable=False)

    def _present_positions(self) -> Positions:
        lagging = {
            uri: its.cursor for uri, its in self.endpoints.items() if not its.is_current or its.cursor > self.position
        }
        return Positions(self.position, lagging)

    def _write(self, changes: list[Callable[[], object]], positions: Positions) -> None:
        """In this order: whatever is lost by a crash in between is delivered again, or taken from the log again."""
        for change in changes:
            change()
        self._state.put(_POSITION_KIND, self.log.name, msgspec.json.encode(positions), is_durable=False)
        if not self.log.is_closed:
            self.log.acknowledge(*CONSUMER, positions.position)


def kept_endpoints(state: StateStore) -> dict[str, Kept]:
    """What is remembered of endpoints; blocks."""
    found = [msgspec.json.decode(entry.value, type=Kept) for _, entry in state.items(_ENDPOINT_KIND)]
    return {kept.uri: kept for kept in found}
