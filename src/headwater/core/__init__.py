"""The event log's model: events, queries, conditions, logs, subscriptions, consumers and their errors. No I/O here.

Terms follow the DCB specification (dcb.events and its first draft) and CloudEvents 1.0.
"""

from .access import (
    ANYBODY,
    Credentials,
    Forbidden,
    Grant,
    Guard,
    IssuerUnavailable,
    LoginNotChecked,
    OpenGuard,
    Right,
    TooManyLogins,
    Unauthenticated,
    User,
)
from .condition import AppendCondition
from .consumer import Consumer
from .errors import ConditionFailure
from .event import NO_ATTRIBUTES, Encoding, Event, SequencedEvent, tag_key
from .extent import Extent
from .local import LocalLog
from .log import (
    AppendRequest,
    AppendResult,
    ArrowBatch,
    EventLog,
    LogInfo,
    LogStatistics,
    Page,
    Reading,
    Selection,
    Subscription,
)
from .loop.async_log import AsyncLog
from .mark import Committed, Mark, Staged, WriterState
from .query import ALL, Query, QueryItem
from .reading import read_pages
from .settings import LogSettings, check_log_name
from .state import StateEntry, StateStore
from .store import LogStore
from .watch.bus import Bus, Notification
from .watch.notification_types import EVERY_TYPE, NotificationType

EventType = NotificationType
"""Its name in 0.1.0."""

__all__ = [
    "ALL",
    "ANYBODY",
    "EVERY_TYPE",
    "NO_ATTRIBUTES",
    "AppendCondition",
    "AppendRequest",
    "AppendResult",
    "ArrowBatch",
    "AsyncLog",
    "Bus",
    "Committed",
    "ConditionFailure",
    "Consumer",
    "Credentials",
    "Encoding",
    "Event",
    "EventLog",
    "EventType",
    "Extent",
    "Forbidden",
    "Grant",
    "Guard",
    "IssuerUnavailable",
    "LocalLog",
    "LogInfo",
    "LogSettings",
    "LogStatistics",
    "LogStore",
    "LoginNotChecked",
    "Mark",
    "Notification",
    "NotificationType",
    "OpenGuard",
    "Page",
    "Query",
    "QueryItem",
    "Reading",
    "Right",
    "Selection",
    "SequencedEvent",
    "Staged",
    "StateEntry",
    "StateStore",
    "Subscription",
    "TooManyLogins",
    "Unauthenticated",
    "User",
    "WriterState",
    "check_log_name",
    "read_pages",
    "tag_key",
]
