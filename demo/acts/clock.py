"""A clock loses and regains its lock: O-RAN's notifications to two workloads, one of them slow, over a kill -9."""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ..stage import Stage

TITLE = "A clock loses its lock"
API = "/api/ocloudNotifications/v2"
RESOURCE = "/cluster/node/worker-0/sync/ptp-status/lock-state"
EVENT_TYPE = "event.sync.ptp-status.ptp-state-change"
STATES = ("LOCKED", "HOLDOVER", "FREERUN", "HOLDOVER", "LOCKED")
"""What the clock goes through: it loses the grandmaster, drifts too far, and finds it again."""
TURNS = 3
SLOW_S = 0.25
PATIENCE_S = 60.0


class Clock:
    """A simulated PTP clock: how far it is off, in ns, as long as it is in a state."""

    def __init__(self, seed: int = 1588) -> None:
        self._random = random.Random(seed)
        self.offset = 0.0

    def turn(self, state: str) -> float:
        """Let it run for a while in that state; answers its offset."""
        if state == "LOCKED":
            self.offset = self._random.gauss(0, 8)
        else:
            self.offset += abs(self._random.gauss(120 if state == "HOLDOVER" else 900, 40))
        return self.offset


class _Webhooks(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that the killed server had: the act is about that."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Workload:
    """A subscriber: a web server that answers 204, some of them only after a while."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.states: list[str] = []
        self.delays: list[float] = []
        self._changed = threading.Condition()
        workload = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                time.sleep(pause_s)
                self.send_response(204)
                self.end_headers()
                workload._take(json.loads(body))

            def log_message(self, *_: Any) -> None:
                """The demo tells it."""

        self._server = _Webhooks(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def uri(self) -> str:
        """Where it gets its events."""
        return f"http://127.0.0.1:{self._server.server_port}/event"

    def until(self, holds: Callable[[list[str]], bool]) -> None:
        """Wait for its states. Raises AssertionError if they do not come."""
        with self._changed:
            assert self._changed.wait_for(lambda: holds(self.states), PATIENCE_S), f"it got {self.states} only"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, event: dict[str, Any]) -> None:
        state, offset = (value["value"] for value in event["data"]["values"])
        with self._changed:
            self.states.append(f"{state} {offset}")
            self.delays.append(time.time() - float(event["sentat"]))
            self._changed.notify_all()


def play(stage: Stage) -> None:
    """Publish what the clock does; compare what both workloads got."""
    fast, slow = Workload(), Workload(SLOW_S)
    try:
        _play(stage, fast, slow)
    finally:
        fast.close()
        slow.close()


def _play(stage: Stage, fast: Workload, slow: Workload) -> None:
    clock = Clock()
    told = [_publish(stage, "LOCKED", clock)]
    for workload in (fast, slow):
        _ask(stage, "POST", "/subscriptions", {"EndpointUri": workload.uri, "ResourceAddress": RESOURCE})
    stage.say(f"two workloads subscribe to [bold]{RESOURCE}[/];")
    stage.say(f"each is greeted with the current state, {told[0]}; one of them takes {SLOW_S:g} s for each event")
    for state in STATES * TURNS:
        told.append(_publish(stage, state, clock))
    fast.until(lambda states: len(states) == len(told))
    behind = len(told) - len(slow.states)
    assert fast.states == told, f"the fast one got {fast.states}"
    median_ms = 1000 * statistics.median(fast.delays[1:])
    stage.say(f"{len(told) - 1} changes: the fast one has them all, in order ({median_ms:.0f} ms each, at the median);")
    stage.say(f"the slow one is {behind} behind, and holds nobody up")
    stage.server.kill()
    seconds = stage.server.start()
    stage.say(f"[bold]kill -9[/]; back after {seconds:.1f} s, with its subscriptions and where each of them was")
    state = json.loads(_ask(stage, "GET", f"{RESOURCE}/CurrentState"))["data"]["values"][0]["value"]
    assert state == STATES[-1], f"the current state is {state}"
    slow.until(lambda states: states[-1:] == told[-1:])
    repeats = len(slow.states) - len(told)
    assert _once(slow.states) == _once(told), f"the slow one got {slow.states}"
    stage.say(f"the slow one got every change, in order ({repeats} of them twice); the current state is {state}")
    stage.note("notifications lost by a slow subscriber and a kill -9", "0")
    stage.note("from a change of state to a webhook", f"{median_ms:.0f} ms at the median")


def _publish(stage: Stage, state: str, clock: Clock) -> str:
    """Let the clock run in a state, and tell of it; answers what was told."""
    offset = f"{clock.turn(state):.3f}"
    values = [
        {"data_type": "notification", "value_type": "enumeration", "value": state},
        {"data_type": "metric", "value_type": "decimal64.3", "value": offset},
    ]
    event = {
        "specversion": "1.0",
        "id": f"{time.time_ns()}",
        "source": "/sync/ptp-status/lock-state",
        "type": EVENT_TYPE,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "sentat": f"{time.time():.6f}",
        "data": {"version": "1.0", "values": [{"ResourceAddress": RESOURCE, **value} for value in values]},
    }
    _ask(stage, "POST", "/create/event", event)
    return f"{state} {offset}"


def _ask(stage: Stage, method: str, path: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{stage.server.url}{API}{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        text: bytes = answer.read()
        return text


def _once(states: Sequence[str]) -> list[str]:
    """The states without repeats: what is delivered again comes right after the first time."""
    return list(dict.fromkeys(states))
