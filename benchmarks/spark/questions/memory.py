"""What memory do the server's two processes take while 4 readers pull the whole log?

Anonymous memory of a server that was just started: what is in its logs is mapped, and belongs to the page cache. The
readers are Flight clients without Spark, each of which reads all columns of all events; the peak is of samples taken
every 20 ms.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from headwater.flight.wire import Ticket

from ...measure import Case, Sample, expect, stopwatch
from ...samples import Samples
from ..bench import LOG, SparkBench

TITLE = "Memory of the server"
READERS = 4
SAMPLE_S = 0.02


def cases(bench: SparkBench) -> Iterator[Case]:
    """Before and at the peak; and how fast that was."""
    kept = Samples()
    weigh = {"headwater": partial(_weigh, bench, kept)}
    yield Case(f"{READERS} readers at once", "events/s, all together", weigh)
    for when in ("just started", f"peak, with {READERS} readers"):
        processes = {f"{name} process": partial(kept.take, f"{name} {when}") for name in ("main", "bulk")}
        yield Case(when, "MiB", processes, is_lower_better=True)


def _weigh(bench: SparkBench, kept: Samples) -> Sample:
    server = bench.restart()
    with bench.bulk() as bulk:
        bulk.head(LOG)
    before = server.anonymous_mib
    seen, done = [before], threading.Event()

    def watch_memory() -> None:
        while not done.wait(SAMPLE_S):
            seen.append(server.anonymous_mib)

    watcher = threading.Thread(target=watch_memory)
    watcher.start()
    try:
        with ThreadPoolExecutor(READERS) as pool, stopwatch() as watch:
            counts = list(pool.map(lambda _: _pull(bench), range(READERS)))
    finally:
        done.set()
        watcher.join()
    expect("events read", [bench.events] * READERS, counts)
    peak = tuple(map(max, zip(*seen, strict=True)))
    for when, (main, of_bulk) in (("just started", before), (f"peak, with {READERS} readers", peak)):
        kept.keep(f"main {when}", Sample(main))
        kept.keep(f"bulk {when}", Sample(of_bulk))
    return watch.rate(READERS * bench.events)


def _pull(bench: SparkBench) -> int:
    with bench.bulk() as bulk:
        return sum(batch.num_rows for batch in bulk.read(Ticket(LOG)))
