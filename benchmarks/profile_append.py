"""Where does the CPU time of an append in process go? `python -m benchmarks.profile_append [EVENTS]`

Two tables. First each stage by itself, on the CPU clock of one thread, for groups of 1, 64 and 1000 events, on an index
that holds EVENTS already: what a stage costs when nothing else runs. Then the whole path, thread by thread: what the
callers, the committer and the writer spend on an event when they run together, and share one interpreter.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from headwater.core import AppendCondition, LogSettings, Query
from headwater.core.limits import EventColumns, check_append
from headwater.storage.frames.encoding import Chain, encode
from headwater.storage.index.ids import hash_ids
from headwater.storage.index.index import Index
from headwater.storage.index.matches import first_match

from .clients import run_clients
from .stores.headwater_store import HeadwaterStore
from .stores.raw_file import RawFile, frame_bytes
from .stores.store import AppendAsync
from .workload import COMMON_TYPES, Workload

GROUPS = (1, 64, 1000)
SEED = 17
BATCH = 1000
CLIENTS = 64
EVENTS_PER_STAGE = 50_000
T = TypeVar("T")


def main() -> None:
    """See the module."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    console = Console()
    workload = Workload(total)
    console.print(_stage_table(workload))
    parent = Path("build")
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="profile-", dir=parent) as directory:
        console.print(_write_table(Path(directory), workload))
        store = HeadwaterStore(Path(directory) / "log")
        try:
            for first in range(0, total, 20 * BATCH):
                store.append_all(workload.batches(first, min(20 * BATCH, total - first), BATCH), 8)
            console.print(_thread_table(store, workload))
        finally:
            store.close()


# Stages, each by itself.


def _stage_table(workload: Workload) -> Table:
    table = Table("stage", *(f"groups of {size}" for size in GROUPS), title="CPU us per event, stage by stage")
    index = Index(0, has_partitions=False)
    for first in range(0, workload.total, BATCH):
        _apply(index, check_append(workload.stored(first, BATCH), LogSettings().event_bytes_max), first + 1)
    rows: dict[str, list[float]] = {}
    for size in GROUPS:
        for stage, cost in _stages(index, workload, size).items():
            rows.setdefault(stage, []).append(cost)
    for stage, costs in rows.items():
        table.add_row(stage, *(f"{cost:.2f}" for cost in costs))
    table.add_section()
    table.add_row("all but the condition", *(f"{sum(c[k] for s, c in rows.items() if 'condition' not in s):.2f}"
                                             for k in range(len(GROUPS))))  # fmt: skip
    return table


