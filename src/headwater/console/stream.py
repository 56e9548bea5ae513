"""One console stream: the measurements of each second, notifications as they occur, and the newest events of some logs.

Server-Sent Events (HTML standard, 9.2), of three kinds: `stats`, `happening`, `tail`. A slow reader skips data, and
gets the number of skipped items; a reader that does not read at all is disconnected.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..core.access import Right, User
from ..core.errors import EventLogError
from ..core.event import SequencedEvent
from ..core.limits import show
from ..core.local import LocalLog
from ..core.query import ALL
from ..core.watch.bus import Notification
from ..formats.envelope import beginning
from ..formats.problem import Problem
from ..http import Exchange
from ..http.errors import Disconnected, InvalidParameter
from ..http.exchange import EVENT_STREAM
from ..management.notifications.catalog import as_seen_by, may_see
from ..management.notifications.queue import NotificationQueue
from .host import ConsoleHost

LOGS_MAX = 8
"""The maximum number of logs whose newest events one stream sends."""
TAIL_S = 0.25
TAIL_EVENTS, TAIL_DATA_BYTES = 50, 256
"""The maximum number of events of each log in one message, and the maximum number of data bytes of each event."""
PIECE_BYTES_MAX = 64 * 1024
"""The approximate size limit of a message of events. Tags are included."""
HAPPENINGS_MAX = 200
"""How many notifications may wait for one stream. The next one says how many were lost."""
TAKE_S = 10.0
"""A reader that does not read for this long is disconnected. Until then, the system buffers the data, and 64 kB are
buffered here.
"""
STREAMS_MAX, STREAMS_OF_USER_MAX = 100, 10
"""The maximum number of streams of all users, and of one user if there are users, so that no user can use all of
them.
"""

_encode = msgspec.json.encode


class TailEvent(Struct, omit_defaults=True):
    """An event, with the beginning of its data."""

    sequence_number: int
    recorded_at: int
    type: str
    tags: tuple[str, ...]
    data_bytes: int
    data: str | UnsetType = UNSET
    data_base64: bytes | UnsetType = UNSET


class TailOut(Struct):
    """Events since the last message: the newest ones, and how many are not shown."""

    log: str
    head: int
    events: list[TailEvent]
    left_out: int


async def stream(host: ConsoleHost, exchange: Exchange) -> None:
    """GET /console/stream"""
    user = await host.user(exchange)
    names = _names(exchange.parameters("log").get("log"))
    for name in names:
        host.guard.authorize(user, Right.READ, name)
    logs = [await asyncio.to_thread(host.store.open, name) for name in names]
    if (detail := _without_place(host, user)) is not None:
        await exchange.answer_problem(Problem.of_status(503, detail, (b"retry-after", b"5")))
        return
    host.live.look(user.name)  # reserves the place before the first wait
    try:
        await _tell(host, exchange, user, logs)
    finally:
        host.live.leave(user.name)


def _without_place(host: ConsoleHost, user: User) -> str | None:
    """Why a user may not have one more stream; None if it may."""
    if host.live.watchers >= STREAMS_MAX:
        return f"{STREAMS_MAX} streams are already open, the maximum"
    if not host.guard.is_open and host.live.watchers_of(user.name) >= STREAMS_OF_USER_MAX:
        return f"{STREAMS_OF_USER_MAX} streams of {user.name} are already open, the maximum per user"
    return None


async def _tell(host: ConsoleHost, exchange: Exchange, user: User, logs: list[LocalLog]) -> None:
    fields = [(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
    await exchange.start(EVENT_STREAM, fields, proves_itself=True)
    one = _Stream(host, exchange, user, logs)
    gone, stopping = (asyncio.ensure_future(each) for each in (exchange.disconnected(), host.stopping.wait()))
    running = asyncio.ensure_future(one.run())
    try:
        ends = (running, gone, stopping)
        await asyncio.wait(ends, timeout=exchange.login_s, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        is_there = not gone.done()
    finally:
        for task in (running, gone, stopping):
            task.cancel()
        await asyncio.gather(running, gone, stopping, return_exceptions=True)
        one.close()
    if is_there:
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await exchange.finish()


class _Stream:
    """One reader. It has the rights that its user currently has."""

    def __init__(self, host: ConsoleHost, exchange: Exchange, user: User, logs: list[LocalLog]) -> None:
        self._host, self._exchange, self._user = host, exchange, user
        self._seal = host.guard.seal(user.name)
        self._heads = {log: log.head() for log in logs}
        """The last number sent of each log."""
        self._gone: set[str] = set()
        """Deleted logs, which may be recreated under their names."""
        self._loop = asyncio.get_running_loop()
        self._queue = NotificationQueue(host.bus, self._wake_soon, accepts=self._accepts, waiting_max=HAPPENINGS_MAX)
        self._woken = asyncio.Event()

    def close(self) -> None:
        """Stop listening to notifications."""
        self._queue.close()

    async def run(self) -> None:
        """Send until the login ends, the reader stops reading, or this server is no longer the primary."""
        await self._send(b"retry: 1000\n\n")
        measured = self._host.live.next
        while self._is_logged_in() and not self._host.store.has_lapsed():
            self._woken.clear()
            if measured.done():
                measured = self._host.live.next
                if (stats := self._host.live.stats) is not None:
                    await self._send(_message(b"stats", stats.seen_by(self._user)))
                if self._gone:
                    await self._follow_anew()
            for notification in self._queue.take(HAPPENINGS_MAX):
                seen = as_seen_by(self._user, notification)
                if seen is not None:
                    await self._send(_message(b"happening", _encode(dict(seen.attributes))))
            for log in list(self._heads):
                if (text := await self._tail(log)) is not None:
                    await self._send(text)
            with suppress(TimeoutError):
                async with asyncio.timeout(TAIL_S if self._queue.is_empty else 0):
                    await self._woken.wait()

    def _is_logged_in(self) -> bool:
        """Whether the user still exists with the credentials of the login. Rights may have changed."""
        guard = self._host.guard
        if guard.is_open:
            return True
        if not self._seal or guard.seal(self._user.name) != self._seal:
            return False
        self._user = guard.trusted(self._user.name, self._exchange.peer)
        return True

    def _accepts(self, notification: Notification) -> bool:
        return may_see(self._user, notification)

    def _wake_soon(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing is waiting
            self._loop.call_soon_threadsafe(self._woken.set)

    async def _tail(self, log: LocalLog) -> bytes | None:
        """New events of a log since the last message; None if there are none, or it may no longer be read."""
        if log.is_closed:
            self._lose(log)
            return None
        head, before = log.head(), self._heads[log]
        if head <= before or not self._user.may(Right.READ, log.name):
            return None
        self._heads[log] = head
        read = partial(
            log.read_page, ALL, head + 1, upto=before + 1, backwards=True, limit=TAIL_EVENTS, bytes_max=1024 * 1024
        )
        flow = self._host.turns.flow(self._user.name, self._exchange.peer)
        try:
            page = await self._host.turns.do(flow, read)
        except EventLogError:  # closed or deleted in the meantime
            self._lose(log)
            return None
        shown = _shortened(page.events)
        count = head - before
        return _message(b"tail", _encode(TailOut(log.name, head, shown, max(0, count - len(shown)))))

    def _lose(self, log: LocalLog) -> None:
        del self._heads[log]
        self._gone.add(log.name)

    async def _follow_anew(self) -> None:
        """Continue with recreated logs, from their first event on."""
        for name in list(self._gone):
            try:
                log = await asyncio.to_thread(self._host.store.open, name)
            except EventLogError:  # there is none yet, or it cannot currently be opened
                continue
            self._gone.discard(name)
            self._heads[log] = log.first_retained - 1

    async def _send(self, text: bytes) -> None:
        """Send, or give up after a while and break off the response. Raises Disconnected."""
        try:
            async with asyncio.timeout(TAKE_S):
                await self._exchange.send(text)
        except TimeoutError:
            raise Disconnected from None


def _shortened(events: Any) -> list[TailEvent]:
    """The newest of them, oldest first, as many as fit into one message."""
    shown: list[TailEvent] = []
    left = PIECE_BYTES_MAX
    for event in events:
        left -= sum(map(len, event.tags)) + min(len(event.data), TAIL_DATA_BYTES) + len(event.type) + 100
        if left < 0 and shown:
            break
        shown.append(_shown(event))
    shown.reverse()
    return shown


def _shown(event: SequencedEvent) -> TailEvent:
    text, raw = beginning(event.data, TAIL_DATA_BYTES)
    return TailEvent(event.sequence_number, event.recorded_at, event.type, event.tags, len(event.data), text, raw)


def _message(kind: bytes, data: bytes) -> bytes:
    return b"event: " + kind + b"\ndata: " + data + b"\n\n"


def _names(text: str | None) -> list[str]:
    """The requested logs, separated by commas. Raises InvalidParameter."""
    if text is None:
        return []
    names = text.split(",")
    if len(names) > LOGS_MAX or len(set(names)) < len(names) or not all(names):
        raise InvalidParameter("log", f"expected 1 to {LOGS_MAX} names separated by commas, got {show(text)}")
    return names
