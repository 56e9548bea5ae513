from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.amqp.client import Client

from .served import Served


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as running:
        running.log("orders")
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with served.client() as connected:
        yield connected
