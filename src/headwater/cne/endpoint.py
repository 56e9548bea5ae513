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
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec
from yarl import URL

from ..core.bus import Bus
from ..core.notification_types import NotificationType
from .records import Subscription
from .settings import Settings
from .stored import Stored
from .webhook import Outcome

REFUSALS_MAX = 3
"""How often a subscriber may refuse one event before it is a dead letter."""
DEAD_LETTERS_KEPT = 100
FAULT_PAUSE_S = 1.0
GAPS_KEPT = 20
_logger = logging.getLogger("headwater.cne")
_TEMPORARY = frozenset({401, 403, 404, 405, 407, 408, 409, 421, 423, 425, 429})
"""Answers below 500 that tell of the endpoint, and not of the event."""


class Standing(StrEnum):
    """Where an endpoint stands."""

    DELIVERING = "delivering"
    RETRYING = "retrying"
    SUSPENDED = "suspended"


class DeadLetter(msgspec.Struct, frozen=True):
    """An event that was not delivered, and will not be unless it is asked for."""

    sequence_number: int
    id: str
    reason: str
    at: int
    """ms since 1970 UTC."""


class Gap(msgspec.Struct, frozen=True):
    """Numbers, both inclusive, that were trimmed before they could be delivered."""

    first: int
    last: int
    at: int


class Kept(msgspec.Struct, kw_only=True):
    """What is remembered of an endpoint over a restart, besides its cursor."""

    uri: str
    is_suspended: bool = False
    problem: str = ""
    since: int = 0
    """When the present failures began, ms since 1970 UTC; 0 if the last delivery went well."""
    dead_letters: list[DeadLetter] = []
    dead_letters_total: int = 0
    gaps: list[Gap] = []


class Piece(NamedTuple):
    """A piece of the log, read for a replay."""

    notifications: list[Stored]
    cursor: int
    gap: tuple[int, int] | None
    """Numbers that are not there any more."""


class Feed(Protocol):
    """Where an endpoint's events come from."""

    @property
    def position(self) -> int:
        """Every event up to this number has been offered."""

    def read(self, after: int) -> Piece:
        """A bounded piece of the log above `after`, up to the position. Does not block."""

    def newest_between(self, after: int, upto: int, subscription: Subscription) -> list[Stored]:
        """The current states that a subscription asks for, of events with numbers in that range."""

    def changed(self, endpoint: Endpoint) -> None:
        """Called when what is kept of the endpoint has changed."""


class Undeliverable(Exception):
    """The event cannot be sent to that subscription, whatever the endpoint says."""


Send = Callable[[Subscription, Stored], Awaitable[Outcome]]
"""Sends an event to a subscription's endpoint, once. Raises Undeliverable."""


class Item(NamedTuple):
    """Something to deliver. An extra one is sent out of turn, and moves no cursor."""

    stored: Stored
    extra_for: Subscription | None = None


class _Suspended(Exception):
    """Nothing more is sent to the endpoint."""


class _Stopped(Exception):
    """The server stops."""


