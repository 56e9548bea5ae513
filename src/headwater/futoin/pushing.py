"""Pushing events over a connection that the consumer opened (FTN18, 3.3.2 and 3.3.3): reliable, and live.

A push is a cursor and at most two groups on their way, never a queue of events: what waits, waits in the log.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from functools import partial

from ..core.access import Right
from ..core.consumer import Consumer
from ..core.errors import ConsumerNotFound
from .calls import ENVELOPE_BYTES, Call, Connection, Pushes
from .coders import JSON
from .errors import DEFENSE_REJECTED, FutoInError
from .events import Group, group_after, read
from .host import Opened
from .interface import MESSAGE_BYTES_MAX
from .polling import LIVE

GROUP_BYTES_MAX = 8 * 2**20 - ENVELOPE_BYTES
"""futoin.evt.receiver:1.1 takes messages of 8M; version 1.0 of it names no size."""
LIVE_GROUPS_MAX = 2
"""Groups of a live push that may be on their way at once."""
PUSHES_MAX = 64
"""Of one connection."""
PASSED_OVER_S = 1.0
"""How often at most it is stored that a consumer passed over events that it does not want."""


class Pushing:
    """Begins pushes, and knows those of reliable consumers, of which there is one each at a time."""

    def __init__(self) -> None:
        self.reliable: Pushes = {}
        """By log, owner and component."""

    async def ready_to_receive(self, call: Call) -> bytes:
        """readyToReceive: from its reply on, events are pushed. A newer call of the same consumer takes over."""
        component, connection = call.parameters["component"], call.channel.connection
        assert connection is not None, "a constraint of the interface"
        opened = await call.log(Right.READ)
        key = (call.caller.owner, component)
        if component != LIVE and opened.log.consumer(*key) is None:
            raise ConsumerNotFound(*key)
        if key not in connection.pushes and len(connection.pushes) >= PUSHES_MAX:
            raise FutoInError(DEFENSE_REJECTED, f"{PUSHES_MAX} consumers are pushed to on this connection already")
        push = (LivePush if component == LIVE else ReliablePush)(call, connection, opened, key)
        push.places.append((connection.pushes, key))
        if component != LIVE:
            push.places.append((self.reliable, (opened, *key)))
        call.afterwards = push.start
        return call.coder.value(True)


class Push(ABC):
    """The push to one consumer over one connection."""

    def __init__(self, call: Call, connection: Connection, opened: Opened, key: tuple[str, str]) -> None:
        self.connection, self.opened, self.key = connection, opened, key
        self.settings, self._turn = call.host.settings, call.turn
        self.selected = opened.view.select(call.parameters["want"])
        version = call.function.version
        self._function = f"futoin.evt.receiver:{version[0]}.{version[1]}:onEvents"
        self._bytes_max = MESSAGE_BYTES_MAX - ENVELOPE_BYTES if version == (1, 0) else GROUP_BYTES_MAX
        self._begin = opened.log.head()
        """Where a live push begins."""
        expires_at = call.caller.user.expires_at
        self._login_s = None if expires_at is None else max(0.0, expires_at - time.time())
        """For how long the login of its caller holds; None = for ever."""
        self._task: asyncio.Task[None] | None = None
        self.places: list[tuple[Pushes, tuple[object, ...]]] = []
        """Where it is the only one of its key: on its connection, and a reliable one among all of its log."""

    def start(self) -> None:
        """Begin, in place of older pushes of the same consumer."""
        for pushes, key in self.places:
            if (older := pushes.get(key)) is not None:
                older.stop()
            pushes[key] = self
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """End, wherever it is; what was not acknowledged will be pushed again."""
        if self._task is not None:
            self._task.cancel()
        for pushes, key in self.places:
            if pushes.get(key) is self:
                del pushes[key]

    async def _run(self) -> None:
        """Push, until it cannot go on; then the connection is closed, so that the consumer comes to know of it."""
        try:
            async with asyncio.timeout(self._login_s) as login:
                await self._push()
        except TimeoutError:
            self.connection.close("the token of the login has expired" if login.expired() else "")
        except ConsumerNotFound:
            self.connection.close(f"consumer {self.key[1]} is not registered any more")
        except OSError:  # the peer has left
            self.connection.close("")
        except Exception:
            self.connection.fail()
        else:
            self.connection.close("the log is closed")

    @abstractmethod
    async def _push(self) -> None:
        """Push, until the log is closed."""

    async def _send(self, seq: int, group: Group) -> asyncio.Future[str | None]:
        """Send a group; the future is the name of the error that answers it, or None for success."""
        parameters = JSON.message([("seq", JSON.value(seq)), ("events", JSON.array(group.events))])
        return await self.connection.call(self._function, parameters)

    async def _is_taken(self, answer: asyncio.Future[str | None]) -> bool:
        """Whether the group was answered with success, in time."""
        done, _ = await asyncio.wait((answer,), timeout=self.settings.answer_s)
        if not done:
            answer.cancel()  # nobody waits for it any more
            return False
        return answer.result() is None


class ReliablePush(Push):
    """One group at a time, until it is acknowledged; a failed one again, under the same `seq`."""

    async def _push(self) -> None:
        seq = 0
        while not self.opened.log.is_closed:
            start = self._consumer().acknowledged
            group = await self._next_group(start)
            if group.events and await self._deliver(seq, group):
                seq += 1

    def _consumer(self) -> Consumer:
        """The consumer as it stands: polls and operators move it too. Raises ConsumerNotFound."""
        consumer = self.opened.log.consumer(*self.key)
        if consumer is None:
            raise ConsumerNotFound(*self.key)
        return consumer

    async def _next_group(self, start: int) -> Group:
        """The next events; none if the consumer's position moved meanwhile, or the log is closed."""
        loop = asyncio.get_running_loop()
        log, cursor = self.opened.log, start
        stored_at = loop.time()
        while True:
            next_commit = self.opened.asynchronous.next_commit
            group, is_last = await group_after(
                partial(read, log, self.selected), self._turn, cursor, JSON, self.opened.view, self._bytes_max
            )
            if group.events:
                return group
            cursor = max(cursor, group.upto)
            has_time_passed = loop.time() - stored_at >= PASSED_OVER_S
            if not is_last:
                await asyncio.sleep(0)
            elif not log.is_closed and not has_time_passed:
                has_time_passed = not await self._wait(next_commit)
            if self._consumer().acknowledged != start or log.is_closed:
                return Group([], cursor, 0)
            if has_time_passed:
                await self._acknowledge(cursor)  # also tells that the consumer is alive
                return Group([], cursor, 0)

    async def _wait(self, next_commit: asyncio.Future[None]) -> bool:
        done, _ = await asyncio.wait((next_commit,), timeout=self.settings.seen_interval_s)
        return bool(done)

    async def _deliver(self, seq: int, group: Group) -> bool:
        """Send the group until it is acknowledged; False if somebody moved the consumer before that."""
        start = self._consumer().acknowledged
        pause_s = self.settings.retry_s
        while not await self._is_taken(await self._send(seq, group)):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, self.settings.answer_s)
            if self._consumer().acknowledged != start:
                return False
        await self._acknowledge(group.upto)
        return True

    async def _acknowledge(self, position: int) -> None:
        await asyncio.to_thread(self.opened.log.acknowledge, *self.key, position)


class LivePush(Push):
    """From now on, two groups on their way at most; who is too slow misses the oldest, and sees a gap in `seq`."""

    async def _push(self) -> None:
        log = self.opened.log
        cursor, seq = self._begin, 0
        on_the_way: set[asyncio.Task[bool]] = set()
        try:
            while not log.is_closed:
                if len(on_the_way) >= LIVE_GROUPS_MAX:
                    _, on_the_way = await asyncio.wait(on_the_way, return_when=asyncio.FIRST_COMPLETED)
                next_commit = self.opened.asynchronous.next_commit
                if log.head() - cursor > self.settings.live_behind_max:
                    cursor = log.head() - self.settings.live_behind_max
                    seq += 1
                group, is_last = await group_after(
                    partial(read, log, self.selected), self._turn, cursor, JSON, self.opened.view, self._bytes_max
                )
                cursor = max(cursor, group.upto)
                if group.events:
                    answer = await self._send(seq, group)
                    on_the_way.add(asyncio.create_task(self._is_taken(answer)))  # an error is as good as success
                    seq += 1
                elif is_last:
                    await asyncio.wait((next_commit,))
                else:
                    await asyncio.sleep(0)
        finally:
            for task in on_the_way:
                task.cancel()
