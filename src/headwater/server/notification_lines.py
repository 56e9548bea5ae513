"""What happens, told on stderr: one line for each notification, of the level that its type has."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..core.bus import Notification
from ..core.event_types import EventType
from .log_lines import fields

logger = logging.getLogger("headwater.events")

_DEBUG, _INFO, _WARNING = logging.DEBUG, logging.INFO, logging.WARNING
LINES: Mapping[EventType, tuple[int, str]] = {
    EventType.SERVER_STARTED: (_INFO, "started"),
    EventType.SERVER_STOPPING: (_INFO, "stopping"),
    EventType.LOG_CREATED: (_INFO, "log created"),
    EventType.LOG_CHANGED: (_INFO, "log changed"),
    EventType.LOG_DELETED: (_INFO, "log deleted"),
    EventType.LOG_TRIMMED: (_INFO, "log trimmed"),
    EventType.CONNECTION_OPENED: (_DEBUG, "connection opened"),
    EventType.CONNECTION_CLOSED: (_DEBUG, "connection closed"),
    EventType.CONNECTION_REFUSED: (_WARNING, "connection refused"),
    EventType.LINK_ATTACHED: (_DEBUG, "link attached"),
    EventType.LINK_DETACHED: (_DEBUG, "link detached"),
    EventType.LINK_REFUSED: (_INFO, "link refused"),
    EventType.PARTITION_ASSIGNED: (_DEBUG, "partition assigned"),
    EventType.PARTITION_STOLEN: (_INFO, "partition stolen"),
    EventType.PARTITION_RELEASED: (_DEBUG, "partition released"),
    EventType.EPOCH_CHANGED: (_DEBUG, "epoch changed"),
    EventType.CONSUMER_REGISTERED: (_INFO, "consumer registered"),
    EventType.CONSUMER_UNREGISTERED: (_INFO, "consumer unregistered"),
    EventType.CONSUMER_LAGGING: (_WARNING, "consumer lags"),
    EventType.CONSUMER_CAUGHT_UP: (_INFO, "consumer caught up"),
    EventType.APPEND_REJECTED: (_WARNING, "appends rejected"),
    EventType.CONDITION_FAILED: (_DEBUG, "conditions failed"),
    EventType.DISK_LOW: (_WARNING, "disk low"),
    EventType.DISK_RECOVERED: (_INFO, "disk recovered"),
    EventType.SEGMENT_SEALED: (_DEBUG, "segment sealed"),
    EventType.ARCHIVE_PROGRESSED: (_DEBUG, "archive progressed"),
    EventType.WEBHOOK_FAILING: (_WARNING, "webhook fails"),
    EventType.WEBHOOK_RECOVERED: (_INFO, "webhook recovered"),
    EventType.AUTHENTICATION_FAILED: (_WARNING, "login refused"),
}
"""The level and the message of each type. What ends with an error is told at `info` at least."""
_HEAD = ("eventType", "time")
_WITH_ERROR = frozenset({EventType.CONNECTION_CLOSED, EventType.LINK_DETACHED})


def told_types() -> frozenset[EventType]:
    """The types of which there may be a line, as logging is configured now: nobody need listen to the others."""
    return frozenset(type for type in LINES if logger.isEnabledFor(_highest_level(type)))


def write_line(notification: Notification) -> None:
    """A listener to the bus."""
    level, message = LINES[notification.type]
    if "condition" in notification.attributes:
        level = max(level, _INFO)
    if logger.isEnabledFor(level):
        its = {name: value for name, value in notification.attributes.items() if name not in _HEAD}
        logger.log(level, message, extra=fields(**its))


def _highest_level(type: EventType) -> int:
    return max(LINES[type][0], _INFO) if type in _WITH_ERROR else LINES[type][0]
