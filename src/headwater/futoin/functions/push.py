"""Pushing events over a connection that the consumer opened (FTN18, 3.3.2 and 3.3.3): reliable, and live.

A push is a cursor and at most two unanswered groups, never a queue of events: events wait in the log.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ...core.access import Right
from ...core.consumer import Consumer
from ...core.errors import ConsumerNotFound, NotPrimary, OutcomeUnknown, StorageUnavailable
from ...core.readers import Reader, Waiting
from ...core.shared_bytes import NoMemory
from ..calls import ENVELOPE_BYTES, Call, CallbackConnection
from ..errors import DEFENSE_REJECTED, FutoInError
from ..host import Opened
from ..messages.coders import JSON
from ..messages.interface import MESSAGE_BYTES_MAX
from ..outlet import Claim
from .events import Group, group_after, read
from .poll import LIVE, check_reliable

LATE_MAX = 4
"""The maximum number of unanswered pushes of one `seq`. Another push drops the oldest."""


class Reach(NamedTuple):
    """The part of the log that a push covers."""

    start: int
    """The consumer's previous acknowledgement."""
    upto: int
    """What a success acknowledges."""


class Step(NamedTuple):
    """The result of one step through the log."""

    upto: int
    """Every event up to this number was sent or is not wanted."""
    sent: int
    """The number of events sent."""
    is_last: bool
    """Whether the log has no more."""
    answer: asyncio.Future[str | None] | None
    """The answer to the events sent: the name of an error, or None for success."""


