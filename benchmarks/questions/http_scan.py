"""How many events a second does one client get from a full scan over the network, every event whole?

The client runs in a process of its own on the same cores as the server; it looks at the payload of every event, and
number, payload bytes and last number are checked. Headwater streams lines of JSON, with the payload in base64 because
it is not text; UmaDB streams protobuf.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import Bench
from ..measure import Aim, Case, Sample, expect
from ..remote_clients import Job, run_job
from ..served_bench import HEADWATER_SERVER, UMADB
from ..stores.served import Remote
from ..stores.store import Extent
from ..workload import DATA_BYTES

TITLE = "Over HTTP: full scan"


def cases(bench: Bench) -> Iterator[Case]:
    """One case."""
    runs = {name: partial(_scan, bench, name) for name in (HEADWATER_SERVER, UMADB)}
    yield Case("all events, 1 client", "events/s", runs, (Aim(UMADB, 1),))


def scan(remote: Remote, job: Job) -> Iterator[int]:
    """One client: the whole log, once."""
    head = remote.head()
    yield 0
    expect("scan", Extent(head, head * DATA_BYTES, head), remote.scan())
    yield 0


def _scan(bench: Bench, name: str) -> Sample:
    server, head = bench.served.server(name), bench.served.remote(name).head()
    sample, _ = run_job(server, Job(scan, bench.workload.total, 0, 1), 1, 0)
    return Sample(sample.value * head, sample.cpu_us / head if sample.cpu_us else None)
