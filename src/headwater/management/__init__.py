"""The notifications of the server, and its entities as a management client sees them. No I/O.

Notifications come on a `core.Bus`; here is what there is to know of them (`catalog`), and how one listener gets them
(`queue`). Types and attributes follow the event notification that was proposed for AMQP Management.
"""

from .attributes import Kind
from .notifications.catalog import CATALOG, LOST, Attribute, Entry, Scope, as_seen_by, may_see
from .notifications.queue import NotificationQueue

__all__ = ["CATALOG", "LOST", "Attribute", "Entry", "Kind", "NotificationQueue", "Scope", "as_seen_by", "may_see"]
