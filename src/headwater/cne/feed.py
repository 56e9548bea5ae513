"""The feed: follows the log, keeps the current states, and offers each event to the endpoints subscribed to it.

It has a single position. The results are saved a few times a second and then acknowledged to the log: after a crash in
between it delivers again, or reads events from the log again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from ..core.errors import EventLogError, PositionOfOtherIncarnation, PositionTrimmed
from ..core.event import Event, SequencedEvent
from ..core.local import LocalLog
from ..core.loop.async_log import AsyncLog
from ..core.loop.scheduler import FairScheduler
from ..core.loop.slices import Slices, turn
from ..core.query import ALL
from ..core.state import StateStore
from ..core.watch.bus import Bus
from ..formats import envelope
from ..formats.decoders import json_decoder
from .delivery.delivery import Delivery
from .delivery.endpoint import Endpoint, stop_all
from .delivery.kept import Kept
from .delivery.queue import QueuedBytes
from .delivery.routes import Addresses, Routes
from .delivery.upstream import FeedPiece, Upstream
from .delivery.wakes import Wakes
from .notifications.addresses import Pattern
from .notifications.notification import Notification
from .notifications.records import Subscription
from .notifications.stored import Stored, bytes_of, stored_of
from .settings import Settings
from .states import Key, States

CONSUMER = ("headwater", "cne")
"""The consumer that the feed is registered as in its log, so that no event is trimmed before the states include it."""
_ENDPOINT_KIND, _POSITION_KIND = "cne/endpoint", "cne/position"
_SEPARATOR = "\n"
"""In the name of a state, between its address and what distinguishes the sources there."""


class FeedPositions(msgspec.Struct):
    """The positions of the feed and of the endpoints that lag behind it. Suspended ones have `Kept.cursor`."""

    position: int
    behind: dict[str, int] = {}


class Checkpoint(NamedTuple):
    """The state that was read back after a restart."""

    position: int
    """Every event up to it has been processed."""
    positions: FeedPositions
    """The checkpoint that was last written for a log of this name."""
    states: list[tuple[str, SequencedEvent, bool]]
    """Addresses with their current events, in order of number; False: stored under its earlier name."""
    endpoints: dict[str, Kept]
    """By URI."""


class Checkpoints:
    """The checkpoints of the feed of one open log. Reading and writing blocks."""

    def __init__(self, log: LocalLog, state: StateStore) -> None:
        self._log, self._state = log, state
        self._state_kind = f"cne/state/{log.name}"
        self._early: set[str] = set()
        """Addresses under which earlier versions stored one event, and where that entry still exists."""

    def read(self) -> Checkpoint:
        """Register the feed in its log, and read the last checkpoint. Raises EventLogError.

        Cursors are valid for every log of this name, because numbers are never reused under a name. States belong to
        one log: they continue with a restored log, whose consumers are restored with it, but not with a new one.
        """
        entry = self._state.get(_POSITION_KIND, self._log.name)
        positions = json_decoder(FeedPositions).decode(entry.value) if entry else FeedPositions(0)
        consumer = self._log.register_consumer(*CONSUMER, after=0)
        states = []
        for name, row in list(self._state.items(self._state_kind)):
            if consumer.epoch == 1:
                self._state.delete(self._state_kind, name)
            else:
                address, separator, _ = name.partition(_SEPARATOR)
                states.append((address, envelope.decode_event(row.value), bool(separator)))
        self._early = {address for address, _, is_saved in states if not is_saved}
        states.sort(key=lambda pair: pair[1].sequence_number)
        kept = [json_decoder(Kept).decode(row.value) for _, row in self._state.items(_ENDPOINT_KIND)]
        return Checkpoint(consumer.acknowledged, positions, states, {each.uri: each for each in kept})

    def write(
        self,
        states: Mapping[Key, SequencedEvent | None],
        endpoints: Mapping[str, bytes | None],
        positions: FeedPositions,
    ) -> None:
        """Save the changes (None: deleted), and acknowledge them. Raises EventLogError.

        `endpoints` are encoded, because they may change in the meantime.
        """
        for key, event in states.items():
            self._put(self._state_kind, _name(key), None if event is None else envelope.encode_event(event))
            if key[0] in self._early:
                self._put(self._state_kind, key[0], None)
                self._early.discard(key[0])
        for uri, kept in endpoints.items():
            self._put(_ENDPOINT_KIND, uri, kept)
        self._put(_POSITION_KIND, self._log.name, msgspec.json.encode(positions))
        if not self._log.is_closed:
            self._log.acknowledge(*CONSUMER, positions.position)

    def _put(self, kind: str, name: str, value: bytes | None) -> None:
        if value is None:
            self._state.delete(kind, name)
        else:
            self._state.put(kind, name, value, is_durable=False)


def _name(key: Key) -> str:
    """The name under which a state is stored; short even for a long source."""
    address, (source, addresses) = key
    return f"{address}{_SEPARATOR}{blake2b(source.encode() + addresses, digest_size=8).hexdigest()}"


CATCH_UP_S = 5.0
"""How long a request for a state waits for the feed; after that it may return an older one."""
SAVE_INTERVAL_S = 0.2
GRACE_S = 2.0
PIECE_EVENTS = 100
PARSED_MAX, PARSED_BYTES_MAX = 1024, 16 * 1024 * 1024
ANNOUNCED_MAX, ANNOUNCED_BYTES_MAX = 2048, 16 * 1024 * 1024
TURN_EVENTS = 20
"""The maximum number of events per step, after which other tasks on the loop get their turn."""
DATA_BYTES_FACTOR = 4
"""Data larger than the largest delivery by this factor is not read at all."""

_logger = logging.getLogger("headwater.cne")


class Feed(Upstream):
    """The feed of one open log, on one event loop. `restore` it, then `run` it."""

    def __init__(
        self,
        log: LocalLog,
        state: StateStore,
        delivery: Delivery,
        settings: Settings,
        bus: Bus,
        turns: FairScheduler | None = None,
    ) -> None:
        """`bus` gets the notifications of endpoints that fail and recover; `turns` schedules the loop's time."""
        self.log = log
        self._turns = turns or FairScheduler()
        self.asynchronous = AsyncLog(log, self._turns, delivery.traffic)
        self.states = States(settings.states_max)
        self.position = 0
        self.endpoints: dict[str, Endpoint] = {}
        self._active: dict[str, Endpoint] = {}
        """All endpoints except suspended ones, which have no cost while events arrive."""
        self._delivery, self._settings, self._bus = delivery, settings, bus
        self._checkpoints = Checkpoints(log, state)
        self._routes = Routes(self._active)
        self._wakes = Wakes()
        self._parsed: OrderedDict[int, Stored | None] = OrderedDict()
        self._parsed_bytes = 0
        self._queued = QueuedBytes()
        """Counts the waiting events of all endpoints."""
        self._announced: dict[str, tuple[Event, Notification]] = {}
        self._announced_bytes = 0
        """By id: other producers may use the same id, and even the same source."""
        self._positions = FeedPositions(0)
        self._saved: FeedPositions | None = None
        self._unsaved: set[str] = set()
        self._moved = asyncio.Event()
        self._saving = asyncio.Lock()
        self._is_looked_up = False
        """Whether the route of the next event has been looked up."""

    def restore(self) -> dict[str, Kept]:
        """Continue where the last feed of this log stopped; returns the stored endpoints by URI. Blocks."""
        found = self._checkpoints.read()
        self.position, self._positions = found.position, found.positions
        for address, event, is_saved in found.states:
            if (stored := self._stored(event)) is not None:
                self.states.restore(stored, address, is_saved=is_saved)
        return found.endpoints

    def announce(self, event: Event, notification: Notification) -> None:
        """Pass on the notification of an event about to be appended, so that it need not be parsed again."""
        if len(self._announced) >= ANNOUNCED_MAX or self._announced_bytes >= ANNOUNCED_BYTES_MAX:
            self._announced.clear()
            self._announced_bytes = 0
        self._announced_bytes += bytes_of(event.data)
        self._announced[event.id] = event, notification

    def subscribe(self, subscription: Subscription, kept: Kept | None = None) -> None:
        """Deliver to a subscription from its start on; creates the endpoint for its first subscription."""
        uri = subscription.endpoint
        if uri:
            self._routes.add(subscription, Pattern(subscription.resource, self._settings.place))
            (self.endpoints.get(uri) or self._endpoint(uri, subscription.start, kept)).subscribe(subscription)

    async def catch_up(self, subscription: Subscription) -> None:
        """Send the events that arrived between a new subscription's greeting and its registration."""
        endpoint, after = self.endpoints[subscription.endpoint], subscription.start
        upto = endpoint.passed_over
        while after < upto:
            piece = self.read(after)
            for stored in piece.notifications:
                if stored.sequence_number <= upto and endpoint.recipient(stored) is subscription:
                    endpoint.offer_extra(stored, subscription)
            after = piece.cursor
            await turn()

    async def resend(self, endpoint: Endpoint) -> None:
        """Send an endpoint's dead letters again if the log still has them; they stay listed until delivered."""
        slices = Slices()
        for letter in endpoint.kept.dead_letters:
            page = self.log.read_page(ALL, letter.sequence_number - 1, upto=letter.sequence_number, limit=1)
            stored = self._stored(page.events[0]) if page.events else None
            subscription = None if stored is None else endpoint.recipient(stored)
            if stored is not None and subscription is not None:
                endpoint.offer_extra(stored, subscription)
            await slices.pause()

    def unsubscribe(self, subscription: Subscription) -> Endpoint | None:
        """Stop delivering to a subscription; returns the endpoint to stop if that was its last one."""
        self._routes.remove(subscription)
        endpoint = self.endpoints.get(subscription.endpoint)
        if endpoint is None or endpoint.unsubscribe(subscription):
            return None
        self._unsaved.add(endpoint.uri)
        self._active.pop(endpoint.uri, None)
        return self.endpoints.pop(endpoint.uri)

    async def run(self) -> None:
        """Follow the log until it closes."""
        saver = asyncio.create_task(self._save_now_and_then())
        flow = self._turns.flow("", "the feed")
        try:
            async with contextlib.aclosing(self.asynchronous.follow(self.position, flow=flow)) as pages:
                async for page in pages:
                    taken = 0
                    while taken < len(page.events):
                        count, lacking = await self._turns.do(flow, partial(self._take_some, page.events, taken))
                        taken += count
                        if lacking is not None:
                            await self._routes.look_up(lacking)
                    self.position = max(self.position, page.cursor)
                    self._moved.set()
        finally:
            saver.cancel()

    async def caught_up(self) -> None:
        """Wait until the states include everything that is now in the log. There is a timeout, in case the feed
        lags.
        """
        number = self.log.head()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while self.position < number:
                    self._moved.clear()
                    await self._moved.wait()

    async def close(self) -> None:
        """Let every endpoint finish its current work within a short time, and save their positions."""
        try:
            await stop_all(list(self.endpoints.values()), GRACE_S)
            if not self.log.is_closed:
                await self.save()
        finally:
            self.leave()

    def leave(self) -> None:
        """Stop watching the log."""
        self.asynchronous.close()

    def read(self, after: int) -> FeedPiece:
        gap = None
        first = self._first_retained(after)
        if first - 1 > after:
            gap = (after + 1, min(first - 1, self.position))
            after = gap[1]
        page = self.log.read_page(ALL, after, upto=self.position, limit=PIECE_EVENTS)
        found = [stored for stored in map(self._stored, page.events) if stored is not None]
        return FeedPiece(found, max(page.cursor, after), gap)

    async def newest_between(self, first: int, last: int, pattern: Pattern) -> list[Stored]:
        return await self.states.find(pattern, Slices(), first, last)

    def is_state(self, stored: Stored) -> bool:
        return self.states.has(stored)

    def wake(self, wake: Callable[[], object]) -> None:
        self._wakes.wake(wake)

    def done_with(self, endpoint: Endpoint) -> int:
        """The number up to which an endpoint has processed all its events. On the event loop only."""
        return max(self.position, endpoint.cursor) if endpoint.is_current else endpoint.cursor

    def changed(self, uri: str) -> None:
        self._unsaved.add(uri)
        endpoint = self.endpoints.get(uri)
        if endpoint is not None and endpoint.kept.is_suspended is (uri in self._active):
            if endpoint.kept.is_suspended:
                del self._active[uri]
            else:
                self._active[uri] = endpoint
            self._routes.changed()

    def suspended(self) -> list[Endpoint]:
        """The suspended endpoints."""
        if len(self._active) == len(self.endpoints):
            return []
        return [endpoint for uri, endpoint in self.endpoints.items() if uri not in self._active]

    async def save(self) -> None:
        """Save everything that has changed since the last call, and acknowledge it to the log."""
        async with self._saving:
            keys, uris, positions = self.states.unsaved, self._unsaved, self._present_positions()
            if not keys and not uris and positions == self._saved:
                return
            self.states.unsaved, self._unsaved = set(), set()
            try:
                slices = Slices()
                states, endpoints = dict[Key, SequencedEvent | None](), dict[str, bytes | None]()
                for key in keys:
                    await slices.pause()
                    states[key] = self.states.get(key)
                for uri in uris:
                    await slices.pause()
                    endpoints[uri] = self._encoded_kept(uri)
                await asyncio.to_thread(self._checkpoints.write, states, endpoints, positions)
            except BaseException:
                self.states.unsaved |= keys
                self._unsaved |= uris
                raise
            self._saved = positions

    def _endpoint(self, uri: str, start: int, kept: Kept | None) -> Endpoint:
        kept, behind = kept or Kept(uri=uri), self._positions.behind.pop(uri, None)
        known = [number for number in (behind, kept.cursor) if number is not None]
        cursor = max(*known, start) if known else max(self._positions.position, start)
        if kept.is_suspended and kept.suspended_at == 0:  # an earlier version suspended it
            kept.suspend(cursor)
            self._unsaved.add(uri)
        made = Endpoint(uri, self, self._delivery, self._settings, self._bus, self._queued, cursor=cursor, kept=kept)
        self.endpoints[uri] = made
        if not kept.is_suspended:
            self._active[uri] = made
        made.start()
        return made

    def _take_some(self, events: Sequence[SequencedEvent], taken: int) -> tuple[int, Addresses | None]:
        """Take events from index `taken` on, until the time slice ends or a route must be looked up.

        Returns how many are taken, and the addresses of that route. The route of the first one has been looked up; if
        it is missing anyway, it is found at once.
        """
        self._turns.activity.what = "cne", "feed"
        slices, is_looked_up = Slices(), self._is_looked_up
        self._is_looked_up = False
        for count, event in enumerate(events[taken : taken + TURN_EVENTS]):
            if count and slices.is_over:
                return count, None
            stored = self._stored(event)
            if stored is not None and self._routes.known(stored.addresses) is None and not is_looked_up:
                self._is_looked_up = True
                return count, stored.addresses
            self._take(event, stored)
            is_looked_up = False
        return min(TURN_EVENTS, len(events) - taken), None

    def _take(self, event: SequencedEvent, stored: Stored | None) -> None:
        """Process one event without yielding, because no task may see the position while only some queues have the
        event.
        """
        number = event.sequence_number
        if stored is not None:
            self.states.apply(stored)
            for endpoint, start in self._routes.find(stored.addresses):
                if start < number:
                    endpoint.offer(stored)
        self.position = number

    def _stored(self, event: SequencedEvent) -> Stored | None:
        """The notification in an event; cached, because several endpoints may read it."""
        number = event.sequence_number
        if number in self._parsed:
            return self._parsed[number]
        stored = stored_of(event, DATA_BYTES_FACTOR * self._settings.event_bytes_max, self._known(event))
        self._parsed[number] = stored
        self._parsed_bytes += 0 if stored is None else stored.bytes
        while len(self._parsed) > PARSED_MAX or self._parsed_bytes > PARSED_BYTES_MAX:
            _, oldest = self._parsed.popitem(last=False)
            self._parsed_bytes -= 0 if oldest is None else oldest.bytes
        return stored

    def _known(self, event: SequencedEvent) -> Notification | None:
        """The announced notification of an event of the log, if exactly that event was announced."""
        announced = self._announced.pop(event.id, None)
        if announced is None:
            return None
        given, notification = announced
        self._announced_bytes -= bytes_of(given.data)
        is_it = (event.type, event.data, event.source, event.attributes) == (given[0], given[1], given[4], given[5])
        return notification if is_it else None

    def _first_retained(self, after: int) -> int:
        """The first number above `after` that can still be read after trims."""
        try:
            self.log.check_position(after + 1)
        except PositionTrimmed as trimmed:
            return trimmed.first_retained
        except PositionOfOtherIncarnation as foreign:
            return foreign.first
        return after + 1

    async def _save_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            try:
                await self.save()
            except EventLogError as error:
                _logger.warning("cannot store the positions of the webhooks; retrying: %s", error)
            except Exception:  # a full disk, with any error of the state store
                _logger.exception("cannot store the positions of the webhooks; retrying")

    def _encoded_kept(self, uri: str) -> bytes | None:
        endpoint = self.endpoints.get(uri)
        return None if endpoint is None else msgspec.json.encode(endpoint.kept)

    def _present_positions(self) -> FeedPositions:
        lagging = {
            uri: endpoint.cursor
            for uri, endpoint in self._active.items()  # the position of suspended endpoints is in their own record
            if not endpoint.is_current or endpoint.cursor > self.position
        }
        return FeedPositions(self.position, lagging)
