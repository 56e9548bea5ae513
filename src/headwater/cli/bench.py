"""`headwater bench`: puts a small load on a log from this machine, and measures the duration of appends and reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import click

from ..core.condition import AppendCondition
from ..core.event import Event
from ..core.query import Query
from .output import examples, json_option, server_options, show_json, show_table

if TYPE_CHECKING:
    from ..client import Server

BENCH_TYPE = "BenchEvent"


class Measured(NamedTuple):
    """The measurements of one kind of request."""

    what: str
    clients: int
    requests: int
    requests_per_s: float
    events_per_s: float
    p50_ms: float
    p99_ms: float


@click.command(
    epilog=examples("headwater bench scratch --clients 8", "headwater bench scratch --batch 1000 --seconds 10")
)
@click.argument("log")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Duration of a measurement."
)
@click.option(
    "--clients",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    help="Number of threads, each with its own connection.",
)
@click.option("--batch", type=click.IntRange(1, 65_536), default=1, show_default=True, help="Events per append.")
@click.option(
    "--bytes", "size", type=click.IntRange(0, 1_000_000), default=200, show_default=True, help="Size of an event."
)
@json_option
@server_options
def bench(server: Server, log: str, seconds: float, clients: int, batch: int, size: int, as_json: bool) -> None:
    """Benchmark a log.

    Measures appends, then decisions (a read and a conditional append), then reads of a tag. Its events, of the type
    BenchEvent, stay in the log: use one that you can delete. The clients are threads of one Python process, which
    saturates before the server does.
    """
    target = server.log(log)
    target.head()
    data = b"x" * size

    def append(client: int, turn: int) -> int:
        target.append([Event(BENCH_TYPE, data, (f"bench:{client}",)) for _ in range(batch)])
        return batch

    def decide(client: int, turn: int) -> int:
        tags = (f"bench:{client}-{turn % 100}", "bench")
        query = Query.where(types=[BENCH_TYPE], tags=tags[:1])
        head = target.read(query, backwards=True, limit=1).head
        target.append([Event(BENCH_TYPE, data, tags)], AppendCondition(query, head))
        return 1

    def read(client: int, turn: int) -> int:
        return sum(1 for _ in target.read(Query.where(tags=[f"bench:{client}-{turn % 100}"]), limit=10))

    kinds: dict[str, Callable[[int, int], int]] = {"append": append, "decide": decide, "read": read}
    measured = [_measure(what, act, clients, seconds) for what, act in kinds.items()]
    if as_json:
        show_json([run._asdict() for run in measured])
        return
    columns = ["", "clients", "requests", "requests/s", "events/s", "p50 ms", "p99 ms"]
    rows = [
        (*run[:3], round(run.requests_per_s), round(run.events_per_s), f"{run.p50_ms:.2f}", f"{run.p99_ms:.2f}")
        for run in measured
    ]
    show_table(columns, rows)


def _measure(what: str, act: Callable[[int, int], int], clients: int, seconds: float) -> Measured:
    ready = threading.Barrier(clients)

    def run(client: int) -> tuple[list[float], int, float]:
        times, events, turn = [], 0, 0
        ready.wait()
        started = now = time.perf_counter()
        while now - started < seconds:
            events += act(client, turn)
            turn += 1
            before, now = now, time.perf_counter()
            times.append(now - before)
        return times, events, now - started

    with ThreadPoolExecutor(clients) as pool:
        results = list(pool.map(run, range(clients)))
    times = sorted(time_s for its_times, _, _ in results for time_s in its_times)
    lasted = max(its_seconds for _, _, its_seconds in results)
    events = sum(its_events for _, its_events, _ in results)

    def percentile(part: float) -> float:
        return 1000 * times[min(int(part * len(times)), len(times) - 1)]

    return Measured(what, clients, len(times), len(times) / lasted, events / lasted, percentile(0.5), percentile(0.99))
