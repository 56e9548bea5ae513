"""Server notifications, and the server's entities as a management client sees them. No I/O.

Notifications travel on a `core.Bus`. `catalog` describes them; `queue` delivers them to one listener. Types and
attributes follow the event notification proposed for AMQP Management.
"""

from .attributes import Kind
from .notifications.catalog import CATALOG, LOST, Attribute, Entry, Scope, as_seen_by, may_see
from .notifications.queue import NotificationQueue

__all__ = ["CATALOG", "LOST", "Attribute", "Entry", "Kind", "NotificationQueue", "Scope", "as_seen_by", "may_see"]
