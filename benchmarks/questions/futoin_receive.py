"""How many events of a backlog does a reliable FutoIn consumer receive per second, by polling and by pushes?

One WebSocket; the reference gives pages and groups of 100 events, which is its default, and Headwater of 1000.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from ..bench import Bench
from ..futoin.servers import HEADWATER, REFERENCE, Server, Servers
from ..measure import Aim, Case, Sample

TITLE = "FutoIn: poll and push a backlog"
EVENTS = 50_000

_numbers = itertools.count(1)


def cases(bench: Bench) -> Iterator[Case]:
    """Polling, and pushing."""
    events = bench.count(EVENTS, least=5000, multiple=64)
    with Servers(bench.scratch("futoin")) as servers:
        for name, server in servers.items():
            bench.note(f"filling {name} with {events:,} events")
            server.ask("fill", events)
        for verb, title in (("poll", "poll"), ("push", "reliable push")):
            runs = {name: partial(_receive, servers[name], verb, events) for name in (HEADWATER, REFERENCE)}
            yield Case(title, "events/s", runs, (Aim(REFERENCE, 5),))


def _receive(server: Server, verb: str, events: int) -> Sample:
    """By a new consumer, which begins at the first event."""
    component = f"C{next(_numbers)}"
    more = (server.poll_interface,) if verb == "poll" else ()
    return server.sample(verb, component, events, *more, units=events)
