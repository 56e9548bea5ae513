"""How many single appends a second do 64 concurrent clients get through, each durable before it is answered?

64 asyncio clients in this process, each waiting for its append before the next. SQLite runs twice: with the same group
commit (one transaction for whatever is queued; this is the one that Headwater is compared with) and with a transaction
per append. The bare disk writes the frame of 64 events with one fdatasync: as if all clients always met.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from ..bench import HEADWATER, RAW, SQLITE, SQLITE_OWN_COMMITS, Bench
from ..clients import run_clients
from ..measure import Aim, Case, Sample, expect, percentile_ms, stopwatch
from ..stores.raw_file import frame_bytes
from ..stores.sqlite_store import SqliteStore
from ..stores.store import AppendAsync

TITLE = "64 clients, one event per append"
CLIENTS = 64


def cases(bench: Bench) -> Iterator[Case]:
    """One case."""
    appends = bench.count(500, least=20)
    runs = {
        HEADWATER: partial(_append, bench, HEADWATER, appends),
        SQLITE: partial(_append, bench, SQLITE, appends),
        SQLITE_OWN_COMMITS: partial(_append_own_commits, bench, bench.count(50, least=5)),
        RAW: partial(_write, bench, appends),
    }
    yield Case("64 asyncio clients", "appends/s", runs, (Aim(SQLITE, 5),))


def _append(bench: Bench, name: str, appends: int) -> Sample:
    store = bench.store(name)
    work = [[bench.workload.fresh(1) for _ in range(appends)] for _ in range(CLIENTS)]
    before = store.head()
    latencies: list[float] = []

    async def client(append: AppendAsync, number: int) -> None:
        for events in work[number]:
            began = time.perf_counter()
            await append(events, None)
            latencies.append(time.perf_counter() - began)

    with stopwatch() as watch:
        run_clients(store, client, CLIENTS)
    expect(f"{name}: head", before + CLIENTS * appends, store.head())
    return watch.rate(CLIENTS * appends, latencies)


def _append_own_commits(bench: Bench, appends: int) -> Sample:
    store = bench.store(SQLITE)
    assert isinstance(store, SqliteStore)
    store.is_grouping = False
    try:
        return _append(bench, SQLITE, appends)
    finally:
        store.is_grouping = True


def _write(bench: Bench, appends: int) -> Sample:
    frames = [frame_bytes(bench.workload.fresh(CLIENTS)) for _ in range(appends)]
    latencies = []
    with bench.raw_file(sum(map(len, frames))) as raw, stopwatch() as watch:
        for frame in frames:
            began = time.perf_counter()
            raw.write([frame])
            latencies.append(time.perf_counter() - began)
    sample = watch.rate(CLIENTS * appends)
    return Sample(sample.value, sample.cpu_us, percentile_ms(latencies, 50), percentile_ms(latencies, 99))
