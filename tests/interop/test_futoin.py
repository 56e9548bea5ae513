"""FutoIn's own client library, as npm has it, against the server: adding, polling, pushing, all coders, signatures.

`make interop` installs the library.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headwater.client import RemoteLog, connect
from headwater.core import Event
from headwater.server.users.accounts import hash_password
from tests.night import pairs
from tests.server.running import RunningServer

from .install import unavailable
from .runtimes import FutoIn

RUNTIME = FutoIn()
PATIENCE_S = 60
KEY = base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
_numbers = count()
DATA = {"id": 7, "sum": "10.50", "list": [1, 2.5, None, True], "text": "\u00e9\U0001f600"}

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True, scope="module")
def library() -> None:
    """The library; without it the tests are skipped, or fail where everything must be there."""
    if reason := RUNTIME.missing():
        unavailable(reason)


class Node:
    """The client program."""

    def __init__(self, url: str, **config: Any) -> None:
        self._process = subprocess.Popen(
            [*RUNTIME.command(), json.dumps({"url": url, "credentials": "alice:alices-secret", **config})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "FUTOIN_NODE_MODULES": str(RUNTIME.built / "node_modules")},
            text=True,
        )
        self._lines: queue.Queue[Any] = queue.Queue()
        self.pushed: queue.Queue[Any] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self.next() == {"started": True}

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "pushed" in told:
                self.pushed.put(told["pushed"])
            elif "worker_error" not in told:
                self._lines.put(told)

    def next(self) -> Any:
        return self._lines.get(timeout=PATIENCE_S)

    def do(self, what: str, **arguments: Any) -> Any:
        """The result of a command; an error fails."""
        outcome = self.try_to(what, **arguments)
        assert "result" in outcome, outcome
        return outcome["result"]

    def try_to(self, what: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self._process.stdin.flush()
        return self.next()

    def receive(self, component: str, **arguments: Any) -> None:
        """Begin to receive."""
        self.do("receive", component=component, **arguments)
        assert self.next() == {"ready": component}

    def push(self) -> list[Any]:
        """The next group that was pushed."""
        return self.pushed.get(timeout=PATIENCE_S)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(tmp_path_factory.mktemp("futoin")) as running:
        yield running


def serving(directory: Path) -> RunningServer:
    """A server with a user."""
    secret = hash_password("alices-secret")
    (directory / "headwater.toml").write_text(
        f'[users.alice]\npassword = "{secret}"\nkey = "{KEY}"\ngrants = ["all:*"]\n'
    )
    return RunningServer("--data", "data", cwd=directory)


@pytest.fixture
def log(server: RunningServer) -> Iterator[RemoteLog]:
    """One of the test's own."""
    with connect(server.url, user="alice", password="alices-secret") as client:
        yield client.create(f"log-{next(_numbers)}")


@pytest.fixture
def node(server: RunningServer, log: RemoteLog) -> Iterator[Callable[..., Node]]:
    """Starts clients of the log."""
    made: list[Node] = []

    def start(scheme: str = "ws", url: str = server.url, **config: Any) -> Node:
        made.append(Node(f"secure+{scheme}{url.removeprefix('http')}/futoin/{log.name}", **config))
        return made[-1]

    yield start
    for each in made:
        each.close()


def bare(events: list[Any]) -> list[tuple[str, Any]]:
    return [(event["id"], event["data"]) for event in events]


@pytest.mark.parametrize("coder", ["JSON", "MPCK", "CBOR"])
@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_adding_and_polling_in_every_coder(node: Callable[..., Node], scheme: str, coder: str) -> None:
    client = node(scheme, coder=coder)
    assert client.do("add", type="ORDER_NEW", data=DATA) == "1"
    assert client.do("add", type="ORDER_PAID", data=None) == "2"
    assert client.do("register", component="Billing") is True
    assert bare(client.do("poll", component="Billing")) == [("1", DATA), ("2", None)]
    assert bare(client.do("poll", component="Billing", last_id="1", want=["ORDER_PAID"])) == [("2", None)]
    assert client.do("ping", echo=5) == 5


@pytest.mark.parametrize("coder", ["JSON", "MPCK", "CBOR"])
def test_reliable_pushes_in_every_coder(node: Callable[..., Node], coder: str) -> None:
    client = node(coder=coder)
    client.do("add", type="A", data=1)
    client.do("add", type="B", data=DATA)
    client.receive("Billing", want=["B"])
    assert bare(client.push()) == [("2", DATA)]
    client.do("add", type="B", data="more")
    assert bare(client.push()) == [("3", "more")]


def test_a_refused_push_comes_again(node: Callable[..., Node]) -> None:
    client = node(coder="JSON")
    client.receive("Billing", fail=2)
    client.do("add", type="A", data=1)
    assert [bare(client.push()) for _ in range(3)] == [[("1", 1)]] * 3
    client.do("add", type="A", data=2)
    assert bare(client.push()) == [("2", 2)]


