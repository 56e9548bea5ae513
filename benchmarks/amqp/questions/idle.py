"""What does an idle connection take in memory, with 5,000 of them open?

Connected, logged in, with an open session, and nothing but heartbeats. Anonymous memory of the server's process after
opening, less before; in the kernel a connection takes more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from ...measure import Aim, Case, Sample, anonymous_bytes
from ..bench import AmqpBench
from ..brokers.headwater import Headwater
from ..load import Load

TITLE = "Idle connections"
CONNECTIONS = 5_000
BYTES_AIM = 60 * 1024
SETTLE_S = 1.0


def cases(bench: AmqpBench) -> Iterator[Case]:
    """Headwater alone: the heap of a JVM does not tell."""
    if Headwater.label in bench.labels:
        run = {Headwater.label: partial(_weigh, bench)}
        yield Case(f"{CONNECTIONS:,} connections", "bytes/connection", run, [Aim("", BYTES_AIM)], is_lower_better=True)


def _weigh(bench: AmqpBench) -> Sample:
    broker = bench.broker(Headwater.label)
    before = anonymous_bytes(broker.pid)
    with Load(operation="idle", connections=CONNECTIONS, **broker.request("")):
        time.sleep(SETTLE_S)
        after = anonymous_bytes(broker.pid)
    return Sample((after - before) / CONNECTIONS)
