from collections.abc import Callable, Iterator

import pytest
from tests.client.databases import mysql_server, postgresql_server
from tests.client.served_memory import CuttingProxy, ServedMemory

from headwater.client import RemoteLog, Server, connect


@pytest.fixture
def served() -> Iterator[ServedMemory]:
    served = ServedMemory()
    yield served
    served.stop()


@pytest.fixture
def server(served: ServedMemory) -> Iterator[Server]:
    with connect(served.url, retry_s=0) as server:
        yield server


@pytest.fixture
def log(server: Server) -> RemoteLog:
    return server.create("orders")


@pytest.fixture
def cutting(served: ServedMemory) -> Iterator[Callable[..., CuttingProxy]]:
    proxies: list[CuttingProxy] = []

    def make(*cuts: int) -> CuttingProxy:
        proxies.append(CuttingProxy(served.port, list(cuts)))
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.close()


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """The address of a PostgreSQL server."""
    with postgresql_server() as address:
        yield address


@pytest.fixture(scope="module")
def mysql() -> Iterator[str]:
    """The address of a database of a MySQL server."""
    with mysql_server() as address:
        yield address
