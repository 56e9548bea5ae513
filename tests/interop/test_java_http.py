"""Java's own HTTP client, unmodified, on every front end that speaks HTTP. `make interop` compiles it."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.server.running import RunningServer

from .install import unavailable
from .runtimes import JavaHttp

RUNTIME = JavaHttp()
JSON = "application/json"

pytestmark = pytest.mark.timeout(120)


class Answer(NamedTuple):
    """A line of the client."""

    status: int
    version: str
    body: str

    @property
    def json(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.body)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    if reason := RUNTIME.missing():
        unavailable(reason)
    with RunningServer("--storage", "memory", "--log", "orders", cwd=tmp_path_factory.mktemp("java")) as running:
        yield running


def ask(server: RunningServer, *requests: tuple[str, str, str, str]) -> list[Answer]:
    """The answers to requests of method, path, media type and body, sent one after the other."""
    given = [text for method, path, kind, body in requests for text in (method, f"{server.url}{path}", kind, body)]
    done = subprocess.run([*RUNTIME.command(), *given], check=True, capture_output=True, text=True, timeout=60)
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    return [Answer(int(line[0]), line[1], base64.b64decode(line[2]).decode()) for line in lines]


def test_it_appends_and_reads(server: RunningServer) -> None:
    event = {"type": "Placed", "data": "x" * 50_000, "tags": ["order:1"]}
    appended, read, head = ask(
        server,
        ("POST", "/logs/orders/append", JSON, json.dumps({"events": [event]})),
        ("POST", "/logs/orders/read", JSON, '{"query": {"items": [{"types": ["Placed"], "tags": ["order:1"]}]}}'),
        ("GET", "/logs/orders/head", JSON, ""),
    )
    assert appended.status == 200, appended.body
    assert read.json["event"]["data"] == event["data"]
    assert head.json["head"] == read.json["sequence_number"]


def test_it_adds_events_of_futoin(server: RunningServer) -> None:
    call = {"f": "futoin.evt.gen:1.1:addEvent", "p": {"type": "ORDER_NEW", "data": {"id": 7}}, "rid": "C1"}
    (answer,) = ask(server, ("POST", "/futoin/orders", "application/futoin+json", json.dumps(call)))
    assert answer.status == 200
    assert answer.json["rid"] == "C1"
    assert "r" in answer.json, answer.body


def test_it_subscribes_to_notifications(server: RunningServer) -> None:
    asked = {"ResourceAddress": "/././sync/sync-state", "EndpointUri": "nonsense"}
    (answer,) = ask(server, ("POST", "/ocloudNotifications/v1/subscriptions", JSON, json.dumps(asked)))
    assert "EndpointUri" in answer.body, answer  # so its body was read
