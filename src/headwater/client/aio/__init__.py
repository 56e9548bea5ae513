"""The Python client for asyncio: the methods of `headwater.client`, awaited. Use it on one event loop.

async with connect("http://127.0.0.1:8080") as server:
    orders = await server.create("orders")
    await orders.append([Event("OrderPlaced", b"{}", ("order:17",))])
    async for event in await orders.read():
        ...
"""

from .log import RemoteLog
from .reading import RemoteReading
from .server import Server, connect
from .subscription import RemoteSubscription
from .work import Work

__all__ = ["RemoteLog", "RemoteReading", "RemoteSubscription", "Server", "Work", "connect"]
