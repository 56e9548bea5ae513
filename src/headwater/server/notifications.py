"""The notifications of one server, put together: the bus, what is logged and counted of them, what is kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from ..core.bus import Bus
from ..core.errors import EventLogError
from ..core.following import Follower
from ..core.local import LocalLog
from ..core.settings import SYSTEM_LOG, LogSettings
from ..core.store import LogStore
from ..core.threads import Threads
from ..management.availability import Availability
from ..management.consumers import ConsumerWatch
from ..management.history import History
from ..management.summaries import Summaries
from .config import Management
from .configured_logs import impose
from .log_lines import fields
from .notification_lines import logged_types, write_line

logger = logging.getLogger("headwater.server")

LOOK_S = 1.0
"""How often counters and consumers are looked at."""


class Notifications:
    """Made before anything is emitted: `keep` and `start` it on the store, and `stop` it before that closes."""

    def __init__(self, settings: Management) -> None:
        self._settings = settings
        self.bus = Bus()
        self.threads = Threads(self.bus)
        """Of the whole server: what goes on for as long as it does."""
        self._history: History | None = None
        self._looking: asyncio.Task[None] | None = None
        self.following: list[Callable[[], Awaitable[Sequence[Follower]]]] = []
        """What rooms answer of those who read logs from a position on: asked once a second, on the loop."""
        self.looks: list[Callable[[], object]] = []
        """What else is called once a second, on the loop, since somebody may be told of what it finds."""
        self.watch: ConsumerWatch | None = None
        """From `start` on."""
        self._availability: Availability | None = None
        self._is_stopping = asyncio.Event()
        if types := logged_types():
            self.bus.subscribe(write_line, types)

    async def keep(self, store: LogStore) -> None:
        """Keep notifications from now on, if they are to be kept."""
        settings = self._settings
        if settings.keep:
            try:
                log = await asyncio.to_thread(system_log, store, settings)
            except EventLogError as error:  # damaged, or a full disk: logged, and no reason to serve nothing
                logger.error("the notifications are not kept", extra=fields(log=SYSTEM_LOG, problem=error))
            else:
                self._history = History(self.bus, log, threads=self.threads)
                self._history.start()
        if self._availability is not None:
            await asyncio.to_thread(self._availability.forget)

    async def start(self, store: LogStore) -> None:
        """Begin to look."""
        settings = self._settings
        self.watch = watch = ConsumerWatch(
            self.bus, store.opened, lag_events=settings.lag_events, lag_ms=settings.lag_ms
        )
        self._availability = availability = Availability(self.bus, store.unavailable)
        summaries = Summaries(self.bus, store.opened)

        def look_at_logs() -> None:
            summaries.look()
            availability.look()

        async def look_at_consumers() -> None:
            found = [each for of_room in self.following for each in await of_room()]
            await asyncio.to_thread(watch.look, found)

        async def look_at_the_rest() -> None:
            for look in self.looks:
                look()

        looks = (lambda: asyncio.to_thread(look_at_logs), look_at_consumers, look_at_the_rest)
        self._looking = self.threads.task("looking", lambda: _look_again_and_again(looks, self._is_stopping))

    async def stop(self) -> None:
        """Look for the last time; what was emitted until now is kept."""
        self._is_stopping.set()
        if self._looking is not None:
            await self._looking
        if self._history is not None:
            await asyncio.to_thread(self._history.close)


def system_log(store: LogStore, settings: Management) -> LocalLog:
    """The log of notifications, made if need be, with the retention that is configured."""
    wanted = LogSettings(retention_ms=settings.keep_retention_ms, retention_bytes=settings.keep_retention_bytes)
    log = store.create(SYSTEM_LOG, is_own=True)
    return log if log.settings == wanted else impose(store, log, wanted)


async def _look_again_and_again(looks: Sequence[Callable[[], Awaitable[None]]], is_stopping: asyncio.Event) -> None:
    while not is_stopping.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await is_stopping.wait()
        for look in looks:
            try:
                await look()
            except Exception:  # the next look must have its turn
                logger.exception("a periodic check failed; it is tried again")
