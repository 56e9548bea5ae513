"""The node of one log: what its producers and consumers share. Appends keep their order, commits wake who waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from ...core.clocks import wall_clock_ms
from ...core.errors import EventLogError, LogNotFound
from ...core.local import LocalLog
from ...core.loop.batcher import AppendBatcher
from ...core.loop.group_commit import GroupCommit
from ...core.loop.memory import MemoryAccount, Owner, Share
from ...core.state import StateStore
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType
from ..messages.outbound import Outbound
from ..positions.downtime import UptimeRun
from ..positions.position import Position
from ..positions.stored import Positions, Remembered, load, store
from ..protocol.conditions import INTERNAL_ERROR
from ..protocol.types import Symbol
from ..settings import AmqpSettings
from .groups import Action, Assign, Close, Drain, Groups, Link, RecordEpoch, Refuse
from .info import information_message

_logger = logging.getLogger("headwater.amqp")


class Reading(Protocol):
    """Who reads the log: a consumer."""

    position: Position

    def on_ready(self) -> None:
        """There may be more to read."""


@runtime_checkable
class Member(Protocol):
    """Who has, or wants, a partition for its consumer group: what its groups call a link."""

    @property
    def link_name(self) -> str:
        """What its group shows of it."""

    def assigned(self, partition: int, epoch: int) -> None:
        """The partition is its own, under that epoch."""

    def refused(self, condition: Symbol, description: str) -> None:
        """It gets no partition, or must give up at once the one that it has."""

    def drain(self) -> None:
        """It is to give its partition up once nothing waits for its outcome, and then call `Groups.drained`."""


class EventLogNode:
    """One log on one event loop. Make it with `open`."""

    def __init__(
        self,
        log: LocalLog,
        incarnation: str,
        state: StateStore,
        positions: Positions,
        settings: AmqpSettings,
        loop: asyncio.AbstractEventLoop,
        on_closed: Callable[[EventLogNode], None],
        bus: Bus,
        may_act: Callable[[], bool],
        memory: MemoryAccount | None = None,
    ) -> None:
        """`on_closed` is called when the log is closed, most likely because it was deleted; `may_act`: see LogStore."""
        self._may_act = may_act
        self._on_closed, self.bus = on_closed, bus
        self.log, self.incarnation, self.settings, self.loop = log, incarnation, settings, loop
        self._state = state
        self.partitions = log.settings.partitions
        self.source = f"/logs/{log.name}"
        """The CloudEvents source of events that have none."""
        self.outbound = Outbound(self.partitions, self.source)
        self.positions = positions
        if memory is not None:
            share = Share(memory)
            share.belong(Owner(log.name))
            positions.count_in(share)
        self.groups = Groups(self.partitions, settings, positions.epochs)
        self.is_changed = bool(positions.changes())
        """Whether positions may differ from what is stored."""
        self.on_end: set[Callable[[], object]] = set()
        """What is to be called, once, when the log is closed."""
        self.waiting: set[Reading] = set()
        """Consumers that have read all there is, and could send more."""
        self.consumers: set[Reading] = set()
        self.appends = AppendBatcher(log, waits_for_room=True)
        """The way of its producers' events into the log, in their order."""
        self._actions: deque[Action] = deque()
        """What the groups have decided, to be done in this order."""
        self._is_performing = False
        self._performing: asyncio.Task[None] | None = None
        """What records epochs."""
        self._information: asyncio.Task[bytes] | None = None
        self._saving = asyncio.Lock()
        self._storing = GroupCommit(partial(self._save, flushes=True))
        self._when_stored: list[Callable[[], None]] = []
        """Calls that wait until all that is remembered by now is durable."""
        self._answering: asyncio.Task[None] | None = None
        """The task that makes them."""
        self._tasks: set[asyncio.Task[Exception | None]] = set()
        self._is_woken = False
        self._stop_watching = log.watch(self._wake_soon)

    @staticmethod
    async def open(
        log: LocalLog,
        state: StateStore,
        settings: AmqpSettings,
        loop: asyncio.AbstractEventLoop,
        on_closed: Callable[[EventLogNode], None],
        bus: Bus | None = None,
        *,
        remembers: bool = True,
        may_act: Callable[[], bool] = lambda: True,
        run: UptimeRun | None = None,
        memory: MemoryAccount | None = None,
    ) -> EventLogNode:
        """The node of a log, with what it remembers of its consumers; without `remembers`, with nothing."""

        def load_all() -> tuple[str, Positions]:
            incarnation = log.info().incarnation
            if not remembers:
                return incarnation, Positions(settings.termini_max)
            return incarnation, load(
                state, incarnation, wall_clock_ms(), settings.termini_max, settings.abandoned_ms, run
            )

        incarnation, positions = await asyncio.to_thread(load_all)
        return EventLogNode(
            log, incarnation, state, positions, settings, loop, on_closed, bus or Bus(), may_act, memory
        )

    async def close(self) -> None:
        """Watch the log no more, and store what is remembered."""
        self.appends.flush()
        self._stop_watching()
        self._end()
        if self._performing is not None:
            self._performing.cancel()
        if self._answering is not None:
            self._answering.cancel()
        await self._save()

    def now(self) -> float:
        """The loop's time, in s."""
        return self.loop.time()

    @staticmethod
    def now_ms() -> int:
        """The wall clock, in ms since 1970."""
        return wall_clock_ms()

    def is_attached(self, remembered: Remembered) -> bool:
        """Whether a link has taken over what is remembered."""
        return remembered.expires_at is None and any(
            consumer.position is remembered.position for consumer in self.consumers
        )

    async def information(self) -> bytes:
        """The message of `$info`; it is made once for all that ask at the same time."""
        task = self._information
        if task is None:
            task = self._information = self.loop.create_task(asyncio.to_thread(information_message, self.log))
            task.add_done_callback(self._on_informed)
        return await asyncio.shield(task)

    def _on_informed(self, task: asyncio.Task[bytes]) -> None:
        self._information = None
        if not task.cancelled():
            task.exception()  # whoever asked has gone perhaps, and does not look at it

    def notify_owner(
        self, type: NotificationType, group: str, partition: int, epoch: int, container: str, link: str
    ) -> None:
        """Emit that a member of a group, who is that link of that container, was given a partition, or lost it."""
        self.bus.emit(
            type,
            log=self.log.name,
            group=group,
            partition=partition,
            epoch=epoch,
            container=container,
            link=link,
        )

    def forget(self, remembered: Remembered) -> None:
        """Forget the source of a receiver, with its position."""
        self.positions.closed(remembered)
        self.is_changed = True

    def move_group(self, group: str, afters: Mapping[int, int]) -> None:
        """Have a consumer group that has no members go on after these numbers, by partition.

        Raises LinkFault where there is no room for one more position; no known position moves then.
        """
        known = self.positions.of_group(group, self.partitions).afters
        for partition in sorted(afters, key=known.__contains__):  # new ones first: only these may lack room
            self.positions.group_position(group, partition, after=afters[partition], is_reset=True)
        self.is_changed = True

    def forget_group(self, group: str) -> None:
        """Forget a consumer group that has no members: its positions, and its epochs."""
        self.groups.forget(group)
        self.positions.forget_group(group)
        for name, partition in self.positions.epochs:
            if name == group:
                self.positions.record_epoch(group, partition, 0)
        self.is_changed = True

    def tick(self, now: float) -> None:
        """Time has passed."""
        self.appends.retry()
        if (due := self.groups.due()) is not None and due <= now:
            self.perform(self.groups.tick(now))
        expires = self.positions.expires_next()
        if expires is not None and expires <= wall_clock_ms():
            self.positions.expire(wall_clock_ms())
            self.is_changed = True
        self._answer_stored()
        if self.is_changed and not self._saving.locked():
            task = self.loop.create_task(self._save())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def perform(self, actions: Sequence[Action]) -> None:
        """Do what the groups have decided: now, unless an epoch must be recorded before.

        What one action leads to is done after those that were decided before it, and not within it.
        """
        self._actions += actions
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._actions and self._performing is None:
                if isinstance(self._actions[0], RecordEpoch):
                    self._performing = self.loop.create_task(self._record_epochs())
                else:
                    self._perform(self._actions.popleft())
        finally:
            self._is_performing = False

    def _perform(self, action: Action) -> None:
        try:
            if isinstance(action, Assign) and not self._may_act():
                _member(action.link).refused(INTERNAL_ERROR, "another server gives partitions away by now; ask there")
                return
            _perform(action)
        except Exception:  # it is somebody else's detach perhaps that has led here
            _logger.exception("a member of a consumer group failed", extra={"fields": {"log": self.log.name}})
            if not isinstance(action, RecordEpoch):
                _member(action.link).refused(INTERNAL_ERROR, "internal error; see the server's log")

    async def _record_epochs(self) -> None:
        recorded: list[RecordEpoch] = []
        try:
            while self._actions and isinstance(record := self._actions[0], RecordEpoch):
                self._actions.popleft()
                self.positions.record_epoch(record.group, record.partition, record.epoch)
                recorded.append(record)
            if await self._save() is None:
                for group, partition, epoch in recorded:
                    self.bus.emit(
                        NotificationType.EPOCH_CHANGED, log=self.log.name, group=group, partition=partition, epoch=epoch
                    )
            else:
                self._refuse_owner([(record.partition, record.epoch) for record in recorded])
        finally:
            self._performing = None
        self.perform(())

    def _refuse_owner(self, recorded: Sequence[tuple[int, int]]) -> None:
        """Name nobody the owner under an epoch that a restart would not know of."""
        action = self._actions[0] if self._actions else None
        if isinstance(action, Assign) and (action.partition, action.epoch) in recorded:
            self._actions.popleft()
            _member(action.link).refused(INTERNAL_ERROR, "the epoch cannot be stored; see the server's log")

    async def store_all(self) -> Exception | None:
        """Store all that is remembered, so that it outlasts a loss of power; the error if that failed.

        Then the server's log says it too, and it is tried again with each tick.
        """
        return await self._storing.committed()

    def when_stored(self, call: Callable[[], None]) -> None:
        """Call it when all that is remembered by now is durable. If it cannot be stored, each tick tries again."""
        self._when_stored.append(call)
        self._answer_stored()

    def _answer_stored(self) -> None:
        if self._when_stored and (self._answering is None or self._answering.done()):
            self._answering = self.loop.create_task(self._store_and_answer())

    async def _store_and_answer(self) -> None:
        while taken := self._when_stored:
            self._when_stored = []
            if await self.store_all() is not None:
                self._when_stored = taken + self._when_stored
                return
            for call in taken:
                self.loop.call_soon(call)  # one that fails costs no other its answer

    async def _save(self, *, flushes: bool = False) -> Exception | None:
        """Store the changes; the error if that failed."""
        async with self._saving:
            self.is_changed = False
            if self.log.is_closed:
                return LogNotFound(self.log.name)  # what was remembered went with the log
            changes = self.positions.changes()
            if changes or flushes:
                try:
                    await asyncio.to_thread(store, self._state, self.incarnation, changes, flushes=flushes)
                except Exception as error:
                    self.is_changed = True  # tried again with the next tick
                    told = {"log": self.log.name, "problem": str(error)}
                    is_ours = not isinstance(error, EventLogError)  # else the storage refuses, as of a former primary
                    _logger.error("positions were not stored", exc_info=is_ours, extra={"fields": told})
                    return error
                self.positions.stored(changes)
            return None

    # From the log's own thread

    def _wake_soon(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._call_soon(self._wake)

    def _call_soon(self, callback: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody is left to be called
            self.loop.call_soon_threadsafe(callback, *arguments)

    # On the loop

    def _wake(self) -> None:
        self._is_woken = False
        self.appends.retry()
        if self.log.is_closed:
            self._end()
            self._on_closed(self)
            return
        waiting, self.waiting = self.waiting, set()
        for consumer in waiting:
            consumer.on_ready()

    def _end(self) -> None:
        on_end, self.on_end = self.on_end, set()
        for call in on_end:
            call()
        self.positions.forget_all()


def _perform(action: Action) -> None:
    if isinstance(action, Assign):
        _member(action.link).assigned(action.partition, action.epoch)
    elif isinstance(action, Refuse | Close):
        _member(action.link).refused(action.condition, action.description)
    elif isinstance(action, Drain):
        _member(action.link).drain()


def _member(link: Link) -> Member:
    assert isinstance(link, Member)
    return link
