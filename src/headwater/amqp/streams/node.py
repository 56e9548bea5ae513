"""The node of one log: what its producers and consumers share. Appends keep their order, commits wake who waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ...core.errors import EventLogError, Overloaded
from ...core.event import Event
from ...core.local import LocalLog
from ...core.log import AppendRequest
from ...core.state import StateStore
from ..settings import AmqpSettings
from .outbound import Outbound

if TYPE_CHECKING:
    from .consumer import Consumer

_logger = logging.getLogger("headwater.amqp")


class Appending(Protocol):
    """Who is told what became of an append: the context of its request."""

    def on_appended(self, request: AppendRequest) -> None:
        """The request has its `result`, or its `error`."""


class EventLogNode:
    """One log on one event loop. Make it with `open`."""

    def __init__(
        self, log: LocalLog, incarnation: str, settings: AmqpSettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.log, self.incarnation, self.settings, self.loop = log, incarnation, settings, loop
        self.partitions = log.settings.partitions
        self.source = f"/logs/{log.name}"
        """The CloudEvents source of events that have none."""
        self.outbound = Outbound(self.partitions, self.source)
        self.waiting: set[Consumer] = set()
        """Consumers that have read all there is, and could send more."""
        self.consumers: set[Consumer] = set()
        self._overdue: deque[AppendRequest] = deque()
        """Appends that the log, which has too much to write, would not take yet."""
        self._is_woken = False
        self._stop_watching = log.watch(self._wake_soon)

    @staticmethod
    async def open(
        log: LocalLog, state: StateStore, settings: AmqpSettings, loop: asyncio.AbstractEventLoop
    ) -> EventLogNode:
        """The node of a log, with what it remembers of its consumers."""
        info = await asyncio.to_thread(log.info)
        return EventLogNode(log, info.incarnation, settings, loop)

    async def close(self) -> None:
        """Watch the log no more."""
        self._stop_watching()

    def append(self, events: Sequence[Event], partition: int | None, appending: Appending) -> AppendRequest:
        """Append, in the order of the calls; `appending.on_appended` is called when it is done, on the loop.

        Raises InvalidInput where an event does not fit the log; then nothing was appended.
        """
        request = self.log.request(events, None, partition, self._deliver, appending)
        if self._overdue or not self._is_taken(request):
            self._overdue.append(request)
        return request

    def tick(self, now: float) -> None:
        """Time has passed."""
        self._retry()

    def _is_taken(self, request: AppendRequest) -> bool:
        try:
            self.log.submit(request)
        except Overloaded:
            return False
        except EventLogError as error:
            request.error = error
            self.loop.call_soon(self._on_appended, [request])
        return True

    def _retry(self) -> None:
        while self._overdue and self._is_taken(self._overdue[0]):
            self._overdue.popleft()

    # From the log's own thread

    def _deliver(self, requests: list[AppendRequest]) -> None:
        self._call_soon(self._on_appended, requests)

    def _wake_soon(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._call_soon(self._wake)

    def _call_soon(self, callback: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody is left to be told
            self.loop.call_soon_threadsafe(callback, *arguments)

    # On the loop

    @staticmethod
    def _on_appended(requests: list[AppendRequest]) -> None:
        for request in requests:
            request.context.on_appended(request)  # type: ignore[attr-defined]

    def _wake(self) -> None:
        self._is_woken = False
        self._retry()
        if self.log.is_closed:
            for consumer in tuple(self.consumers):
                consumer.on_log_closed()
            return
        waiting, self.waiting = self.waiting, set()
        for consumer in waiting:
            consumer.on_ready()
