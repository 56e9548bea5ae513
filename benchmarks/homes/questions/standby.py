"""How much does a synchronous standby cost, depending on what each commit waits for?

A second PostgreSQL server on this machine follows the first one. `local` waits for no standby, `remote_write` until it
has what was written in memory, `on` until that is on its disk, `remote_apply` until a reader there would see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import psycopg
from tests.waiting import eventually

from ...measure import Case, Sample, expect, stopwatch
from ..bench import HomesBench
from ..writers import HeadwaterWriter, Writer

TITLE = "With a synchronous standby"
MODES = ("local", "remote_write", "on", "remote_apply")
CLIENTS = (8, 64)
PER_SECOND_MAX = 15_000


def cases(bench: HomesBench) -> Iterator[Case]:
    """8 and 64 clients."""
    writers = _writers(bench)
    for clients in CLIENTS:
        runs = {f"headwater, {mode}": partial(_append, bench, writers[mode], clients) for mode in MODES}
        yield Case(f"{clients} clients, one event per append", "appends/s", runs)


def _writers(bench: HomesBench) -> dict[str, Writer]:
    bench.note("starting a PostgreSQL server with a standby")
    primary = bench.start_postgres()
    homes = {mode: bench.new_home(primary, f"?options=-csynchronous_commit%3D{mode}") for mode in MODES}
    bench.start_postgres("hot_standby_feedback = off", standby_of=primary)
    primary.configure("max_connections = 400\nsynchronous_standby_names = 'standby'")
    primary.reload()
    states = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
    with psycopg.connect(primary.url, autocommit=True) as connection:
        eventually(lambda: connection.execute(states).fetchone() == (1,))
    found: dict[str, Writer] = {}
    for mode, home in homes.items():
        found[mode] = bench.keep(f"headwater, {mode}", 0.0, HeadwaterWriter(bench.directory / f"standby-{mode}", home))
    return found


def _append(bench: HomesBench, writer: Writer, clients: int) -> Sample:
    work = bench.singles(max(clients, int(PER_SECOND_MAX * bench.seconds)))
    before = writer.head()
    with stopwatch() as watch:
        latencies = writer.append(clients, bench.seconds, work)
    expect("head", before + len(latencies), writer.head())
    return watch.rate(len(latencies), latencies)
