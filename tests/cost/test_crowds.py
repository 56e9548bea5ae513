"""Many logs and registered consumers: neither metrics nor a list of them holds the event loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.storage import Engine

from .crowds import crowded
from .measuring import ObservedServer

CONSUMERS = (2_500, 10_000)
LOGS = 200
JSON = "application/json"
QUERIES = (
    "/management/registered-consumer",
    "/management/registered-consumer?attributes=name,owner,position",
    "/management/registered-consumer?filter=owner%3Do",
    "/management?types=registered-consumer,log",
)


def fill(engine: Engine, consumers: int) -> None:
    """Logs, of which one has as many consumers."""
    for number in range(LOGS):
        engine.create(f"l{number}")
    log = engine.open("l0")
    for number in range(consumers):
        log.register_consumer("o", f"c{number}", after=0)


@pytest.fixture(scope="module", params=CONSUMERS)
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedServer]:
    path: Path = tmp_path_factory.mktemp("crowd")
    with crowded(path, lambda engine: fill(engine, request.param)) as server:
        for number in range(LOGS):
            assert server.exchange("GET", f"/logs/l{number}/head", b"", JSON) == 200
        yield server


@pytest.mark.parametrize("path", ["/metrics", "/logs/l0/consumers", "/logs", *QUERIES])
def test_lists_of_many(crowd: ObservedServer, path: str) -> None:
    statuses = set()
    crowd.check_holds(path, lambda: statuses.add(crowd.exchange("GET", path, b"", JSON)))
    assert statuses == {200}, statuses
