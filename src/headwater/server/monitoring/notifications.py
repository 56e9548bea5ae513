"""The notifications of one server: the bus, with its logging, counting and storage."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ...core.errors import EventLogError
from ...core.followers import Follower
from ...core.local import LocalLog
from ...core.settings import SYSTEM_LOG, LogSettings
from ...core.store import LogStore
from ...core.watch.bus import Bus, Notification
from ...core.watch.notification_types import NotificationType
from ...core.watch.threads import Threads
from ...management.notifications.availability import Availability
from ...management.notifications.consumers import ConsumerWatch
from ...management.notifications.history import History
from ...management.notifications.summaries import Summaries
from ..config.settings import Management
from ..process.log_lines import fields
from ..startup.configured_logs import impose

events_logger = logging.getLogger("headwater.events")

_DEBUG, _INFO, _WARNING = logging.DEBUG, logging.INFO, logging.WARNING
LINES: Mapping[NotificationType, tuple[int, str]] = {
    NotificationType.SERVER_STARTED: (_INFO, "started"),
    NotificationType.SERVER_STOPPING: (_INFO, "stopping"),
    NotificationType.THREAD_FAILED: (_WARNING, "background task failed"),
    NotificationType.CLOCK_JUMPED: (_WARNING, "clock jumped"),
    NotificationType.CLOCK_SETTLED: (_INFO, "clock settled"),
    NotificationType.SERVER_LOOP_HELD: (_WARNING, "event loop held"),
    NotificationType.SERVER_ROLE_CHANGED: (_WARNING, "role changed"),
    NotificationType.HOME_AWAY: (_WARNING, "home away"),
    NotificationType.HOME_BACK: (_INFO, "home back"),
    NotificationType.HOME_WENT_BACK: (_WARNING, "home went back"),
    NotificationType.HOME_ACCEPTED: (_INFO, "home accepted"),
    NotificationType.HOME_NO_PRIMARY: (_WARNING, "no primary"),
    NotificationType.LOG_CREATED: (_INFO, "log created"),
    NotificationType.LOG_CHANGED: (_INFO, "log changed"),
    NotificationType.LOG_DELETED: (_INFO, "log deleted"),
    NotificationType.LOG_TRIMMED: (_INFO, "log trimmed"),
    NotificationType.LOG_UNAVAILABLE: (_WARNING, "log unavailable"),
    NotificationType.LOG_AVAILABLE: (_INFO, "log available"),
    NotificationType.CONNECTION_OPENED: (_DEBUG, "connection opened"),
    NotificationType.CONNECTION_CLOSED: (_DEBUG, "connection closed"),
    NotificationType.CONNECTION_REFUSED: (_WARNING, "connection refused"),
    NotificationType.LINK_ATTACHED: (_DEBUG, "link attached"),
    NotificationType.LINK_DETACHED: (_DEBUG, "link detached"),
    NotificationType.LINK_REFUSED: (_INFO, "link refused"),
    NotificationType.PARTITION_ASSIGNED: (_DEBUG, "partition assigned"),
    NotificationType.PARTITION_STOLEN: (_INFO, "partition stolen"),
    NotificationType.PARTITION_RELEASED: (_DEBUG, "partition released"),
    NotificationType.EPOCH_CHANGED: (_DEBUG, "epoch changed"),
    NotificationType.CONSUMER_REGISTERED: (_INFO, "consumer registered"),
    NotificationType.CONSUMER_MOVED: (_INFO, "consumer moved"),
    NotificationType.CONSUMER_UNREGISTERED: (_INFO, "consumer unregistered"),
    NotificationType.CONSUMER_LAGGING: (_WARNING, "consumer lags"),
    NotificationType.CONSUMER_CAUGHT_UP: (_INFO, "consumer caught up"),
    NotificationType.APPEND_REJECTED: (_WARNING, "appends rejected"),
    NotificationType.CONDITION_FAILED: (_DEBUG, "conditions failed"),
    NotificationType.DISK_LOW: (_WARNING, "disk low"),
    NotificationType.DISK_RECOVERED: (_INFO, "disk recovered"),
    NotificationType.SCRUB_DAMAGED: (_DEBUG, "damage on the disk"),
    NotificationType.SCRUB_MENDED: (_DEBUG, "damage on the disk is gone"),
    NotificationType.SCRUB_ENDED: (_DEBUG, "scrub ended"),
    NotificationType.SEGMENT_SEALED: (_DEBUG, "segment sealed"),
    NotificationType.ARCHIVE_PROGRESSED: (_DEBUG, "archive progressed"),
    NotificationType.WEBHOOK_FAILING: (_WARNING, "webhook fails"),
    NotificationType.WEBHOOK_RECOVERED: (_INFO, "webhook recovered"),
    NotificationType.WEBHOOK_FORGOTTEN: (_WARNING, "webhook forgotten"),
    NotificationType.AUTHENTICATION_FAILED: (_WARNING, "login refused"),
    NotificationType.USER_CREATED: (_INFO, "user created"),
    NotificationType.USER_CHANGED: (_INFO, "user changed"),
    NotificationType.USER_DELETED: (_INFO, "user deleted"),
}
"""The level and message of each type. Notifications with an error condition are logged at `info` at least."""
_HEAD = ("eventType", "time")
_WITH_ERROR = frozenset({NotificationType.CONNECTION_CLOSED, NotificationType.LINK_DETACHED})


def logged_types() -> frozenset[NotificationType]:
    """The types that can be logged at the configured level. Other types need no listener."""
    return frozenset(type for type in LINES if events_logger.isEnabledFor(_highest_level(type)))


def write_line(notification: Notification) -> None:
    """Logs a notification; a bus listener."""
    level, message = LINES[notification.type]
    if "condition" in notification.attributes:
        level = max(level, _INFO)
    if events_logger.isEnabledFor(level):
        others = {name: value for name, value in notification.attributes.items() if name not in _HEAD}
        events_logger.log(level, message, extra=fields(**others))


def _highest_level(type: NotificationType) -> int:
    return max(LINES[type][0], _INFO) if type in _WITH_ERROR else LINES[type][0]


logger = logging.getLogger("headwater.server")

LOOK_S = 1.0
"""How often counters and consumers are checked."""


class Notifications:
    """Create it before anything is emitted; call `keep` and `start` with the store, and `stop` before that closes."""

    def __init__(self, settings: Management) -> None:
        self._settings = settings
        self.bus = Bus()
        self.threads = Threads(self.bus)
        """The server's permanent threads."""
        self._history: History | None = None
        self._looking: asyncio.Task[None] | None = None
        self.following: list[Callable[[], Awaitable[Sequence[Follower]]]] = []
        """Functions that return the readers with positions. They are called once a second, on the loop."""
        self.looks: list[Callable[[], object]] = []
        """Other functions called once a second, on the loop, since their findings may cause notifications."""
        self.watch: ConsumerWatch | None = None
        """Set by `start`."""
        self._availability: Availability | None = None
        self._is_stopping = asyncio.Event()
        if types := logged_types():
            self.bus.subscribe(write_line, types)

    async def keep(self, store: LogStore) -> None:
        """Store notifications from now on, if configured."""
        settings = self._settings
        if settings.keep:
            try:
                log = await asyncio.to_thread(system_log, store, settings)
            except (
                EventLogError
            ) as error:  # the log is damaged or the disk is full; this is logged, and the server still starts
                logger.error("cannot store the notifications", extra=fields(log=SYSTEM_LOG, problem=error))
            else:
                self._history = History(self.bus, log, threads=self.threads)
                self._history.start()
        if self._availability is not None:
            await asyncio.to_thread(self._availability.forget)

    async def start(self, store: LogStore) -> None:
        """Begin the checks."""
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
        """Check for the last time; everything emitted until now is stored."""
        self._is_stopping.set()
        if self._looking is not None:
            await self._looking
        if self._history is not None:
            await asyncio.to_thread(self._history.close)


def system_log(store: LogStore, settings: Management) -> LocalLog:
    """The log of notifications, created if needed, with the configured retention."""
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
            except Exception:  # the next check must have its turn
                logger.exception("a periodic check failed; retrying")
