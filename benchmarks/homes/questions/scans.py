"""How much CPU time per append does the primary use while three replicas are scanned over Arrow Flight?

Single appends at an even pace, over HTTP, while each replica is read from the first event to the last, again and
again, by a process of its own; and the same while nobody reads. All of it is on the same cores, so that what is
compared is the CPU time of the primary alone, its bulk process included.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.synchronize import Event as Ending

from tests.load.chaos.members import Member

from headwater.client import connect
from headwater.core import Event
from headwater.flight.client import BulkClient, Ticket

from ...measure import Aim, Case, Sample, WrongAnswer, stopwatch
from ..bench import HomesBench
from ..servers import LOG, fill, members

TITLE = "Three replicas that are scanned"
REPLICAS = 3
EVENTS = 100_000
PACE = 100
LEAST_S = 10.0
"""CPU time of another process is counted in steps of 10 ms."""
SCANNED, IDLE = "headwater, replicas scanned", "replicas idle"


def cases(bench: HomesBench) -> Iterator[Case]:
    """One case."""
    with members(bench.directory / "scans", bench.database, REPLICAS, has_flight=True) as (primary, *replicas):
        fill(primary, replicas, EVENTS)
        runs = {
            SCANNED: partial(_append, bench, primary, replicas),
            IDLE: partial(_append, bench, primary, ()),
        }
        # 5 % more at most: while nobody reads, it takes 0.95 of that at least.
        yield Case("CPU of the primary", "us per append", runs, (Aim(IDLE, 0.95),), is_lower_better=True)


def _append(bench: HomesBench, primary: Member, scanned: Sequence[Member]) -> Sample:
    context = multiprocessing.get_context("spawn")
    ending, scans = context.Event(), context.Value("i", 0)
    scanners = [
        context.Process(target=_scan, args=(f"grpc://127.0.0.1:{each.ports['flight']}", ending, scans), daemon=True)
        for each in scanned
    ]
    for scanner in scanners:
        scanner.start()
    count = int(PACE * max(LEAST_S, bench.seconds))
    latencies = []
    try:
        with connect(primary.url) as server:
            log = server.log(LOG)
            while scanned and scans.value < len(scanned):  # they scan, indeed
                time.sleep(0.05)
            with stopwatch(primary.process.pid) as watch:
                began = time.perf_counter()
                for number in range(count):
                    time.sleep(max(0.0, began + number / PACE - time.perf_counter()))
                    sent = time.perf_counter()
                    log.append([Event("E", b"x" * 256)])
                    latencies.append(time.perf_counter() - sent)
    finally:
        ending.set()
        for scanner in scanners:
            scanner.join()
    if any(scanner.exitcode for scanner in scanners):
        raise WrongAnswer("a scan failed")
    sample = watch.rate(count, latencies)
    assert sample.cpu_us is not None, "a server takes CPU time for its appends"
    return Sample(sample.cpu_us, sample.cpu_us, sample.p50_ms, sample.p99_ms)


def _scan(url: str, ending: Ending, scans) -> None:  # type: ignore[no-untyped-def]
    """Read all of the log, again and again."""
    with BulkClient(url) as client:
        while not ending.is_set():
            rows = sum(batch.num_rows for batch in client.read(Ticket(LOG)))
            assert rows >= EVENTS, f"{rows} rows"
            with scans.get_lock():
                scans.value += 1
