"""Where does a request spend its time in the server? `python -m benchmarks.hotpath.routes [ROUTE ...]`

The server runs under cProfile, with one client on one kept-alive connection. The functions of its event loop that took
the longest are printed, route by route.
"""

from __future__ import annotations

import base64
import http.client
import json
import pstats
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click
from rich.console import Console

from headwater.core import Event

from ..measure import expect
from ..stores.headwater_server import LOG, HeadwaterServer
from ..workload import COMMON_TYPES, Workload

BATCH = 1000
EVENTS = 20_000
"""In the log, before."""
READ_ACCEPT = "application/x-ndjson"


class Client:
    """A connection that sends what is ready and looks at nothing but the status."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)
        self._connection.connect()

    def get(self, path: str) -> bytes:
        """The body of an answer."""
        return self._exchange("GET", path, None, "application/json")

    def post(self, path: str, body: bytes, accept: str = "application/json") -> bytes:
        """The body of an answer."""
        return self._exchange("POST", path, body, accept)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _exchange(self, method: str, path: str, body: bytes | None, accept: str) -> bytes:
        headers = {"Accept": accept, "Content-Type": "application/json"}
        self._connection.request(method, f"/logs/{LOG}{path}", body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        expect(f"{method} {path}: status of {content[:200]!r}", 200, answer.status)
        return content


Prepared = Callable[[Client], object]
"""One request, ready to be sent."""


def main_routes(workload: Workload) -> dict[str, tuple[int, Callable[[int], Prepared]]]:
    """By name: how many requests are sent, and what makes the n-th of them. Those that make the log grow come last."""

    def read(query: dict[str, object], **options: object) -> Prepared:
        body = json.dumps({"query": query, **options}).encode()
        return lambda client: client.post("/read", body, READ_ACCEPT)

    def append(events: Sequence[Event], condition: dict[str, object] | None = None) -> Prepared:
        body = _append_body(events, condition)
        return lambda client: client.post("/append", body)

    def items(*tags: str) -> dict[str, object]:
        return {"items": [{"tags": [tag]} for tag in tags]}

    def account(n: int) -> str:
        return f"account:{n * 7919 % workload.accounts}"

    def conditional(n: int) -> Prepared:
        condition = {"failIfEventsMatch": items(account(n), account(n + 1)), "after": 10**12}
        return append(workload.fresh(1, (account(n), account(n + 1))), condition)

    return {
        "head": (2000, lambda n: lambda client: client.get("/head")),
        "read-tag": (2000, lambda n: read(items(account(n)))),
        "read-two-tags": (2000, lambda n: read(items(account(n), account(n + 1)))),
        "read-type": (500, lambda n: read({"items": [{"types": [COMMON_TYPES[7]]}]}, backwards=True, limit=100)),
        "scan": (5, lambda n: read({"all": True})),
        "append": (2000, lambda n: append(workload.fresh(1))),
        "append-conditional": (2000, conditional),
        "append-100": (300, lambda n: append(workload.fresh(100))),
        "append-1000": (60, lambda n: append(workload.fresh(1000))),
    }


@click.command()
@click.argument("routes", nargs=-1)
def main(routes: Sequence[str]) -> None:
    """Profile the server, by ROUTE (default: all of them)."""
    known = main_routes(Workload(EVENTS))
    if unknown := set(routes) - set(known):
        raise click.BadParameter(f"{', '.join(unknown)} given, known: {', '.join(known)}")
    parent = Path("build")
    parent.mkdir(exist_ok=True)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="hotpath-", dir=parent) as directory:
        for name in routes or known:
            console.print(f"[bold]{name}[/]")
            _profile(Path(directory), name)


def _append_body(events: Sequence[Event], condition: dict[str, object] | None = None) -> bytes:
    encoded = [
        {"type": e.type, "data_base64": base64.b64encode(e.data).decode(), "tags": e.tags, "id": e.id} for e in events
    ]
    return json.dumps(
        {"events": encoded} if condition is None else {"events": encoded, "condition": condition}
    ).encode()


def _fill(server: HeadwaterServer, workload: Workload) -> None:
    client = Client(server.url)
    for batch in workload.batches(0, workload.total, BATCH):
        client.post("/append", _append_body(batch))
    client.close()


def _profile(directory: Path, name: str) -> None:
    """A small server of its own. Its fill is in the profile too: 20 large appends before thousands of requests."""
    output = directory / f"{name}.profile"
    server = _ProfiledServer(directory / f"profiled-{name}", output)
    try:
        small = Workload(EVENTS)
        _fill(server, small)
        count, make = main_routes(small)[name]
        client = Client(server.url)
        for number in range(count * 2):
            make(number)(client)
        client.close()
    finally:
        server.close()
    pstats.Stats(str(output), stream=sys.stdout).sort_stats("tottime").print_stats(30)


class _ProfiledServer(HeadwaterServer):
    def __init__(self, directory: Path, output: Path) -> None:
        self.interpreter_options = ("-m", "cProfile", "-o", str(output))
        super().__init__(directory)


if __name__ == "__main__":
    main()
