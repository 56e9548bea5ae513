"""Many logs and registered consumers: neither metrics nor a list of them holds the event loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from headwater.core.consumer import Consumer
from headwater.storage import Engine

from .crowds import crowded
from .measuring import ObservedServer

CONSUMERS = 10_000
LOGS = 200
NOW_MS = 1_790_000_000_000
JSON = "application/json"
QUERIES = (
    "/management/consumer",
    "/management/consumer?attributes=name,owner,position",
    "/management/consumer?filter=owner%3Do",
    "/management?types=consumer,log&count=5000",
)


def fill(engine: Engine) -> None:
    """Logs, of which one has the consumers."""
    for number in range(LOGS):
        engine.create(f"l{number}")
    kind = f"consumer/{engine.incarnation_of('l0')}"
    for number in range(CONSUMERS):
        consumer = Consumer("o", f"c{number}", acknowledged=0, epoch=1, registered_at=NOW_MS, seen_at=NOW_MS)
        engine.state.put(kind, f"o\nc{number}", json.dumps(asdict(consumer)).encode(), is_durable=False)
    engine.state.flush()


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedServer]:
    with crowded(tmp_path_factory.mktemp("crowd"), fill) as server:
        for number in range(LOGS):
            assert server.exchange("GET", f"/logs/l{number}/head", b"", JSON) == 200
        yield server


@pytest.mark.parametrize("path", ["/metrics", "/logs/l0/consumers", "/logs", *QUERIES])
def test_lists_of_many(crowd: ObservedServer, path: str) -> None:
    statuses = set()
    crowd.check_holds(path, lambda: statuses.add(crowd.exchange("GET", path, b"", JSON)))
    assert statuses == {200}, statuses
