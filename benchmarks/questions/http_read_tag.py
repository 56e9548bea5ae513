"""How long does a read of the 10 events of one tag take over the network, and how many are there in a second?

Accounts drawn at random, the events read whole. One client (p50), then 8 (reads per second), each in a process of its
own on the same cores as the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import Bench
from ..measure import Aim, Case, Sample, expect
from ..remote_clients import Job, run_job
from ..served_bench import HEADWATER_SERVER, UMADB
from ..stores.served import Remote
from ..workload import MATCHES_PER_ACCOUNT, Workload

TITLE = "Over HTTP: reading a tag with 10 matches"


def cases(bench: Bench) -> Iterator[Case]:
    """1 and 8 clients."""
    contenders = (HEADWATER_SERVER, UMADB)
    one = {name: partial(_read_alone, bench, name, bench.count(3000, least=100)) for name in contenders}
    yield Case("1 client", "ms (p50)", one, (Aim(UMADB, 1.2),), is_lower_better=True)
    eight = {name: partial(_read, bench, name, 8, bench.count(800, least=50)) for name in contenders}
    yield Case("8 clients", "reads/s", eight, (Aim(UMADB, 1.2),))


def read_tags(remote: Remote, job: Job) -> Iterator[int]:
    """One client: reads, one after the other. Commands may have added to an account since the log was filled."""
    numbers = Workload(job.total).account_numbers(job.steps, seed=job.client)
    queries = [remote.prepare_query([f"account:{number}"]) for number in numbers]
    remote.head()
    yield 0
    for query in queries:
        events = len(remote.read(query).payloads)
        expect("at least the events of the fill", True, events >= MATCHES_PER_ACCOUNT)
        yield 0


def _read(bench: Bench, name: str, clients: int, reads: int) -> Sample:
    sample, _ = run_job(bench.served.server(name), Job(read_tags, bench.workload.total, 0, reads), clients, 0)
    return sample


def _read_alone(bench: Bench, name: str, reads: int) -> Sample:
    sample = _read(bench, name, 1, reads)
    return Sample(sample.p50_ms or 0.0, sample.cpu_us, sample.p50_ms, sample.p99_ms)