class UnansweredPushes:
    """The pushes of one `seq` to one consumer. Each future's result is the name of an error, or None for success."""

    def __init__(self) -> None:
        self._reaches: dict[asyncio.Future[str | None], Reach] = {}

    def __bool__(self) -> bool:
        return bool(self._reaches)

    def add(self, answer: asyncio.Future[str | None], reach: Reach) -> None:
        """Add a push whose answer must be awaited."""
        if len(self._reaches) >= LATE_MAX:
            oldest = next(iter(self._reaches))
            del self._reaches[oldest]
            oldest.cancel()
        self._reaches[answer] = reach

    def taken(self) -> Reach | None:
        """The highest number among successful answers. Forgets all answered pushes."""
        answered = [answer for answer in self._reaches if answer.done()]
        reaches = {answer: self._reaches.pop(answer) for answer in answered}
        successes = [reach for answer, reach in reaches.items() if not answer.cancelled() and answer.result() is None]
        return max(successes, key=lambda reach: reach.upto, default=None)

    async def success(self, timeout_s: float, answer: asyncio.Future[str | None] | None = None) -> Reach | None:
        """Wait for the first success of any push; None after the timeout, or when `answer` is an error."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._reaches and (left_s := deadline - loop.time()) > 0:
            await asyncio.wait(self._reaches, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if (reach := self.taken()) is not None:
                return reach
            if answer is not None and answer.done():
                return None
        await asyncio.sleep(max(0.0, deadline - loop.time()))
        return None

    def forget(self) -> None:
        """Stop waiting for all of them."""
        for answer in self._reaches:
            answer.cancel()
        self._reaches.clear()


GROUP_BYTES_MAX = 8 * 2**20 - ENVELOPE_BYTES
"""futoin.evt.receiver:1.1 accepts messages of 8M; its version 1.0 specifies no size."""
LIVE_GROUPS_MAX = 2
"""The maximum number of unanswered groups of a live push."""
PUSHES_MAX = 64
"""The maximum number of pushes on one connection."""
PASSED_OVER_S = 1.0
"""The minimum interval for storing that a consumer skipped unwanted events."""


class Pushing:
    """Begins pushes, and keeps those of reliable consumers: the newest of each consumer runs, older ones are paused."""

    def __init__(self) -> None:
        self.reliable: dict[tuple[object, ...], list[Push]] = {}
        """By log, owner and component. The newest is last."""

    async def ready_to_receive(self, call: Call) -> bytes:
        """readyToReceive: push events from the reply on. A newer call of the same consumer takes over until its
        connection ends; then the earlier one continues.
        """
        component, connection = call.parameters["component"], call.channel.connection
        assert connection is not None, "a constraint of the interface"
        is_live = component == LIVE
        if not is_live:
            check_reliable(call)
        opened = await call.log(Right.READ)
        owner = call.caller.owner
        if not is_live and opened.log.consumer(owner, component) is None:
            raise ConsumerNotFound(owner, component)
        want = call.parameters["want"]
        key = (owner, component, None if want is None else frozenset(want)) if is_live else (owner, component)
        if key not in connection.pushes and len(connection.pushes) >= PUSHES_MAX:
            raise FutoInError(DEFENSE_REJECTED, f"{PUSHES_MAX} consumers are already served on this connection")
        if is_live:
            push: Push = LivePush(call, connection, opened, key)
        else:
            push = ReliablePush(call, connection, opened, key, self.reliable)
        call.afterwards = push.start
        return call.coder.value(True)


class Push(ABC):
    """The push to one consumer over one connection."""

    def __init__(self, call: Call, connection: CallbackConnection, opened: Opened, key: tuple[object, ...]) -> None:
        """`key` identifies it on its connection: live pushes with different selections are separate."""
        self.connection, self.opened, self.key = connection, opened, key
        self.owner, self.component = call.caller.owner, call.parameters["component"]
        self._may_act = call.host.may_act
        self.settings, self.statistics, self._turn = call.host.settings, call.host.statistics, call.turn
        self.selected = opened.view.select(call.parameters["want"])
        version = call.function.version
        self._function = f"futoin.evt.receiver:{version[0]}.{version[1]}:onEvents"
        self._bytes_max = MESSAGE_BYTES_MAX - ENVELOPE_BYTES if version == (1, 0) else GROUP_BYTES_MAX
        self._begin = opened.log.head()
        """Where a live push begins."""
        expires_at = call.caller.user.expires_at
        self._login_s = None if expires_at is None else max(0.0, expires_at - time.time())
        """How long the login of its caller remains valid; None means forever."""
        self._task: asyncio.Task[None] | None = None
        self._readers, want = call.host.readers, call.parameters["want"]
        client = call.channel.scope.get("client")
        self.reader = Reader(
            "futoin",
            opened.log,
            self._end,
            user=call.caller.user.name,
            peer=(call.channel.peer, client[1] if client else None),
            wants=None if want is None else ",".join(want),
            component=self.component,
            position=self._begin,
        )
        self._forget: Callable[[], None] | None = None
        """Set from `start` to `stop`."""
        self._on_the_way = 0
        """The number of unanswered groups."""

    def start(self) -> None:
        """Begin, in place of an older push of the same consumer on this connection."""
        if (older := self.connection.pushes.get(self.key)) is not None:
            older.stop()
        self.connection.pushes[self.key] = self
        self._forget = self._readers.add(self.reader)
        self.resume()

    def stop(self) -> None:
        """Stop at any point. Unacknowledged events will be pushed again."""
        self.pause()
        if self._forget is not None:
            self._forget()
        if self.connection.pushes.get(self.key) is self:
            del self.connection.pushes[self.key]

    def resume(self) -> None:
        """Continue after a pause."""
        self._task = asyncio.create_task(self._run())

    def pause(self) -> None:
        """Push nothing until resumed or stopped."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _end(self, reason: str) -> None:
        """Called when an operator ends it. Closes the connection too, so that the consumer notices."""
        self.connection.close(reason)

    async def _run(self) -> None:
        """Push until that fails, then close the connection, so that the consumer notices."""
        try:
            async with asyncio.timeout(self._login_s) as login:
                await self._push()
        except TimeoutError:
            self.connection.close("the token of the login has expired" if login.expired() else "")
        except ConsumerNotFound:
            self.connection.close(f"consumer {self.component} is no longer registered")
        except NotPrimary:
            self.connection.close("another server now pushes the events")
        except (StorageUnavailable, OutcomeUnknown):
            self.connection.close("positions cannot be stored at the moment; reconnect")
        except OSError:  # the peer has left
            self.connection.close("")
        except Exception:
            self.connection.fail()
        else:
            self.connection.close("the log is closed")

    @abstractmethod
    async def _push(self) -> None:
        """Push until the log is closed."""

    async def _send(self, seq: int, group: Group) -> asyncio.Future[str | None]:
        """Send a group; the future's result is the name of the error in the answer, or None for success. Raises
        NotPrimary."""
        if not self._may_act():
            raise NotPrimary(self.opened.log.name)
        self.statistics.pushes[LIVE.lower() if self.component == LIVE else "reliable"] += 1
        self.statistics.traffic.events_out += len(group.events)
        parameters = JSON.message([("seq", JSON.value(seq)), ("events", JSON.array(group.events))])
        self.reader.waits(Waiting.READING)
        answer = await self.connection.call(self._function, parameters)
        self.reader.waits(Waiting.ANSWERS)
        self.reader.sent(group.upto, len(group.events))
        self._on_the_way += 1
        answer.add_done_callback(self._on_answer)
        return answer

    def _on_answer(self, answer: asyncio.Future[str | None]) -> None:
        """Handle the answer to a group, or the end of the wait for it."""
        self._on_the_way -= 1
        if not self._on_the_way:
            self.reader.waits(Waiting.EVENTS)

    async def _step(self, seq: int, cursor: int, events_max: int) -> Step:
        """Send the next group once the peer has received the previous one and there is room for it.

        The group is not kept: to send it again, it is read again.
        """
        outlet = self.connection.outlet
        if outlet.is_full:
            self.reader.waits(Waiting.READING)
        while True:
            with Claim(outlet) as claim:
                await claim.turn()
                try:
                    return await self._send_after(seq, cursor, events_max, claim)
                except NoMemory:
                    self.reader.waits(Waiting.READING)
            await asyncio.sleep(self.settings.retry_s)

    async def _send_after(self, seq: int, cursor: int, events_max: int, claim: Claim) -> Step:
        log_read = partial(read, self.opened.log, self.selected)
        group, is_last = await group_after(
            log_read, self._turn, cursor, JSON, self.opened.view, claim, self._bytes_max, events_max=events_max
        )
        answer = await self._send(seq, group) if group.events else None
        if answer is None:
            self.reader.waits(Waiting.ANSWERS if self._on_the_way else Waiting.EVENTS)
        return Step(group.upto, len(group.events), is_last, answer)


