"""A Python client: a server's logs over HTTP, each a `core.EventLog`. Synchronous; safe to use from any thread.

server = connect("http://127.0.0.1:8080")
orders = server.create("orders")
orders.append([Event("OrderPlaced", b"{}", ("order:17",))])
"""

from ..formats.clients.retry import ServerUnreachable
from .bulk import BulkProgress, append_all
from .protocol.problems import UnexpectedAnswer
from .protocol.share import Batch
from .sync.log import RemoteLog
from .sync.server import Server, connect
from .sync.work import Work

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
