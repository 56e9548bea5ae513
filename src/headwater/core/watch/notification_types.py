"""The types of notification, by name. For what each carries, and who may see it, see `management.notifications`."""

from __future__ import annotations

from enum import StrEnum


class NotificationType(StrEnum):
    """A type of notification, by its name below the project's reversed domain."""

    SERVER_STARTED = "io.headwater.server.started"
    SERVER_STOPPING = "io.headwater.server.stopping"
    THREAD_FAILED = "io.headwater.thread.failed"
    CLOCK_JUMPED = "io.headwater.clock.jumped"
    CLOCK_SETTLED = "io.headwater.clock.settled"
    SERVER_LOOP_HELD = "io.headwater.server.loopHeld"
    SERVER_ROLE_CHANGED = "io.headwater.server.roleChanged"
    HOME_AWAY = "io.headwater.home.away"
    HOME_BACK = "io.headwater.home.back"
    HOME_WENT_BACK = "io.headwater.home.wentBack"
    HOME_ACCEPTED = "io.headwater.home.accepted"
    HOME_NO_PRIMARY = "io.headwater.home.noPrimary"
    LOG_CREATED = "io.headwater.log.created"
    LOG_CHANGED = "io.headwater.log.changed"
    LOG_DELETED = "io.headwater.log.deleted"
    LOG_TRIMMED = "io.headwater.log.trimmed"
    LOG_UNAVAILABLE = "io.headwater.log.unavailable"
    LOG_AVAILABLE = "io.headwater.log.available"
    CONNECTION_OPENED = "io.headwater.connection.opened"
    CONNECTION_CLOSED = "io.headwater.connection.closed"
    CONNECTION_REFUSED = "io.headwater.connection.refused"
    LINK_ATTACHED = "io.headwater.link.attached"
    LINK_DETACHED = "io.headwater.link.detached"
    LINK_REFUSED = "io.headwater.link.refused"
    PARTITION_ASSIGNED = "io.headwater.partition.assigned"
    PARTITION_STOLEN = "io.headwater.partition.stolen"
    PARTITION_RELEASED = "io.headwater.partition.released"
    EPOCH_CHANGED = "io.headwater.epoch.changed"
    CONSUMER_REGISTERED = "io.headwater.consumer.registered"
    CONSUMER_MOVED = "io.headwater.consumer.moved"
    CONSUMER_UNREGISTERED = "io.headwater.consumer.unregistered"
    CONSUMER_LAGGING = "io.headwater.consumer.lagging"
    CONSUMER_CAUGHT_UP = "io.headwater.consumer.caughtUp"
    APPEND_REJECTED = "io.headwater.append.rejected"
    CONDITION_FAILED = "io.headwater.condition.failed"
    DISK_LOW = "io.headwater.disk.low"
    DISK_RECOVERED = "io.headwater.disk.recovered"
    SEGMENT_SEALED = "io.headwater.segment.sealed"
    ARCHIVE_PROGRESSED = "io.headwater.archive.progressed"
    WEBHOOK_FAILING = "io.headwater.webhook.failing"
    WEBHOOK_RECOVERED = "io.headwater.webhook.recovered"
    WEBHOOK_FORGOTTEN = "io.headwater.webhook.forgotten"
    AUTHENTICATION_FAILED = "io.headwater.authentication.failed"
    USER_CREATED = "io.headwater.user.created"
    USER_CHANGED = "io.headwater.user.changed"
    USER_DELETED = "io.headwater.user.deleted"


EVERY_TYPE = frozenset(NotificationType)
