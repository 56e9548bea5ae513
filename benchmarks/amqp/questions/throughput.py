"""How many durable messages a second does the server accept and deliver over 1 and 100 connections, at what CPU cost?

In: senders with up to 1000 messages in flight each. Unsettled, each message is accepted after it is durable; settled,
an unsettled last one over a second link proves that the server took them all. Out: receivers with a credit of 1000 (of
100 connections: 100) that accept what they get in ranges, or get it settled. All connections together transfer the same
number of messages. A queue gives each message to one receiver and forgets it, durably; a log gives each receiver a part
of its own and forgets nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from ...measure import Aim, Case, Sample
from ...samples import Samples
from ..bench import AmqpBench
from ..load import measured

TITLE = "Messages in and out"
MESSAGES = 100_000
IN_AIM_CPU_US, OUT_AIM_CPU_US = 15, 5
IN_AIM_RATE = 50_000


def cases(bench: AmqpBench) -> Iterator[Case]:
    """By connections, size and settlement: in, out; and CPU where there is an aim for it."""
    for connections, size, settled in product((1, 100), (256, 1024), (False, True)):
        kept = Samples()
        what = f"{connections} connection{'s' * (connections > 1)}, {size} B, {'settled' if settled else 'unsettled'}"
        first = {label: partial(_both, bench, kept, label, connections, size, settled) for label in bench.labels}
        is_aimed_at = (connections, size, settled) == (1, 256, False)
        aims = [Aim("", IN_AIM_RATE)] if is_aimed_at else []
        aims += [Aim(label, 1) for label in bench.labels[1:]]
        yield Case(f"in, {what}", "messages/s", first, aims)
        later = {label: partial(kept.take, f"out {label}") for label in bench.labels}
        yield Case(f"out, {what}", "messages/s", later, [Aim(label, 1) for label in bench.labels[1:]])
        if (connections, size) == (1, 256):
            for direction, aim in (("in", IN_AIM_CPU_US), ("out", OUT_AIM_CPU_US)):
                cpu = {label: partial(kept.take, f"{direction} cpu {label}") for label in bench.labels}
                yield Case(f"server CPU, {direction}, {what}", "us/message", cpu, [Aim("", aim)], is_lower_better=True)


def _both(bench: AmqpBench, kept: Samples, label: str, connections: int, size: int, settled: bool) -> Sample:
    """In, then out again; everything but the rate in is kept for later."""
    broker = bench.broker(label)
    address = broker.fresh_address()
    count = bench.count(MESSAGES, multiple=connections)
    request = {**broker.request(address), "connections": connections, "size": size, "settled": settled}
    sent = measured(broker.pid, count, operation="in", in_flight=1000, **request)
    credit = 1000 if connections == 1 else 100
    got = measured(broker.pid, count, operation="out", credit=credit, **request)
    broker.discard(address)
    assert sent.cpu_us is not None and got.cpu_us is not None
    kept.keep(f"out {label}", got)
    kept.keep(f"in cpu {label}", Sample(sent.cpu_us))
    kept.keep(f"out cpu {label}", Sample(got.cpu_us))
    return sent
