"""How many conditional single appends a second do 64 concurrent clients get through?

64 asyncio clients in this process. Each has an account of its own and appends to it under the condition that no event
of that type, account and course lies above its last one: type and two tags, as a decision has them. One append in 16
comes with a condition that must fail (`after` = 0 for an account with events); the run fails if it does not. SQLite
runs with the same group commit, checking each condition inside the transaction, after the appends before it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from headwater.core import AppendCondition, Query

from ..bench import HEADWATER, SQLITE, Bench
from ..clients import run_clients
from ..measure import Aim, Case, Sample, expect, stopwatch
from ..stores.store import AppendAsync, Conflict
from ..workload import COMMON_TYPES

TITLE = "64 clients, conditional appends of one event"
CLIENTS = 64
ONE_CONFLICT_IN = 16


def cases(bench: Bench) -> Iterator[Case]:
    """One case."""
    appends = bench.count(500, least=ONE_CONFLICT_IN, multiple=ONE_CONFLICT_IN)
    runs = {name: partial(_append, bench, name, appends) for name in (HEADWATER, SQLITE)}
    yield Case("64 asyncio clients", "attempts/s", runs, (Aim(SQLITE, 5),))


def _append(bench: Bench, name: str, appends: int) -> Sample:
    store = bench.store(name)
    accounts = [next(iter(bench.workload.fresh(1))).tags for _ in range(CLIENTS)]
    work = [[bench.workload.fresh(1, tags) for _ in range(appends)] for tags in accounts]
    queries = [Query.where(types=COMMON_TYPES[:1], tags=tags) for tags in accounts]
    before = store.head()
    latencies: list[float] = []
    conflicts = 0

    async def client(append: AppendAsync, number: int) -> None:
        nonlocal conflicts
        after = before
        for turn, (event,) in enumerate(work[number], 1):
            is_to_fail = turn % ONE_CONFLICT_IN == 0
            condition = AppendCondition(queries[number], 0 if is_to_fail else after)
            began = time.perf_counter()
            try:
                after = await append([event._replace(type=COMMON_TYPES[0])], condition)
                expect(f"{name}: the condition of append {turn} holds", False, is_to_fail)
            except Conflict:
                conflicts += 1
                expect(f"{name}: the condition of append {turn} fails", True, is_to_fail)
            latencies.append(time.perf_counter() - began)

    with stopwatch() as watch:
        run_clients(store, client, CLIENTS)
    expect(f"{name}: conflicts", CLIENTS * appends // ONE_CONFLICT_IN, conflicts)
    expect(f"{name}: head", before + CLIENTS * appends - conflicts, store.head())
    return watch.rate(CLIENTS * appends, latencies)
