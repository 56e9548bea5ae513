"""Warnings about settings that allow more than the memory budget holds: the server's settings, and those of logs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from ...core.errors import LogNotFound, StorageCorrupted
from ...core.loop.memory import MemoryAccount
from ...core.settings import is_own
from ...core.store import LogStore
from ...core.watch.bus import Bus, Notification
from ...core.watch.notification_types import NotificationType
from ...formats.settings.declaration import show_bytes
from ...http.body_memory import largest_within, memory_of
from ..process.log_lines import fields

logger = logging.getLogger("headwater.server.memory")


def warn_of_misfit(setting: str, allowed: int, memory: MemoryAccount) -> None:
    """Log a warning if a setting allows bodies or events that are larger than the memory budget."""
    if memory_of(allowed) > memory.largest:
        logger.warning(
            "the limit in a setting is larger than memory.peers",
            extra=fields(
                setting=setting,
                allowed=show_bytes(allowed),
                fits=largest_within(memory.largest),
                budget=show_bytes(memory.bytes_max),
            ),
        )


def watch_logs(bus: Bus, store: LogStore, memory: MemoryAccount) -> Callable[[], None]:
    """Warn of each log whose events may be too large: now, and when one is created or changed, until the returned
    callable is called.
    """

    def look_at(name: str) -> None:
        with suppress(LogNotFound, StorageCorrupted):  # just deleted, or the server is stopping
            if not is_own(name):
                warn_of_misfit(f"logs.{name}.event_bytes_max", store.settings_of(name).event_bytes_max, memory)

    def take(notification: Notification) -> None:
        look_at(str(notification.attributes["log"]))

    stop = bus.subscribe(take, (NotificationType.LOG_CREATED, NotificationType.LOG_CHANGED))
    for name in store.names():
        look_at(name)
    return stop