def test_a_backlog_of_events_that_take_their_time_is_worked_off(log: RemoteLog, node: Callable[..., Node]) -> None:
    """The library gives a group 5 s, whatever the server would: 1,000 events of 10 ms would come again for ever."""
    log.append([Event("A", b"%d" % number) for number in range(1200)])
    client = node(coder="JSON")
    client.receive("Billing", event_ms=10)
    received: list[Any] = []
    while len(received) < 1200:
        received += client.push()
    assert [event["data"] for event in received] == list(range(1200))


def test_a_group_that_takes_too_long_is_halved_until_it_does_not(log: RemoteLog, node: Callable[..., Node]) -> None:
    log.append([Event("A", b"%d" % number) for number in range(20)])
    client = node(coder="JSON")
    client.receive("Billing", event_ms=400)
    assert [len(client.push()) for _ in range(2)] == [20, 10]
    assert client.push()[0]["data"] == 10, "8 s are too long for 20 events, but not 4 s for 10"


def test_what_was_not_acknowledged_comes_again_after_a_reconnect(node: Callable[..., Node]) -> None:
    first = node(coder="JSON")
    first.receive("Billing", fail=1000)
    first.do("add", type="A", data=1)
    assert bare(first.push()) == [("1", 1)]
    first.close()
    second = node(coder="JSON")
    second.receive("Billing")
    assert bare(second.push()) == [("1", 1)]
    second.do("add", type="A", data=2)
    assert bare(second.push()) == [("2", 2)]


def test_the_stock_receiver_comes_back_after_the_server_was_killed(
    log: RemoteLog, node: Callable[..., Node], tmp_path: Path
) -> None:
    """It calls again when the call that was cut has timed out, by default after half a minute."""
    with serving(tmp_path) as server:
        with connect(server.url, user="alice", password="alices-secret") as its:
            its.create(log.name)
        client = node(url=server.url, coder="JSON", options={"callTimeoutMS": 5000})
        client.receive("Billing")
        client.do("add", type="A", data=1)
        assert bare(client.push()) == [("1", 1)]
    port = server.url.rpartition(":")[2]
    with RunningServer("--data", "data", "--http-port", port, cwd=tmp_path):
        assert client.next() == {"ready": "Billing"}
        adder = node(url=server.url, coder="JSON")
        adder.do("add", type="A", data=2)
        received = client.push()
        while received[-1]["id"] != "2":  # the first one again, if its answer came too late
            received += client.push()
        assert bare(received)[-1] == ("2", 2)


def test_live_pushes_survive_the_answers_of_the_stock_receiver(node: Callable[..., Node]) -> None:
    """It answers each push with an InternalError, because it sets no result."""
    client, adder = node(coder="JSON"), node("http", coder="JSON")
    adder.do("add", type="A", data="before")
    client.receive("LIVE")
    received: list[Any] = []
    for number in range(300):
        adder.do("add", type="A", data=number)
    while len(received) < 300:
        received += client.push()
    assert [event["data"] for event in received] == list(range(300))


SIGNED = (
    ("-hmac:alice", {"hmacKey": KEY, "hmacAlgo": "MD5"}),
    ("-hmac:alice", {"hmacKey": KEY, "hmacAlgo": "SHA256"}),
    ("-hmac:alice", {"hmacKey": KEY, "hmacAlgo": "SHA512"}),
    ("-smac:alice", {"macKey": KEY, "macAlgo": "HMD5"}),
    ("-smac:alice", {"macKey": KEY, "macAlgo": "HS256"}),
    ("-smac:alice", {"macKey": KEY, "macAlgo": "HS384"}),
)
WAYS = (("http", "JSON"), ("ws", "MPCK"), ("ws", "CBOR"))


@pytest.mark.parametrize(("signed", "way"), pairs(SIGNED, WAYS))
def test_signed_messages_and_replies(
    node: Callable[..., Node], signed: tuple[str, dict[str, Any]], way: tuple[str, str]
) -> None:
    (credentials, options), (scheme, coder) = signed, way
    client = node(scheme, coder=coder, credentials=credentials, options=options)
    assert client.do("add", type="A", data=DATA) == "1"
    client.do("register", component="Billing")
    assert bare(client.do("poll", component="Billing")) == [("1", DATA)]
    assert client.try_to("poll", component="Nobody")["error"] == "NotRegistered"


def test_errors_reach_the_caller_by_their_names(node: Callable[..., Node]) -> None:
    client = node("http", coder="JSON")
    assert client.try_to("poll", component="Nobody")["error"] == "NotRegistered"
    assert client.try_to("register", component="LIVE")["error"] == "LiveNotAllowed"
    stranger = node("http", coder="JSON", credentials="alice:wrong")
    assert stranger.try_to("add", type="A", data=1)["error"] == "SecurityError"


def test_pages_of_poll_1_1_are_large_and_of_poll_1_0_fit_64_kib(log: RemoteLog, node: Callable[..., Node]) -> None:
    log.append([Event("BIG", b'"%b"' % (b"x" * 20_000)) for _ in range(100)])
    for scheme in ("http", "ws"):
        assert len(node(scheme, coder="JSON").do("poll", component="LIVE")) == 100
        assert len(node(scheme, coder="JSON", poll={"version": "1.0"}).do("poll", component="LIVE")) == 3
