"""How long does it take to read the newest 100 events of one type, without any tag, from a server with a full log?

One client in a process of its own. The rare type has 100 events in the whole log, spread evenly: a server without an
index by type reads everything to find them. The common type has one event in 19.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import Bench
from ..measure import Aim, Case, Sample, expect
from ..remote_clients import Job, run_job
from ..served_bench import HEADWATER_SERVER, UMADB
from ..stores.served import Remote
from ..workload import COMMON_TYPES, RARE_TYPE, Workload

TITLE = "Over HTTP: reading by type alone, limit 100"
LIMIT = 100


def cases(bench: Bench) -> Iterator[Case]:
    """A rare and a common type."""
    for title, work, reads in (("rare type", read_rare, 10), ("common type", read_common, 200)):
        steps = bench.count(reads, least=3)
        runs = {name: partial(_read, bench, name, work, steps) for name in (HEADWATER_SERVER, UMADB)}
        yield Case(title, "ms (p50)", runs, (Aim(UMADB, 1),), is_lower_better=True)


def read_rare(remote: Remote, job: Job) -> Iterator[int]:
    """One client: the newest events of the rare type."""
    return _read_type(remote, job, RARE_TYPE, min(LIMIT, Workload(job.total).rare_count()))


def read_common(remote: Remote, job: Job) -> Iterator[int]:
    """One client: the newest events of a common type."""
    return _read_type(remote, job, COMMON_TYPES[7], LIMIT)


def _read_type(remote: Remote, job: Job, type: str, matches: int) -> Iterator[int]:
    remote.head()
    yield 0
    for _ in range(job.steps):
        expect(f"events of {type}", matches, remote.read_type(type, LIMIT))
        yield 0


def _read(bench: Bench, name: str, work: object, reads: int) -> Sample:
    job = Job(work, bench.workload.total, 0, reads)  # type: ignore[arg-type]
    sample, _ = run_job(bench.served.server(name), job, 1, 0)
    return Sample(sample.p50_ms or 0.0, sample.cpu_us, sample.p50_ms, sample.p99_ms)