def _stages(index: Index, workload: Workload, size: int) -> dict[str, float]:
    groups = [workload.fresh(size) for _ in range(max(EVENTS_PER_STAGE // size // (10 if size == 1 else 1), 1))]
    settings, chain = LogSettings(), Chain(0, 1, 0, 0, 0)
    costs, columns = {}, list[EventColumns]()
    costs["check (limits, into columns)"] = _cost(
        groups, size, lambda g: columns.append(check_append(g, settings.event_bytes_max))
    )
    hashes = [hash_ids(each.sources, each.ids, SEED) for each in columns]
    costs["hash ids"] = _cost(columns, size, lambda each: hash_ids(each.sources, each.ids, SEED))
    costs["look ids up"] = _cost(hashes, size, index.ids.has_any)
    head = index.actives[-1].last
    conditions = [AppendCondition(Query.where(types=COMMON_TYPES[:1], tags=each.tags[0]), head) for each in columns]
    costs["condition: after = head (per append)"] = _cost(conditions, 1, lambda each: _check(index, each, head))
    accounts = random.Random(SEED).choices(range(workload.accounts), k=len(columns))
    queries = [Query.where(types=COMMON_TYPES[:1], tags=[f"account:{a}", "course:1"]) for a in accounts]
    old = [AppendCondition(query, 0) for query in queries]
    costs["condition: after = 0 (per append)"] = _cost(old, 1, lambda each: _check(index, each, head))
    firsts = iter(range(head + 1, head + 1 + size * len(columns), size))
    costs["index ids"] = _cost(hashes, size, lambda each: index.ids.insert(each, next(firsts)))
    firsts = iter(range(head + 1, head + 1 + size * len(columns), size))
    costs["index types and tags"] = _cost(columns, size, lambda each: _apply_postings(index, each, next(firsts)))
    costs["encode a frame, with its checksum"] = _cost(
        columns, size, lambda each: encode(each, [0] * each.count, head + 1, 0, chain)
    )
    return costs


def _cost(items: Sequence[T], events_each: int, work: Callable[[T], object]) -> float:
    began = time.thread_time()
    for item in items:
        work(item)
    return (time.thread_time() - began) / (len(items) * events_each) * 1e6


def _check(index: Index, condition: AppendCondition, head: int) -> int | None:
    return first_match(index.pieces(condition.after + 1, head), condition.fail_if_events_match)


def _apply(index: Index, columns: EventColumns, first: int) -> None:
    hashes = hash_ids(columns.sources, columns.ids, SEED)
    index.apply(first, columns.types, columns.tags, [0] * columns.count)
    index.ids.insert(hashes, first)


def _apply_postings(index: Index, columns: EventColumns, first: int) -> None:
    index.actives[-1].apply(first, columns.types, columns.tags, [0] * columns.count)


def _write_table(directory: Path, workload: Workload) -> Table:
    table = Table("events in a frame", "bytes", "CPU us per event", "wall us per event", title="write + fdatasync")
    for size in GROUPS:
        frames = [frame_bytes(workload.fresh(size)) for _ in range(200)]
        with RawFile(directory / "raw", sum(map(len, frames))) as raw:
            cpu, wall = time.thread_time(), time.perf_counter()
            for frame in frames:
                raw.write([frame])
            cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        costs = (f"{each / (size * len(frames)) * 1e6:.2f}" for each in (cpu, wall))
        table.add_row(str(size), f"{len(frames[0]):,}", *costs)
    return table


# The whole path, by thread.


def _thread_table(store: HeadwaterStore, workload: Workload) -> Table:
    table = Table("thread", title="CPU us per event, thread by thread, in the whole path")
    costs: dict[str, dict[str, float]] = {}
    for title, work in (
        ("single appends, 1 at a time", _single),
        ("batches of 1000, 1 at a time", _one_at_a_time),
        ("batches of 1000, 8 in flight", _in_flight),
        ("64 clients, single appends", _clients),
        ("64 clients, conditional", _conditional_clients),
    ):
        prepared = work(store, workload)
        before, began = _cpu_by_thread(), time.perf_counter()
        events = prepared()
        wall = time.perf_counter() - began
        spent = {name: cpu - before.get(name, 0.0) for name, cpu in _cpu_by_thread().items()}
        costs[title] = {name: cpu / events * 1e6 for name, cpu in spent.items() if cpu / events > 1e-8}
        costs[title]["(events per second)"] = events / wall
        table.add_column(title, justify="right")
    for name in sorted({name for column in costs.values() for name in column}):
        table.add_row(name, *(f"{column[name]:,.2f}" if name in column else "" for column in costs.values()))
    return table


def _cpu_by_thread() -> dict[str, float]:
    """CPU seconds by thread name; threads that share a name are added up."""
    found: dict[str, float] = {}
    for thread in threading.enumerate():
        if thread.ident is not None:
            cpu = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            found[thread.name] = found.get(thread.name, 0.0) + cpu
    found["(process)"] = time.process_time()
    return found


def _single(store: HeadwaterStore, workload: Workload) -> Callable[[], int]:
    return _one_at_a_time(store, workload, size=1, count=2000)


def _one_at_a_time(
    store: HeadwaterStore, workload: Workload, *, size: int = BATCH, count: int = 100
) -> Callable[[], int]:
    batches = [workload.fresh(size) for _ in range(count)]

    def run() -> int:
        for events in batches:
            store.append(events)
        return size * count

    return run


def _in_flight(store: HeadwaterStore, workload: Workload) -> Callable[[], int]:
    batches = [workload.fresh(BATCH) for _ in range(200)]

    def run() -> int:
        store.append_all(batches, 8)
        return len(batches) * BATCH

    return run


def _clients(store: HeadwaterStore, workload: Workload, *, is_conditional: bool = False) -> Callable[[], int]:
    work = [[workload.fresh(1) for _ in range(400)] for _ in range(CLIENTS)]
    head = store.head()

    async def client(append: AppendAsync, number: int) -> None:
        for events in work[number]:
            query = Query.where(types=[events[0].type], tags=events[0].tags) if is_conditional else None
            await append(events, AppendCondition(query, head) if query else None)

    def run() -> int:
        run_clients(store, client, CLIENTS)
        return sum(map(len, work))

    return run


def _conditional_clients(store: HeadwaterStore, workload: Workload) -> Callable[[], int]:
    return _clients(store, workload, is_conditional=True)


if __name__ == "__main__":
    assert os.name == "posix", "CPU clocks of threads are POSIX"
    main()
