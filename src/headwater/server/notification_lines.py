"""Logs notifications: one line on stderr for each, of the level that its type has."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..core.bus import Notification
from ..core.notification_types import NotificationType
from .log_lines import fields

logger = logging.getLogger("headwater.events")

_DEBUG, _INFO, _WARNING = logging.DEBUG, logging.INFO, logging.WARNING
LINES: Mapping[NotificationType, tuple[int, str]] = {
    NotificationType.SERVER_STARTED: (_INFO, "started"),
    NotificationType.SERVER_STOPPING: (_INFO, "stopping"),
    NotificationType.THREAD_FAILED: (_WARNING, "background work failed"),
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
"""The level and the message of each type. What ends with an error is logged at `info` at least."""
_HEAD = ("eventType", "time")
_WITH_ERROR = frozenset({NotificationType.CONNECTION_CLOSED, NotificationType.LINK_DETACHED})


def logged_types() -> frozenset[NotificationType]:
    """The types of which there may be a line, as logging is configured now: nobody need listen to the others."""
    return frozenset(type for type in LINES if logger.isEnabledFor(_highest_level(type)))


def write_line(notification: Notification) -> None:
    """A listener to the bus."""
    level, message = LINES[notification.type]
    if "condition" in notification.attributes:
        level = max(level, _INFO)
    if logger.isEnabledFor(level):
        others = {name: value for name, value in notification.attributes.items() if name not in _HEAD}
        logger.log(level, message, extra=fields(**others))


def _highest_level(type: NotificationType) -> int:
    return max(LINES[type][0], _INFO) if type in _WITH_ERROR else LINES[type][0]
