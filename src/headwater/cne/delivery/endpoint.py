"""One endpoint: a bounded queue and a worker that POSTs the events of its subscriptions in log order.

    delivering --failure--> retrying --success--> delivering
    retrying --too long, or 410--> suspended --resume--> retrying

Everything up to `cursor` is processed. While the endpoint keeps up, the feed puts events into the queue ("live"). When
the queue is full, after a suspension and after a restart, they are read from the log after the cursor instead
("replay"), and events from the feed are ignored until the log has been read up to the feed's position: so live delivery
never overtakes replay, and no event that the log still has is lost. An event that the subscriber itself refuses becomes
a dead letter: recorded and skipped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from ...core.loop.slices import Slices, turn
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType
from ..notifications.addresses import Address, Pattern
from ..notifications.records import Subscription
from ..notifications.segment_index import PatternIndex
from ..notifications.stored import Stored
from ..settings import Settings
from .delivery import Delivery, Undeliverable
from .kept import Kept
from .owed_states import Owed
from .queue import EventQueue, QueuedBytes
from .upstream import Upstream
from .webhook import NOT_SENT, Outcome, shown

REFUSALS_MAX = 3
"""The number of times that a subscriber may refuse one event before the event becomes a dead letter."""
FAULT_PAUSE_S = 1.0
TURN_PAUSE_S = 0.1
ASKING_MAX = 8
"""The number of address sets that are cached with their subscriptions. There may be thousands of endpoints."""
_logger = logging.getLogger("headwater.cne")


class Standing(StrEnum):
    """The state of an endpoint."""

    DELIVERING = "delivering"
    RETRYING = "retrying"
    SUSPENDED = "suspended"


class Item(NamedTuple):
    """Something to deliver. An extra item is sent out of turn and does not move the cursor."""

    stored: Stored
    extra_for: Subscription | None = None
    is_owed: bool = False
    """Whether it is one of the owed states, which are sent without a request."""


class _EndpointSuspended(Exception):
    """Nothing more will be sent to the endpoint."""


class _Stopped(Exception):
    """The server stops."""


class Endpoint:
    """One URI and its subscriptions. Use it on one event loop; `start` it, and stop it at the end (`stop_all`)."""

    def __init__(
        self,
        uri: str,
        upstream: Upstream,
        delivery: Delivery,
        settings: Settings,
        bus: Bus,
        queued: QueuedBytes,
        *,
        cursor: int,
        kept: Kept,
    ) -> None:
        """Deliver the events after `cursor`; `bus` gets a notification when it begins to fail and when it recovers.

        `queued` counts the waiting events of all endpoints.
        """
        self.uri = uri
        self._upstream, self._delivery, self._settings, self._bus = upstream, delivery, settings, bus
        self._subscriptions = PatternIndex[Subscription]()
        self._asking: dict[tuple[Address, ...], tuple[Subscription, ...]] = {}
        """The subscriptions to events at some addresses, whatever their start."""
        self.kept = kept
        self.cursor = cursor
        self.delivered = 0
        self.failures = 0
        """Consecutive failures."""
        self.outcome: Outcome | None = None
        """The outcome of the most recent call."""
        self.outcome_at = 0
        """The time of the most recent call, in ms since 1970."""
        self._queue = EventQueue(queued, settings.queue_events_max)
        self._extras: deque[Item] = deque()
        self._owed = Owed(upstream)
        self._is_turn_of_states = True
        self._in_flight = False
        self._is_stopping = False
        self._is_replaying = cursor < upstream.position
        self._read_upto = cursor
        self._wake = asyncio.Event()
        self._resumed = asyncio.Event()
        self._failing_since: float | None = None
        self._is_reported = False
        """Whether its failure has been reported, but not its recovery yet."""
        self._task: asyncio.Task[None] | None = None

    @property
    def standing(self) -> Standing:
        """The present state."""
        if self.kept.is_suspended:
            return Standing.SUSPENDED
        return Standing.RETRYING if self.failures else Standing.DELIVERING

    @property
    def is_current(self) -> bool:
        """Whether all offered events have been processed, so that it does not need its own cursor."""
        return not (self._queue or self._in_flight or self._is_replaying or self.kept.is_suspended)

    @property
    def waiting(self) -> int:
        """The number of events waiting in memory."""
        return len(self._queue) + len(self._extras) + len(self._owed) + self._in_flight

    def start(self) -> None:
        """Begin to deliver."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"webhook {self.uri}")

    def begin_stop(self) -> asyncio.Task[None] | None:
        """Start no further delivery. Returns the task; `stop_all` cancels it if it does not end."""
        self._is_stopping = True
        self._wake.set()
        self._resumed.set()
        return self._task

    def stopped(self) -> None:
        """Called when its task has ended. Events waiting in memory no longer count; they are still after the cursor."""
        self._start_over()

    def subscribe(self, subscription: Subscription) -> None:
        """Also deliver to a subscription."""
        self._asking.clear()
        pattern = Pattern(subscription.resource, self._settings.place)
        self._subscriptions.add(subscription.id, pattern, subscription)

    def unsubscribe(self, subscription: Subscription) -> bool:
        """Stop delivering to a subscription. Returns whether there are any others."""
        self._asking.clear()
        self._owed.drop(subscription)
        self._subscriptions.remove(subscription.id)
        return bool(len(self._subscriptions))

    def recipient(self, stored: Stored) -> Subscription | None:
        """The oldest subscription matching an event; only that one gets it."""
        addresses, number = stored.addresses, stored.sequence_number
        asking = self._asking.get(addresses)
        if asking is None:
            asking = self._find(addresses)
        for subscription in asking:
            if subscription.start < number:
                return subscription
        return None

    def _find(self, addresses: tuple[Address, ...]) -> tuple[Subscription, ...]:
        """The subscriptions to events at one of these addresses, oldest first; cached."""
        if len(self._asking) >= ASKING_MAX:
            self._asking.clear()
        found = tuple(
            subscription
            for pattern, subscription in self._subscriptions.candidates(addresses)
            if any(map(pattern.matches, addresses))
        )
        self._asking[addresses] = found
        return found

    def offer(self, stored: Stored) -> None:
        """Accept an event that may match a subscription. The numbers must be ascending."""
        number = stored.sequence_number
        if self.kept.is_suspended or self._is_replaying or number <= self.cursor:
            return
        if self.is_current:
            self.cursor = number - 1
        if not self._queue.append(stored):
            self._is_replaying = True
            self._read_upto = self._queue.last
            return
        if not self._wake.is_set():
            self._upstream.wake(self._wake.set)

    def offer_extra(self, stored: Stored, subscription: Subscription) -> None:
        """Send an event to one subscription, ahead of waiting events."""
        if len(self._extras) < self._settings.queue_events_max:
            self._extras.append(Item(stored, subscription))
            self._wake.set()

    def owe(self, subscription: Subscription, first: int, last: int) -> None:
        """Send the current states with these numbers, both inclusive, to one subscription, alternating with events."""
        if (known := self._subscriptions.get(subscription.id)) is not None:
            pattern, _ = known
            self._owed.add(subscription, pattern, first, last)
            self._wake.set()

    @property
    def passed_over(self) -> int:
        """The number up to which events were skipped, which a new subscription here would miss."""
        if self.kept.is_suspended:
            return 0
        return self._read_upto if self._is_replaying else self._upstream.position

    def resume(self) -> None:
        """Resume a suspended endpoint from its cursor, and retry at once if it is waiting."""
        self.kept.resume()
        self._failing_since = None
        self._resumed.set()
        self._upstream.changed(self.uri)

    async def _run(self) -> None:
        while not self._is_stopping:
            item = None
            self._wake.clear()
            try:
                if self.kept.is_suspended:
                    await self._rest()
                elif (item := await self._next()) is not None:
                    await self._deliver(item)
                elif self._is_replaying:
                    await turn()  # thousands of endpoints may lag after a restart
                    self._replay()
                else:
                    self._note_caught_up()
                    await self._wake.wait()
            except _EndpointSuspended:
                self._put_back(item)
            except _Stopped:
                return
            except Exception:
                # after an internal error, or when the log closes, nothing is lost, because the cursor did not move
                _logger.exception("delivery to %s failed", self.uri)
                self._put_back(item)
                self._start_over()
                await asyncio.sleep(FAULT_PAUSE_S)

    async def _next(self) -> Item | None:
        """The next item to send: first those out of turn, then queued events and owed states alternately."""
        if self._extras:
            self._stand_where_it_is()
            return self._extras.popleft()
        if (self._is_turn_of_states or not self._queue) and (state := await self._owed.next()) is not None:
            self._stand_where_it_is()
            self._is_turn_of_states = False
            return Item(*state, is_owed=True)
        self._is_turn_of_states = True
        return Item(self._queue.popleft()) if self._queue else None

    def _put_back(self, item: Item | None) -> None:
        """Return an item: owed states are sent later, other events are read from the log again."""
        if item is not None and item.is_owed and item.extra_for is not None and self._receiver(item) is not None:
            self._owed.put_back(item.stored, item.extra_for)

    def _receiver(self, item: Item) -> Subscription | None:
        """The subscription that an item is for; None if it was deleted."""
        if item.extra_for is None:
            return self.recipient(item.stored)
        return None if self._subscriptions.get(item.extra_for.id) is None else item.extra_for

    def _stand_where_it_is(self) -> None:
        """Fix the cursor before sending something without its own number, so that processed events are not sent
        again."""
        if self.is_current:
            self.cursor = max(self.cursor, self._upstream.position)

    def _note_caught_up(self) -> None:
        """After a suspension. From now on its position is that of the feed."""
        if self.kept.cursor is not None:
            self.kept.cursor = None
            self._upstream.changed(self.uri)

    def _start_over(self) -> None:
        """Continue from the log at the cursor."""
        self._queue.clear()
        self._in_flight = False
        self._is_replaying, self._read_upto = True, self.cursor

    async def _rest(self) -> None:
        self._start_over()
        self._extras.clear()
        self._resumed.clear()
        await self._resumed.wait()

    def _replay(self) -> None:
        """Fill the queue from the log without yielding, so that no event is missed between the log and the feed."""
        piece = self._upstream.read(self._read_upto)
        if piece.gap is not None:
            self._note_gap(*piece.gap)
        for stored in piece.notifications:
            if self.recipient(stored) is not None and not self._queue.append(stored):
                self._read_upto = self._queue.last  # the log is read again when there is room
                return
        self._read_upto = piece.cursor
        if piece.cursor >= self._upstream.position:
            self._is_replaying = False
        if not self._queue:
            self.cursor = piece.cursor

    async def _deliver(self, item: Item) -> None:
        """Send until the item is delivered or becomes a dead letter. Raises _EndpointSuspended, _Stopped.

        An interrupted delivery stays in flight: the item is not processed, and the cursor does not pass it.
        """
        self._in_flight = True
        refusals = 0
        while (subscription := self._receiver(item)) is not None:
            try:
                outcome = await self._delivery.send(subscription, item.stored)
            except Undeliverable as error:
                self._bury(item.stored, str(error))
                break
            if outcome is NOT_SENT:
                await self._wait_for_turn()
                continue
            self.outcome, self.outcome_at = outcome, time.time_ns() // 1_000_000
            if outcome.is_success:
                self._succeeded(item.stored.sequence_number)
                break
            refusals += outcome.is_refusal
            if refusals >= REFUSALS_MAX:
                self._bury(item.stored, outcome.text)
                break
            await self._back_off(outcome)
        if item.extra_for is None:
            self.cursor = item.stored.sequence_number
        self._in_flight = False

    async def _wait_for_turn(self) -> None:
        """Another server may be sending. Either this server is stopped soon, or its lease continues."""
        if not self._is_stopping:
            await asyncio.sleep(TURN_PAUSE_S)
        if self._is_stopping:
            raise _Stopped

    def _succeeded(self, number: int) -> None:
        self.delivered += 1
        self._delivery.traffic.events_out += 1
        if self.kept.unbury(number):
            self._upstream.changed(self.uri)
        self._failing_since = None
        if self.failures:
            self.failures = 0
            self.kept.problem, self.kept.since = "", 0
            self._upstream.changed(self.uri)
        if self._is_reported:
            self._is_reported = False
            self._bus.emit(NotificationType.WEBHOOK_RECOVERED, log=self._settings.log, endpoint=shown(self.uri))

    async def _back_off(self, outcome: Outcome) -> None:
        """Wait before the next attempt, longer each time. Raises _EndpointSuspended if it has failed for too long."""
        now = time.monotonic()
        self.failures += 1
        self.kept.problem = outcome.text
        if self._failing_since is None:
            self._failing_since = now
            self.kept.since = self.outcome_at
            self._upstream.changed(self.uri)
        if not self._is_reported:
            self._is_reported = True
            log, endpoint = self._settings.log, shown(self.uri)
            self._bus.emit(NotificationType.WEBHOOK_FAILING, log=log, endpoint=endpoint, reason=outcome.text)
        if outcome.status == 410 or now - self._failing_since > self._settings.suspend_after_ms / 1000:
            self.kept.suspend(self.cursor)
            self._upstream.changed(self.uri)
            raise _EndpointSuspended
        if self._is_stopping:
            raise _Stopped
        self._resumed.clear()
        with contextlib.suppress(TimeoutError):
            # Not wait_for, which may swallow a cancellation (Python 3.11).
            async with asyncio.timeout(self._pause_s(outcome)):
                await self._resumed.wait()
        if self._is_stopping:
            raise _Stopped

    def _pause_s(self, outcome: Outcome) -> float:
        """It doubles after each consecutive failure, and is at least as long as the endpoint requests. Both have the
        same limit.
        """
        shortest, longest = self._settings.retry_ms_min / 1000, self._settings.retry_ms_max / 1000
        pause = min(shortest * 2.0 ** min(self.failures - 1, 30), longest)
        return max(pause * random.uniform(0.5, 1.0), min(outcome.retry_after_s, longest))

    def _bury(self, stored: Stored, reason: str) -> None:
        """Record an event as a dead letter."""
        self.kept.bury(stored.sequence_number, stored.notification.id, reason)
        self._upstream.changed(self.uri)

    def _note_gap(self, first: int, last: int) -> None:
        """Record that events were trimmed before delivery, and send the resulting states."""
        self.kept.note_gap(first, last)
        for subscription in self._subscriptions.values():
            self.owe(subscription, first, last)
        self._upstream.changed(self.uri)


async def stop_all(endpoints: Sequence[Endpoint], grace_s: float = 0.0) -> None:
    """Stop endpoints, and cancel tasks that still run after `grace_s`. Cursors do not pass undelivered events."""
    slices, tasks = Slices(), list[asyncio.Task[None]]()
    for endpoint in endpoints:
        await slices.pause()
        if (task := endpoint.begin_stop()) is not None:
            tasks.append(task)
    if running := [task for task in tasks if not task.done()]:
        await asyncio.wait(running, timeout=grace_s)
    late = [task for task in running if not task.done()]
    for task in late:
        await slices.pause()
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for endpoint in endpoints:
        await slices.pause()
        endpoint.stopped()
