"""How much memory does an idle connection use while 5,000 are open?

Connected, logged in, with an open session, and nothing but heartbeats: all are still open in the end. Anonymous memory
of a fresh server's process, with them less without; what the kernel takes for a connection comes on top.
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
CONNECTIONS, WARM = 5_000, 10
BYTES_AIM = 60 * 1024
SETTLE_S = 1.0


def cases(bench: AmqpBench) -> Iterator[Case]:
    """Headwater alone: the heap of a JVM does not tell."""
    if Headwater.label in bench.labels:
        run = {Headwater.label: partial(_weigh, bench)}
        yield Case(f"{CONNECTIONS:,} connections", "bytes/connection", run, [Aim("", BYTES_AIM)], is_lower_better=True)


def _weigh(bench: AmqpBench) -> Sample:
    with bench.fresh(Headwater.label) as broker:
        with Load(operation="idle", connections=WARM, **broker.request("")):
            pass  # what is loaded and allocated once, with the first connections, is not theirs
        before = anonymous_bytes(broker.pid)
        with Load(operation="idle", connections=CONNECTIONS, **broker.request("")) as load:
            load.go()
            time.sleep(SETTLE_S)
            after = anonymous_bytes(broker.pid)
            load.wait()  # fails if the server has closed one
    return Sample((after - before) / CONNECTIONS)
