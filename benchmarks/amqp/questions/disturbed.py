"""Does a receiver that grants no credit, stops reading its socket, or releases every message slow the others down?

20 connections send 256 B unsettled at 1,000 messages a second together, each at its own times, whatever the answers do;
the latency is from when a message was due to its outcome. One more connection is attached to the same log from its
start and gives no credit; another gives credit for everything there is (50,000 messages of 1 KiB) and never reads.
Eight more, of a log with 10 messages, give each message back as failed as often as it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from ...measure import Aim, Case, Sample
from ..bench import AmqpBench
from ..brokers.broker import Broker
from ..brokers.headwater import Headwater
from ..load import Load, measured

TITLE = "Latency of other clients while a receiver does not read, or releases everything"
SENDERS, RATE, SECONDS = 20, 1_000, 10
STOCK, STOCK_SIZE = 50_000, 1024
RETURNING, RETURNED = 8, 10
ALONE = "headwater, alone"
GROWTH_MAX = 1.1


def cases(bench: AmqpBench) -> Iterator[Case]:
    """p99 beside each kind of disturbance, against p99 without."""
    if Headwater.label not in bench.labels:
        return
    for disturbance in (("creditless",), ("stalled",), ("creditless", "stalled"), ("returning",)):
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
            others.enter_context(_load(broker, operation, request)).go()
        count = bench.count(RATE * SECONDS, multiple=SENDERS)
        sample = measured(broker.pid, count, operation="paced", connections=SENDERS, rate=RATE, size=256, **request)
    broker.discard(address)
    assert sample.p99_ms is not None
    return Sample(sample.p99_ms, sample.cpu_us, sample.p50_ms, sample.p99_ms)


def _load(broker: Broker, operation: str, request: dict[str, Any]) -> Load:
    if operation != "returning":
        return Load(operation=operation, **request)
    of_its_own = broker.request(broker.fresh_address())
    measured(broker.pid, RETURNED, operation="in", size=STOCK_SIZE, **of_its_own)
    return Load(operation=operation, connections=RETURNING, credit=RETURNED, **of_its_own)
