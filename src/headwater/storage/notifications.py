"""Notifications about created, changed and deleted logs, in any kind of store."""

from __future__ import annotations

import json
from dataclasses import asdict

from ..core.actor import acting
from ..core.log import LogInfo
from ..core.settings import LogSettings
from ..core.watch.bus import Bus
from ..core.watch.notification_types import NotificationType
from ..formats.settings.logs import attribute_name


def notify_created(bus: Bus, info: LogInfo) -> None:
    """Announce a created log."""
    partitions = info.settings.partitions
    bus.emit(
        NotificationType.LOG_CREATED,
        log=info.name,
        incarnation=info.incarnation,
        partitions=partitions,
        user=acting(),
    )


def notify_changed(bus: Bus, log: str, old: LogSettings, new: LogSettings) -> None:
    """Announce new settings of a log, unless they are the same as before."""
    before = asdict(old)
    if changed := {attribute_name(name): value for name, value in asdict(new).items() if value != before[name]}:
        bus.emit(NotificationType.LOG_CHANGED, log=log, settings=json.dumps(changed), user=acting())


def notify_deleted(bus: Bus, info: LogInfo) -> None:
    """Announce a deleted log."""
    bus.emit(NotificationType.LOG_DELETED, log=info.name, incarnation=info.incarnation, head=info.head, user=acting())
