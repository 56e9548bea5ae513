"""Servers with many of something: what they hold is written into their directory before they start."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from headwater.cne.notifications.notification import Dialect
from headwater.cne.notifications.records import Publisher, Record, Subscription
from headwater.storage import Engine

from .measuring import ObservedServer

CNE = "/ocloudNotifications/v2"
BATCH = 1000
RESOURCES = ("ptp-status/lock-state", "sync-status/sync-state", "gnss-status/gnss-sync-status")


@contextmanager
def crowded(path: Path, fill: Callable[[Engine], object], config: str = "") -> Iterator[ObservedServer]:
    """A server whose directory was filled."""
    with Engine(path / "data", reserve_bytes=0) as engine:
        fill(engine)
    (path / "config.toml").write_text(config)
    with ObservedServer("--config", "config.toml", "--data", "data", cwd=path) as running:
        assert running.exchange("GET", "/health/ready", b"", "") == 200
        yield running


def write_records(engine: Engine, kind: str, records: Iterable[Record]) -> None:
    """Subscriptions, or publishers."""
    for each in records:
        engine.state.put(f"cne/{kind}", each.id, msgspec.json.encode(each), is_durable=False)
    engine.state.flush()


def subscriptions(count: int, endpoint: str = "", resource: str = "/./n{}/sync") -> Iterator[Subscription]:
    """Each with an endpoint of its own, where `endpoint` has a place for the number; `resource` likewise."""
    for number in range(count):
        yield Subscription(
            id=f"s-{number:06}",
            resource=resource.format(number),
            endpoint=endpoint.format(number),
            dialect=Dialect.V2,
            owner="address:127.0.0.1",
            location=f"http://127.0.0.1{CNE}/subscriptions/s-{number:06}",
            created_at=1_700_000_000_000 + number,
            start=0,
        )


def publishers(count: int) -> Iterator[Publisher]:
    """Each of a node of its own."""
    for number in range(count):
        yield Publisher(
            id=f"p-{number:06}",
            resource=f"/./n{number}/sync",
            dialect=Dialect.V2,
            owner="address:127.0.0.1",
            location=f"http://127.0.0.1{CNE}/publishers/p-{number:06}",
            created_at=1_700_000_000_000 + number,
        )


def publish(server: ObservedServer, addresses: Iterable[str], value: str = "LOCKED") -> None:
    """One event at each of these addresses."""
    texts = [json.dumps(_event(address, value)) for address in addresses]
    for start in range(0, len(texts), BATCH):
        body = f"[{','.join(texts[start : start + BATCH])}]".encode()
        path = f"{CNE}/create/event"
        assert server.exchange("POST", path, body, "application/cloudevents-batch+json") == 202


_numbers = iter(range(10**9))


def _event(address: str, value: str) -> dict[str, object]:
    found = {"ResourceAddress": address, "data_type": "notification", "value_type": "enumeration", "value": value}
    return {
        "specversion": "1.0",
        "id": f"e-{next(_numbers)}",
        "source": address,
        "type": "event.sync.ptp-status.ptp-state-change",
        "time": "2026-05-06T07:08:09Z",
        "data": {"version": "1.0", "values": [found]},
    }


class _Taking(BaseHTTPRequestHandler):
    """Takes whatever is sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.wfile.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def webhooks() -> Iterator[str]:
    """The URI below which everything is taken; `{}` in it stands for a number."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Taking) as receiver:
        receiver.daemon_threads = True
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{receiver.server_port}/{{}}"
        finally:
            receiver.shutdown()
