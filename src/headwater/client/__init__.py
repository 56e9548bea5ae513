"""A Python client: a server's logs over HTTP, each a `core.EventLog`. Synchronous; safe to use from any thread.

server = connect("http://127.0.0.1:8080")
orders = server.create("orders")
orders.append([Event("OrderPlaced", b"{}", ("order:17",))])
"""

from ..formats.unreachable import ServerUnreachable
from .bulk import BulkProgress, append_all
from .problems import UnexpectedAnswer
from .sync.log import RemoteLog
from .sync.server import Server, connect
from .sync.work import Work
from .working import Batch

__all__ = [
    "Batch",
    "BulkProgress",
    "RemoteLog",
    "Server",
    "ServerUnreachable",
    "UnexpectedAnswer",
    "Work",
    "append_all",
    "connect",
]
