"""How long does a receiver that attaches for one tag wait for its 10 events in a log of a million?

From the attach, with the query of our own as its source filter and from the beginning on, to the tenth message, on a
connection that is open already. The client is Headwater's own; one in a hundred of the accounts is asked for.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from functools import partial

from headwater.amqp.client import Client
from headwater.amqp.filters import QUERY_FILTER
from headwater.amqp.protocol.types import Described, Symbol
from headwater.client import append_all, connect

from ...measure import Aim, Case, Sample, expect
from ...workload import MATCHES_PER_ACCOUNT, Workload
from ..bench import AmqpBench
from ..brokers.headwater import Headwater

TITLE = "Ten messages of a million, by tag"
EVENTS = 1_000_000
ASKED = 200
EARLIEST = Described(
    Symbol("amqp:event-streams-delivery-annotations-filter"), {Symbol("event-streams-offset"): Symbol("@earliest")}
)


def cases(bench: AmqpBench) -> Iterator[Case]:
    """Headwater alone: a queue has no index."""
    if Headwater.label not in bench.labels:
        return
    broker = bench.broker(Headwater.label)
    assert isinstance(broker, Headwater)
    address, workload = broker.fresh_address(), Workload(bench.count(EVENTS, multiple=1000))
    bench.note(f"loading {workload.total:,} events")
    with connect(broker.http) as server:
        for batch in workload.batches(0, workload.total, 100_000):
            append_all(server.log(address), batch)
    run = {Headwater.label: partial(_ask, broker, address, workload)}
    yield Case(f"10 of {workload.total:,}", "ms", run, [Aim("", 5)], is_lower_better=True)
    broker.discard(address)


def _ask(broker: Headwater, address: str, workload: Workload) -> Sample:
    times_ms = []
    with Client(f"amqp://{broker.host}") as client:
        for number in range(ASKED):
            tag = f"account:{number * workload.accounts // ASKED}"
            query = Described(QUERY_FILTER, json.dumps({"items": [{"tags": [tag]}]}))
            started = time.perf_counter()
            receiver = client.receiver(address, filter={"tag": query, "start": EARLIEST}, snd_settle_mode=1)
            found = receiver.take(MATCHES_PER_ACCOUNT)
            times_ms.append(1000 * (time.perf_counter() - started))
            expect(f"messages of {tag}", MATCHES_PER_ACCOUNT, len(found))
            receiver.close()
    quantiles = statistics.quantiles(times_ms, n=100)
    return Sample(statistics.median(times_ms), None, quantiles[49], quantiles[98])
