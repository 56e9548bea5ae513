"""The node of one log, shared by its producers and consumers. Appends keep their order; commits wake readers."""

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
    """A reader of the log: a consumer."""

    position: Position

    def on_ready(self) -> None:
        """There may be more to read."""


@runtime_checkable
class Member(Protocol):
    """A member that owns or wants a partition for its consumer group. Groups call it a link."""

    @property
    def link_name(self) -> str:
        """The name that its group shows."""

    def assigned(self, partition: int, epoch: int) -> None:
        """It now owns the partition, under that epoch."""

    def refused(self, condition: Symbol, description: str) -> None:
        """It gets no partition, or must give up its partition immediately."""

    def drain(self) -> None:
        """Give up the partition once no message awaits its outcome, then call `Groups.drained`."""


class EventLogNode:
    """One log on one event loop. Create it with `open`."""

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
        """The CloudEvents source of events without one."""
        self.outbound = Outbound(self.partitions, self.source)
        self.positions = positions
        if memory is not None:
            share = Share(memory)
            share.belong(Owner(log.name))
            positions.count_in(share)
        self.groups = Groups(self.partitions, settings, positions.epochs)
        self.is_changed = bool(positions.changes())
        """Whether positions may differ from the stored ones."""
        self.on_end: set[Callable[[], object]] = set()
        """Callbacks to run once, when the log is closed."""
        self.waiting: set[Reading] = set()
        """Consumers that have read everything, and could send more."""
        self.consumers: set[Reading] = set()
        self.appends = AppendBatcher(log, waits_for_room=True)
        """Appends its producers' events to the log, in order."""
        self._actions: deque[Action] = deque()
        """Decisions of the groups, which must be performed in this order."""
        self._is_performing = False
        self._performing: asyncio.Task[None] | None = None
        """The task that records epochs."""
        self._information: asyncio.Task[bytes] | None = None
        self._saving = asyncio.Lock()
        self._storing = GroupCommit(partial(self._save, flushes=True))
        self._when_stored: list[Callable[[], None]] = []
        """Callbacks that wait until the current state is durable."""
        self._answering: asyncio.Task[None] | None = None
        """The task that runs them."""
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
        """The node of a log, with the remembered state of its consumers if `remembers` is true."""

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
        """Stop watching the log, and store its state."""
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
        """Whether a link is attached to this remembered source."""
        return remembered.expires_at is None and any(
            consumer.position is remembered.position for consumer in self.consumers
        )

    async def information(self) -> bytes:
        """The message of `$info`; concurrent requests share one."""
        task = self._information
        if task is None:
            task = self._information = self.loop.create_task(asyncio.to_thread(information_message, self.log))
            task.add_done_callback(self._on_informed)
        return await asyncio.shield(task)

    def _on_informed(self, task: asyncio.Task[bytes]) -> None:
        self._information = None
        if not task.cancelled():
            task.exception()  # the caller may have disconnected without using it

    def notify_owner(
        self, type: NotificationType, group: str, partition: int, epoch: int, container: str, link: str
    ) -> None:
        """Emit the notification that a group member (that link of that container) got or lost a partition."""
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
        """Forget the source of a receiver, and its position."""
        self.positions.closed(remembered)
        self.is_changed = True

    def move_group(self, group: str, afters: Mapping[int, int]) -> None:
        """Make a consumer group without members resume after these numbers, by partition.

        Raises LinkFault if there is no room for one more position; in this case no existing position moves.
        """
        known = self.positions.of_group(group, self.partitions).afters
        for partition in sorted(
            afters, key=known.__contains__
        ):  # new positions first, because only these may lack room
            self.positions.group_position(group, partition, after=afters[partition], is_reset=True)
        self.is_changed = True

    def forget_group(self, group: str) -> None:
        """Forget the positions and epochs of a consumer group without members."""
        self.groups.forget(group)
        self.positions.forget_group(group)
        for name, partition in self.positions.epochs:
            if name == group:
                self.positions.record_epoch(group, partition, 0)
        self.is_changed = True

    def tick(self, now: float) -> None:
        """Handle the passage of time."""
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
        """Perform the groups' decisions now, unless an epoch must be recorded first. Actions that result from a
        decision are performed after all earlier decisions, not within it."""
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
                _member(action.link).refused(INTERNAL_ERROR, "another server assigns the partitions now; attach there")
                return
            _perform(action)
        except Exception:  # this may have been called by another peer's detach
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
        """Refuse an owner under an epoch that a restart would not know."""
        action = self._actions[0] if self._actions else None
        if isinstance(action, Assign) and (action.partition, action.epoch) in recorded:
            self._actions.popleft()
            _member(action.link).refused(INTERNAL_ERROR, "the epoch cannot be stored; see the server's log")

    async def store_all(self) -> Exception | None:
        """Store all state durably, so that it survives a power loss. Returns the error if that fails. A failure is also
        logged, and each tick retries."""
        return await self._storing.committed()

    def when_stored(self, call: Callable[[], None]) -> None:
        """Call this function when the current state is durable. If it cannot be stored, each tick retries."""
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
                self.loop.call_soon(call)  # one that fails must not prevent the others

    async def _save(self, *, flushes: bool = False) -> Exception | None:
        """Store the changes. Returns the error if that failed."""
        async with self._saving:
            self.is_changed = False
            if self.log.is_closed:
                return LogNotFound(self.log.name)  # the state was deleted together with the log
            changes = self.positions.changes()
            if changes or flushes:
                try:
                    await asyncio.to_thread(store, self._state, self.incarnation, changes, flushes=flushes)
                except Exception as error:
                    self.is_changed = True  # the next tick retries
                    told = {"log": self.log.name, "problem": str(error)}
                    is_ours = not isinstance(
                        error, EventLogError
                    )  # otherwise the storage refused, as it does for a former primary
                    _logger.error("positions were not stored", exc_info=is_ours, extra={"fields": told})
                    return error
                self.positions.stored(changes)
            return None

    # Called in the log's own thread

    def _wake_soon(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._call_soon(self._wake)

    def _call_soon(self, callback: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so there is nothing left to call
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
