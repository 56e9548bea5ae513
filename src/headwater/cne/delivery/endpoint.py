"""One endpoint: a bounded queue and a worker that POSTs what its subscriptions ask for, in the order of the log.

    delivering --failure--> retrying --success--> delivering
    retrying --too long, or 410--> suspended --resume--> retrying

Everything up to `cursor` is done with. While the endpoint keeps up, events come from the feed into the queue ("live").
When the queue is full, after a suspension and after a restart, they are read from the log behind the cursor instead
("replay"), and the feed's are left out until the log has been read up to the feed's position: so live never overtakes
replay, and no event is lost that the log still has. What the subscriber itself refuses is a dead letter: recorded, and
passed over.
"""

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
"""How often a subscriber may refuse one event before it is a dead letter."""
FAULT_PAUSE_S = 1.0
TURN_PAUSE_S = 0.1
ASKING_MAX = 8
"""Of the addresses of events, so many are remembered with who asks for them: there may be thousands of endpoints."""
_logger = logging.getLogger("headwater.cne")


class Standing(StrEnum):
    """Where an endpoint stands."""

    DELIVERING = "delivering"
    RETRYING = "retrying"
    SUSPENDED = "suspended"


class Item(NamedTuple):
    """Something to deliver. An extra one is sent out of turn, and moves no cursor."""

    stored: Stored
    extra_for: Subscription | None = None
    is_owed: bool = False
    """Whether it is one of the states that are owed."""


