"""How many events a second do 1, 8 and 64 FutoIn clients add, one at a time, each waiting for its answer?

Every client is a WebSocket of its own and sends its password with each message; the clients are one process, beside the
server. Both servers have each event on the disk before they answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import Bench
from ..futoin.servers import HEADWATER, REFERENCE, Servers
from ..measure import Aim, Case

TITLE = "FutoIn: addEvent"
SECONDS = 8


def cases(bench: Bench) -> Iterator[Case]:
    """1, 8 and 64 clients."""
    with Servers(bench.scratch("futoin")) as servers:
        for clients in (1, 8, 64):
            seconds = bench.count(SECONDS, least=2)
            runs = {name: partial(servers[name].sample, "add", clients, seconds) for name in (HEADWATER, REFERENCE)}
            aims = (Aim(REFERENCE, 8),) if clients == 64 else ()
            yield Case(f"{clients} client{'s' * (clients > 1)}", "events/s", runs, aims)
