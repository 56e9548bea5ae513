"""Supervision: keeps a feed for the log, which may be created late, deleted, and recreated.

An existing log is followed from the start; otherwise the log is created when it is first needed. When it is deleted,
the feed ends; when it is recreated, a new feed begins."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from ..core.errors import Closed, EventLogError, LogNotFound
from ..core.local import LocalLog
from ..core.loop.scheduler import FairScheduler
from ..core.loop.slices import Slices
from ..core.store import LogStore
from ..core.watch.bus import Bus
from .delivery.delivery import Delivery
from .delivery.endpoint import stop_all
from .delivery.kept import Kept
from .feed import Feed
from .notifications.records import Subscription
from .registry import Registry
from .settings import Settings

POLL_S = 1.0
"""The interval between checks whether another client has created the log."""
READY_S = 10.0

_logger = logging.getLogger("headwater.cne")


class FeedSupervisor:
    """Keeps a feed running on one event loop: `start` it once the subscriptions are loaded, and `close` it."""

    def __init__(
        self,
        store: LogStore,
        subscriptions: Registry[Subscription],
        delivery: Delivery,
        settings: Settings,
        bus: Bus,
        turns: FairScheduler | None = None,
    ) -> None:
        """Every feed begins with the current subscriptions; the caller adds later ones."""
        self._store, self._subscriptions, self._delivery = store, subscriptions, delivery
        self._settings, self._bus, self._turns = settings, bus, turns
        self.present: Feed | None = None
        """The running feed, if any. Any thread may read it."""
        self._ready = asyncio.Event()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        """Once set, the task ends, even if another exception replaces its cancellation."""

    def start(self) -> None:
        """Follow the log as soon as it exists."""
        self._task = asyncio.create_task(self._supervise(), name="cloud native events")

    async def close(self) -> None:
        """Stop delivering, and save all positions."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def feed(self) -> Feed:
        """The feed; creates the log if it is missing. Raises EventLogError."""
        if (feed := self._open_feed()) is not None:
            return feed
        await asyncio.to_thread(self._store.create, self._settings.log)
        return await self._started()

    async def feed_if_there(self) -> Feed | None:
        """The feed, or None if there is no log yet. Raises EventLogError."""
        if (feed := self._open_feed()) is not None:
            return feed
        if self._settings.log not in await asyncio.to_thread(self._store.names):
            return None
        return await self._started()

    def _open_feed(self) -> Feed | None:
        return None if self.present is None or self.present.log.is_closed else self.present

    async def _started(self) -> Feed:
        self._wanted.set()
        try:
            async with asyncio.timeout(READY_S):
                while (feed := self._open_feed()) is None:
                    self._ready.clear()
                    await self._ready.wait()
        except TimeoutError:
            raise Closed(self._settings.log) from None
        return feed

    async def _supervise(self) -> None:
        while not self._is_closing:
            try:
                log = await asyncio.to_thread(self._opened)
                if log is not None:
                    await self._follow(log)
            except EventLogError as error:
                _logger.error("cannot follow log %s at present: %s", self._settings.log, error)
            except Exception:
                _logger.exception("following log %s failed; retrying", self._settings.log)
            if self._is_closing:
                return
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._wanted.wait()

    def _opened(self) -> LocalLog | None:
        try:
            return self._store.open(self._settings.log)
        except LogNotFound:
            return None

    async def _follow(self, log: LocalLog) -> None:
        feed = Feed(log, self._store.state, self._delivery, self._settings, self._bus, self._turns)
        try:
            kept = await asyncio.to_thread(feed.restore)
        except BaseException:
            feed.leave()  # a feed that did not start has nothing to save
            raise
        try:
            await self._subscribe_all(feed, kept)
            self.present = feed
            self._ready.set()
            await feed.run()
        finally:
            self.present = None
            await feed.close()

    async def _subscribe_all(self, feed: Feed, kept: Mapping[str, Kept]) -> None:
        """Add every subscription present when this returns; other tasks get turns in between."""
        slices, by_id = Slices(), self._subscriptions.by_id
        for subscription in (known := list(by_id.values())):
            await slices.pause()
            if subscription.id in by_id:
                feed.subscribe(subscription, kept.get(subscription.endpoint))
        for subscription in [each for each in known if each.id not in by_id]:
            if (endpoint := feed.unsubscribe(subscription)) is not None:
                await stop_all([endpoint])