class _EndpointSuspended(Exception):
    """Nothing more is sent to the endpoint."""


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
        """Deliver what comes after `cursor`; `bus` gets a notification when it begins to fail, and when it recovers.

        `queued` counts the events that wait, of all endpoints.
        """
        self.uri = uri
        self._upstream, self._delivery, self._settings, self._bus = upstream, delivery, settings, bus
        self._subscriptions = PatternIndex[Subscription]()
        self._asking: dict[tuple[Address, ...], tuple[Subscription, ...]] = {}
        """Those of them that ask for events at some addresses, wherever they start."""
        self.kept = kept
        self.cursor = cursor
        self.delivered = 0
        self.failures = 0
        """In a row."""
        self.outcome: Outcome | None = None
        """Of the last call."""
        self.outcome_at = 0
        """When that was, in ms since 1970."""
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
        """Whether there was a notification that it fails, and none yet that it has recovered."""
        self._task: asyncio.Task[None] | None = None

    @property
    def standing(self) -> Standing:
        """Where it stands."""
        if self.kept.is_suspended:
            return Standing.SUSPENDED
        return Standing.RETRYING if self.failures else Standing.DELIVERING

    @property
    def is_current(self) -> bool:
        """Whether everything that was offered is done with, so that it needs no cursor of its own."""
        return not (self._queue or self._in_flight or self._is_replaying or self.kept.is_suspended)

    @property
    def waiting(self) -> int:
        """How many events wait in memory."""
        return len(self._queue) + len(self._extras) + len(self._owed) + self._in_flight

    def start(self) -> None:
        """Begin to deliver."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"webhook {self.uri}")

    def begin_stop(self) -> asyncio.Task[None] | None:
        """Begin nothing more. Answers the task; `stop_all` cancels it if it does not end."""
        self._is_stopping = True
        self._wake.set()
        self._resumed.set()
        return self._task

    def stopped(self) -> None:
        """Its task has ended. Waiting events in memory count no more, and are still behind the cursor."""
        self._start_over()

    def subscribe(self, subscription: Subscription) -> None:
        """Deliver to a subscription too."""
        self._asking.clear()
        pattern = Pattern(subscription.resource, self._settings.place)
        self._subscriptions.add(subscription.id, pattern, subscription)

    def unsubscribe(self, subscription: Subscription) -> bool:
        """Deliver to a subscription no more; whether others are left."""
        self._asking.clear()
        self._owed.drop(subscription)
        self._subscriptions.remove(subscription.id)
        return bool(len(self._subscriptions))

    def recipient(self, stored: Stored) -> Subscription | None:
        """The oldest subscription that asks for an event: it gets it, the others do not again."""
        addresses, number = stored.addresses, stored.sequence_number
        asking = self._asking.get(addresses)
        if asking is None:
            asking = self._find(addresses)
        for subscription in asking:
            if subscription.start < number:
                return subscription
        return None

    def _find(self, addresses: tuple[Address, ...]) -> tuple[Subscription, ...]:
        """The subscriptions that ask for events at one of these addresses, the oldest first; they are remembered."""
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
        """Take an event that one of the subscriptions may ask for; the numbers must ascend."""
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
        """Send an event to one subscription, before what waits."""
        if len(self._extras) < self._settings.queue_events_max:
            self._extras.append(Item(stored, subscription))
            self._wake.set()

    def owe(self, subscription: Subscription, first: int, last: int) -> None:
        """Send the current states with these numbers, both inclusive, to one subscription, in turns with events."""
        if (known := self._subscriptions.get(subscription.id)) is not None:
            pattern, _ = known
            self._owed.add(subscription, pattern, first, last)
            self._wake.set()

    @property
    def passed_over(self) -> int:
        """Up to which number events were passed over that a subscription which is new here would not get."""
        if self.kept.is_suspended:
            return 0
        return self._read_upto if self._is_replaying else self._upstream.position

    def resume(self) -> None:
        """Send again to a suspended endpoint, from its cursor on; and to one that waits for its next try, at once."""
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
                    await turn()  # thousands of endpoints may be behind after a restart
                    self._replay()
                else:
                    self._note_caught_up()
                    await self._wake.wait()
            except _EndpointSuspended:
                self._put_back(item)
            except _Stopped:
                return
            except Exception:  # a fault of ours, or a log that closes: nothing is lost, because the cursor did not move
                _logger.exception("delivery to %s failed", self.uri)
                self._put_back(item)
                self._start_over()
                await asyncio.sleep(FAULT_PAUSE_S)

    async def _next(self) -> Item | None:
        """The next item to send: one out of turn; then events of the queue and states that are owed, in turns."""
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
        """A state that is owed goes out later; other events are read from the log again."""
        if item is not None and item.is_owed and item.extra_for is not None and self._receiver(item) is not None:
            self._owed.put_back(item.stored, item.extra_for)

    def _receiver(self, item: Item) -> Subscription | None:
        """The subscription that an item is for; None if it was deleted."""
        if item.extra_for is None:
            return self.recipient(item.stored)
        return None if self._subscriptions.get(item.extra_for.id) is None else item.extra_for

    def _stand_where_it_is(self) -> None:
        """Before something that has no number of its own goes out: nothing that was done with comes again."""
        if self.is_current:
            self.cursor = max(self.cursor, self._upstream.position)

    def _note_caught_up(self) -> None:
        """After a suspension: from here on the feed's position says where it stands."""
        if self.kept.cursor is not None:
            self.kept.cursor = None
            self._upstream.changed(self.uri)

    def _start_over(self) -> None:
        """Go on at the cursor, from the log."""
        self._queue.clear()
        self._in_flight = False
        self._is_replaying, self._read_upto = True, self.cursor

    async def _rest(self) -> None:
        self._start_over()
        self._extras.clear()
        self._resumed.clear()
        await self._resumed.wait()

    def _replay(self) -> None:
        """Fill the queue from the log; without a pause in it, so that no event can come between log and feed."""
        piece = self._upstream.read(self._read_upto)
        if piece.gap is not None:
            self._note_gap(*piece.gap)
        for stored in piece.notifications:
            if self.recipient(stored) is not None and not self._queue.append(stored):
                self._read_upto = self._queue.last  # it is read again when there is room
                return
        self._read_upto = piece.cursor
        if piece.cursor >= self._upstream.position:
            self._is_replaying = False
        if not self._queue:
            self.cursor = piece.cursor

    async def _deliver(self, item: Item) -> None:
        """Send until it is delivered, or a dead letter. Raises _EndpointSuspended, _Stopped.

        Whoever is broken off in the middle has it in flight for ever: it is not done with, and the cursor says so.
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
        """Another server may be sending: either this one learns soon that it is to stop, or its turn goes on."""
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
        """Wait before the next try, longer each time. Raises _EndpointSuspended if it has failed for too long."""
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
        """Twice as long after each failure in a row, and as long as the endpoint asks for; both have one limit."""
        shortest, longest = self._settings.retry_ms_min / 1000, self._settings.retry_ms_max / 1000
        pause = min(shortest * 2.0 ** min(self.failures - 1, 30), longest)
        return max(pause * random.uniform(0.5, 1.0), min(outcome.retry_after_s, longest))

    def _bury(self, stored: Stored, reason: str) -> None:
        """Record an event as a dead letter."""
        self.kept.bury(stored.sequence_number, stored.notification.id, reason)
        self._upstream.changed(self.uri)

    def _note_gap(self, first: int, last: int) -> None:
        """Events were trimmed before they were delivered: say so, and send the states that they led to."""
        self.kept.note_gap(first, last)
        for subscription in self._subscriptions.values():
            self.owe(subscription, first, last)
        self._upstream.changed(self.uri)


async def stop_all(endpoints: Sequence[Endpoint], grace_s: float = 0.0) -> None:
    """Begin nothing more there, and break off the rest after the time; it stays behind the cursors."""
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
