"""How many events a second do 1 and 8 clients append in batches of 1000, over the network, to a full log?

Every client is a process of its own, on the same cores as the server; the events are made before the clock runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import Bench
from ..measure import Aim, Case, Sample, expect
from ..remote_clients import Job, run_job
from ..served_bench import HEADWATER_SERVER, UMADB
from ..stores.served import Remote
from ..workload import Workload

TITLE = "Over HTTP: batches of 1000"
SIZE = 1000


def cases(bench: Bench) -> Iterator[Case]:
    """1 and 8 clients."""
    for clients in (1, 8):
        batches = bench.count(40 if clients == 1 else 8, least=2)
        runs = {name: partial(_append, bench, name, clients, batches) for name in (HEADWATER_SERVER, UMADB)}
        yield Case(f"{clients} client{'s' * (clients > 1)}", "events/s", runs, (Aim(UMADB, 6),))


def append_batches(remote: Remote, job: Job) -> Iterator[int]:
    """One client: prepared batches, one after the other."""
    workload = Workload(job.total, fresh_from=job.fresh_from)
    batches = [remote.prepare(workload.fresh(SIZE)) for _ in range(job.steps)]
    remote.head()
    yield 0
    for batch in batches:
        remote.append(batch)
        yield 0


def _append(bench: Bench, name: str, clients: int, batches: int) -> Sample:
    remote, workload = bench.served.remote(name), bench.workload
    each = batches * SIZE
    job = Job(append_batches, workload.total, workload.reserve(clients * each), batches)
    before = remote.head()
    sample, _ = run_job(bench.served.server(name), job, clients, each, SIZE)
    expect(f"{name}: head", before + clients * each, remote.head())
    return sample
