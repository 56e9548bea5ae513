"""Does a receiver that gives no credit, or one that stops reading its socket, slow the others down?

20 connections send 256 B unsettled at 1,000 messages a second together, each at its own times, whatever the answers do;
the latency is from when a message was due to its outcome. One more connection is attached to the same log from its
start and gives no credit; another gives credit for everything there is (50,000 messages of 1 KiB) and never reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from ...measure import Aim, Case, Sample
from ..bench import AmqpBench
from ..brokers.headwater import Headwater
from ..load import Load, measured

TITLE = "Others' latency beside a receiver that does not read"
SENDERS, RATE, SECONDS = 20, 1_000, 10
STOCK, STOCK_SIZE = 50_000, 1024
ALONE = "headwater, nobody else"
GROWTH_MAX = 1.1


def cases(bench: AmqpBench) -> Iterator[Case]:
    """p99 beside each kind of disturbance, against p99 without."""
    if Headwater.label not in bench.labels:
        return
    for disturbance in (("creditless",), ("stalled",), ("creditless", "stalled")):
        beside = f"headwater, beside {' and '.join(disturbance)}"
        runs = {beside: partial(_pace, bench, disturbance), ALONE: partial(_pace, bench, ())}
        aims = [Aim(ALONE, round(1 / GROWTH_MAX, 2))]
        yield Case(f"p99 beside {' and '.join(disturbance)}", "ms", runs, aims, is_lower_better=True)


def _pace(bench: AmqpBench, disturbance: tuple[str, ...]) -> Sample:
    broker = bench.broker(Headwater.label)
    address = broker.fresh_address()
    request = broker.request(address)
    measured(broker.pid, bench.count(STOCK), operation="in", size=STOCK_SIZE, **request)
    with ExitStack() as others:
        for operation in disturbance:
            others.enter_context(Load(operation=operation, **request)).go()
        count = bench.count(RATE * SECONDS, multiple=SENDERS)
        sample = measured(broker.pid, count, operation="paced", connections=SENDERS, rate=RATE, size=256, **request)
    broker.discard(address)
    assert sample.p99_ms is not None
    return Sample(sample.p99_ms, sample.cpu_us, sample.p50_ms, sample.p99_ms)