class ReliablePush(Push):
    """Pushes one group at a time until it is acknowledged; after a failure, its first half is pushed again under the
    same `seq`.

    So a consumer that cannot process a whole group in time (the reference library allows 5 s) gets one that it can;
    from then on groups grow by one event per success.
    """

    def __init__(
        self,
        call: Call,
        connection: CallbackConnection,
        opened: Opened,
        key: tuple[object, ...],
        reliable: dict[tuple[object, ...], list[Push]],
    ) -> None:
        super().__init__(call, connection, opened, key)
        self._reliable, self._consumer_key = reliable, (opened, *key)
        self.reader.position = self._consumer().acknowledged
        self._seq = 0
        self._unanswered = UnansweredPushes()
        """The pushes of this `seq`."""
        self._failures = 0
        """Consecutive failures."""
        self._events_max = self._group_events = min(self.settings.reliable_group_events, self.settings.max_chunk_events)
        """The maximum number of events in any group, and in the next group."""

    def start(self) -> None:
        """Begin; pushes to the consumer over other connections pause until this one ends."""
        super().start()
        others = self._reliable.setdefault(self._consumer_key, [])
        if others:
            others[-1].pause()
        others.append(self)

    def stop(self) -> None:
        """End; the previous push continues, if there is one."""
        super().stop()
        self._unanswered.forget()
        others = self._reliable.get(self._consumer_key, [])
        if self not in others:
            return
        was_running = others[-1] is self
        others.remove(self)
        if not others:
            del self._reliable[self._consumer_key]
        elif was_running:
            others[-1].resume()

    async def _push(self) -> None:
        if (reach := self._unanswered.taken()) is not None:  # answered while paused
            await self._succeed(reach)
        while not self.opened.log.is_closed:
            start = self._consumer().acknowledged
            step = await self._next_group(start)
            if step.answer is not None:
                await self._deliver(start, step, step.answer)

    def _consumer(self) -> Consumer:
        """The consumer's current state. Polls and operators move it too. Raises ConsumerNotFound."""
        consumer = self.opened.log.consumer(self.owner, self.component)
        if consumer is None:
            raise ConsumerNotFound(self.owner, self.component)
        return consumer

    async def _next_group(self, start: int) -> Step:
        """Send the next events. Sends nothing if the consumer's position has moved in the meantime, or the log is
        closed.
        """
        loop = asyncio.get_running_loop()
        log, cursor = self.opened.log, start
        stored_at = loop.time()
        while True:
            next_commit = self.opened.asynchronous.next_commit
            step = await self._step(self._seq, cursor, self._group_events)
            if step.answer is not None:
                return step
            cursor = max(cursor, step.upto)
            has_time_passed = loop.time() - stored_at >= PASSED_OVER_S
            if not step.is_last:
                await asyncio.sleep(0)
            elif not log.is_closed and not has_time_passed:
                has_time_passed = not await self._wait(next_commit)
            if self._consumer().acknowledged != start or log.is_closed:
                return step
            if has_time_passed:
                await self._acknowledge(cursor)  # also records that the consumer is alive
                return step

    async def _wait(self, next_commit: asyncio.Future[None]) -> bool:
        done, _ = await asyncio.wait((next_commit,), timeout=self.settings.seen_interval_s)
        return bool(done)

    async def _deliver(self, start: int, step: Step, answer: asyncio.Future[str | None]) -> None:
        """Wait for the answer to the events sent, or a late answer to an earlier push of the same `seq`."""
        if self._failures:
            self.statistics.redeliveries += 1
        self._unanswered.add(answer, Reach(start, step.upto))
        reach = await self._unanswered.success(self.settings.answer_s, answer)
        if reach is None:
            self._failures += 1
            self._group_events = max(1, step.sent // 2)
            reach = await self._success_in_pause()
        if reach is not None:
            await self._succeed(reach)

    async def _success_in_pause(self) -> Reach | None:
        """Pause before a group is sent again, longer after each consecutive failure; a success ends the pause."""
        pause_s = min(self.settings.retry_s * 2 ** min(self._failures - 1, 30), self.settings.answer_s)
        if self._unanswered:
            return await self._unanswered.success(pause_s)
        await asyncio.sleep(pause_s)
        return None

    async def _succeed(self, reach: Reach) -> None:
        """Acknowledge, unless an operator has since moved the consumer back, and continue with the next `seq`."""
        self._seq += 1
        self._failures = 0
        self._unanswered.forget()
        self._group_events = min(self._group_events + 1, self._events_max)
        if self._consumer().acknowledged >= reach.start:
            await self._acknowledge(reach.upto)

    async def _acknowledge(self, position: int) -> None:
        self.reader.sent(position, 0)
        await self.opened.asynchronous.acknowledge(self.owner, self.component, position)


class LivePush(Push):
    """Pushes new events, with at most two unanswered groups; a slow consumer misses the oldest and sees a gap in
    `seq`."""

    async def _push(self) -> None:
        log = self.opened.log
        cursor, seq = self._begin, 0
        on_the_way: set[asyncio.Task[None]] = set()
        try:
            while not log.is_closed:
                if len(on_the_way) >= LIVE_GROUPS_MAX:
                    _, on_the_way = await asyncio.wait(on_the_way, return_when=asyncio.FIRST_COMPLETED)
                await self.connection.outlet.drained()
                next_commit = self.opened.asynchronous.next_commit
                if log.head() - cursor > self.settings.live_behind_max:
                    oldest = log.head() - self.settings.live_behind_max
                    self.statistics.skipped += oldest - cursor
                    cursor = oldest
                    seq += 1
                step = await self._step(seq, cursor, self.settings.max_chunk_events)
                cursor = max(cursor, step.upto)
                if step.answer is not None:
                    on_the_way.add(asyncio.create_task(self._answered(step.answer)))
                    seq += 1
                    continue
                self.reader.sent(cursor, 0)
                if step.is_last:
                    await asyncio.wait((next_commit,))
                else:
                    await asyncio.sleep(0)
        finally:
            for task in on_the_way:
                task.cancel()

    async def _answered(self, answer: asyncio.Future[str | None]) -> None:
        """Wait for an answer with a timeout; an error counts like a success."""
        done, _ = await asyncio.wait((answer,), timeout=self.settings.answer_s)
        if not done:
            answer.cancel()  # no longer awaited