class Endpoint:
    """One URI and its subscriptions. Use it on one event loop; `start` it, and `stop` it at the end."""

    def __init__(
        self,
        uri: str,
        feed: Feed,
        send: Send,
        settings: Settings,
        *,
        cursor: int,
        kept: Kept | None,
        bus: Bus | None = None,
    ) -> None:
        """`bus` is told when it begins to fail, and when it has recovered."""
        self.uri = uri
        self._bus, self._is_told_failing = bus or Bus(), False
        self._feed, self._send, self._settings = feed, send, settings
        self.subscriptions: dict[str, Subscription] = {}
        self.asks: Callable[[Stored], Subscription | None] = lambda stored: None
        self.kept = kept or Kept(uri=uri)
        self.cursor = cursor
        self.delivered = 0
        self.failures = 0
        """In a row."""
        self._queue: deque[Item] = deque()
        self._extras: deque[Item] = deque()
        self._in_flight = False
        self._is_stopping = False
        self._is_replaying = cursor < feed.position
        self._read_upto = cursor
        self._wake = asyncio.Event()
        self._resumed = asyncio.Event()
        self._failing_since: float | None = None
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
        return len(self._queue) + len(self._extras) + self._in_flight

    def start(self) -> None:
        """Begin to deliver."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"webhook {self.uri}")

    async def stop(self, grace_s: float = 0.0) -> None:
        """Begin nothing more, and break off what is not done by then; it stays behind the cursor."""
        self._is_stopping = True
        self._wake.set()
        self._resumed.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=grace_s)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def offer(self, stored: Stored) -> None:
        """Take an event that one of the subscriptions may ask for; the numbers must ascend."""
        number = stored.sequence_number
        if self.kept.is_suspended or self._is_replaying or number <= self.cursor:
            return
        if self.is_current:
            self.cursor = number - 1
        if len(self._queue) >= self._settings.queue_events_max:
            self._is_replaying = True
            self._read_upto = self._queue[-1].stored.sequence_number
            return
        self._queue.append(Item(stored))
        self._wake.set()

    def offer_extra(self, stored: Stored, subscription: Subscription) -> None:
        """Send a current state to one subscription, before what waits."""
        if len(self._extras) < self._settings.queue_events_max:
            self._extras.append(Item(stored, subscription))
            self._wake.set()

    def misses(self, number: int) -> bool:
        """Whether a subscription that is new here would not get that event, because it was passed over before."""
        return not self.kept.is_suspended and not (self._is_replaying and number > self._read_upto)

    def resume(self) -> None:
        """Send again to a suspended endpoint, from its cursor on; and to one that waits for its next try, at once."""
        self.kept.is_suspended = False
        self._failing_since = None
        self._resumed.set()
        self._feed.changed(self)

    async def _run(self) -> None:
        while not self._is_stopping:
            try:
                if self.kept.is_suspended:
                    await self._rest()
                elif self._extras:
                    await self._deliver(self._extras.popleft())
                elif self._queue:
                    await self._deliver(self._queue.popleft())
                elif self._is_replaying:
                    self._replay()
                    await asyncio.sleep(0)
                else:
                    self._wake.clear()
                    await self._wake.wait()
            except _Suspended:
                continue
            except _Stopped:
                return
            except Exception:  # a fault of ours, or a log that closes: nothing is lost, because the cursor did not move
                _logger.exception("delivery to %s failed", self.uri)
                self._start_over()
                await asyncio.sleep(FAULT_PAUSE_S)

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
        piece = self._feed.read(self._read_upto)
        if piece.gap is not None:
            self._note_gap(*piece.gap)
        self._queue.extend(Item(stored) for stored in piece.notifications if self.asks(stored) is not None)
        self._read_upto = piece.cursor
        if piece.cursor >= self._feed.position:
            self._is_replaying = False
        if not self._queue:
            self.cursor = piece.cursor

    async def _deliver(self, item: Item) -> None:
        """Send until it is delivered, or a dead letter. Raises _Suspended, _Stopped.

        Whoever is broken off in the middle has it in flight for ever: it is not done with, and the cursor says so.
        """
        self._in_flight = True
        refusals = 0
        while (subscription := item.extra_for or self.asks(item.stored)) is not None:
            try:
                outcome = await self._send(subscription, item.stored)
            except Undeliverable as error:
                self.bury(item.stored, str(error))
                break
            if outcome.is_success:
                self._succeeded(item.stored.sequence_number)
                break
            refusals += _is_refusal(outcome)
            if refusals >= REFUSALS_MAX:
                self.bury(item.stored, outcome.text)
                break
            await self._back_off(outcome)
        if item.extra_for is None:
            self.cursor = item.stored.sequence_number
        self._in_flight = False

    def _succeeded(self, number: int) -> None:
        self.delivered += 1
        self._unbury(number)
        self._failing_since = None
        if self.failures:
            self.failures = 0
            self.kept.problem, self.kept.since = "", 0
            self._feed.changed(self)
        if self._is_told_failing:
            self._is_told_failing = False
            self._bus.emit(NotificationType.WEBHOOK_RECOVERED, log=self._settings.log, endpoint=shown(self.uri))

    async def _back_off(self, outcome: Outcome) -> None:
        """Wait before the next try, longer each time. Raises _Suspended instead where it has failed for too long."""
        now = time.monotonic()
        self.failures += 1
        self.kept.problem = outcome.text
        if self._failing_since is None:
            self._failing_since = now
            self.kept.since = _now_ms()
            self._feed.changed(self)
        if not self._is_told_failing:
            self._is_told_failing = True
            its = shown(self.uri)
            self._bus.emit(NotificationType.WEBHOOK_FAILING, log=self._settings.log, endpoint=its, reason=outcome.text)
        if outcome.status == 410 or now - self._failing_since > self._settings.suspend_after_ms / 1000:
            self.kept.is_suspended = True
            self._feed.changed(self)
            raise _Suspended
        if self._is_stopping:
            raise _Stopped
        longest = self._settings.retry_ms_max / 1000
        pause = min(self._settings.retry_ms_min / 1000 * 2 ** min(self.failures - 1, 30), longest)
        pause = max(pause * random.uniform(0.5, 1.0), min(outcome.retry_after_s, longest))
        self._resumed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):  # not wait_for, which may swallow a cancellation (Python 3.11)
                await self._resumed.wait()
        if self._is_stopping:
            raise _Stopped

    def bury(self, stored: Stored, reason: str) -> None:
        """Record an event as a dead letter."""
        letter = DeadLetter(stored.sequence_number, stored.notification.id, reason, _now_ms())
        was_there = self._unbury(letter.sequence_number)
        self.kept.dead_letters = [*self.kept.dead_letters, letter][-DEAD_LETTERS_KEPT:]
        self.kept.dead_letters_total += not was_there
        self._feed.changed(self)

    def _unbury(self, number: int) -> bool:
        """Take a dead letter off the list; whether it was there."""
        left = [letter for letter in self.kept.dead_letters if letter.sequence_number != number]
        was_there = len(left) < len(self.kept.dead_letters)
        if was_there:
            self.kept.dead_letters = left
            self._feed.changed(self)
        return was_there

    def _note_gap(self, first: int, last: int) -> None:
        """Events were trimmed before they were delivered: say so, and send the states that they led to."""
        self.kept.gaps = [*self.kept.gaps, Gap(first, last, _now_ms())][-GAPS_KEPT:]
        for subscription in self.subscriptions.values():
            for stored in self._feed.newest_between(first, last, subscription):
                self.offer_extra(stored, subscription)
        self._feed.changed(self)


def _is_refusal(outcome: Outcome) -> bool:
    return 300 <= outcome.status < 500 and outcome.status not in _TEMPORARY and outcome.status != 410


def shown(uri: str) -> str:
    """The URI without what may be secret in it."""
    return str(URL(uri).with_user(None).with_query(None).with_fragment(None))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
