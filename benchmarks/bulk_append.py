"""How many events a second go into a stored log from Arrow? `python -m benchmarks.bulk_append [EVENTS]`

Batches of 65,536 rows of 256 bytes with given ids, 20 types and three tags of some thousands of distinct values go
through `columns_of` and `append_columns`, each durable before the next begins, or the next being made ready meanwhile.
Made beforehand, so that making them is not in the time. Beside it, what the disk itself takes: the same bytes, written
and synced.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from headwater.core import LocalLog, LogSettings
from headwater.formats.arrow.events import columns_of
from headwater.storage import Engine, StoredLog
from headwater.storage.staging.batches import Staging
from headwater.storage.staging.commit import commit_staged

ROWS = 65_536
DATA_BYTES = 256
TYPES = 20
TAG_VALUES = (5000, 2000, 50)
_noise = np.random.default_rng(17)


def batches(count: int) -> list[pa.RecordBatch]:
    """So many batches."""
    return [_batch(number) for number in range(count)]


def _batch(number: int) -> pa.RecordBatch:
    types = pa.array([f"AccountEvent{n:02d}" for n in range(TYPES)])
    keys = ("account", "course", "region")
    terms = [pa.array([f"{key}:{n}" for n in range(values)]) for key, values in zip(keys, TAG_VALUES, strict=True)]
    tags = np.stack([_noise.integers(0, values, ROWS) for values in TAG_VALUES], axis=1)
    tags += np.cumsum((0, *TAG_VALUES[:-1]))
    data = pa.py_buffer(_noise.bytes(ROWS * DATA_BYTES))
    offsets = pa.py_buffer(np.arange(0, (ROWS + 1) * DATA_BYTES, DATA_BYTES, dtype=np.int32))
    columns = {
        "type": types.take(pa.array(_noise.integers(0, TYPES, ROWS))),
        "data": pa.Array.from_buffers(pa.binary(), ROWS, [None, offsets, data]),
        "tags": pa.ListArray.from_arrays(
            pa.array(np.arange(0, 3 * ROWS + 1, 3, dtype=np.int32)),
            pa.concat_arrays(terms).take(pa.array(tags.ravel())),
        ),
        "id": pa.array([f"{number:08x}-0000-7000-8000-{row:012x}" for row in range(ROWS)]),
    }
    return pa.record_batch(columns)


def one_after_the_other(log: LocalLog, made: list[pa.RecordBatch]) -> None:
    """Each batch is made ready when the one before it is durable."""
    for batch in made:
        log.append_columns(columns_of(batch, log.settings))


def ahead(log: LocalLog, made: list[pa.RecordBatch]) -> None:
    """The next batch is made ready while one is written, as a commit of staged batches does."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(columns_of, made[0], log.settings)
        for batch in (*made[1:], None):
            columns = following.result()
            if batch is not None:
                following = pool.submit(columns_of, batch, log.settings)
            log.append_columns(columns)


@click.command()
@click.argument("events", default=2_000_000)
@click.option("--profile", "is_profiled", is_flag=True, help="Profile the committer's thread instead.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("build"), help="Where the log is made.")
def main(events: int, is_profiled: bool, directory: Path) -> None:
    """Events a second, for EVENTS (default: two million)."""
    directory.mkdir(exist_ok=True)
    made = batches(max(events // ROWS, 1))
    total = len(made) * ROWS
    table = Table(
        "what", "events/s", "MB/s of payload", "CPU us per event", title=f"{total:,} events in batches of {ROWS:,}"
    )
    for name, (wall, cpu) in _profiled(made, directory) if is_profiled else _measured(made, directory):
        rates = f"{total / wall:,.0f}", f"{total * DATA_BYTES / wall / 1e6:,.0f}"
        table.add_row(name, *rates, f"{cpu / total * 1e6:.2f}")
    Console().print(table)


Cost = tuple[float, float]
"""Seconds of wall time, and of CPU time."""


class _Watch:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Cost:
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


def _measured(made: list[pa.RecordBatch], directory: Path) -> Iterator[tuple[str, Cost]]:
    watch = _Watch()
    for batch in made:
        columns_of(batch, LogSettings())
    yield "columns_of alone", watch.read()
    yield "write + fdatasync of the same bytes alone", _raw(made, directory)
    for work in (one_after_the_other, ahead):
        with tempfile.TemporaryDirectory(dir=directory) as place, Engine(place) as engine:
            log = engine.create("bulk")
            watch = _Watch()
            work(log, made)
            yield f"columns_of + append_columns, {work.__name__.replace('_', ' ')}", watch.read()
    with tempfile.TemporaryDirectory(dir=directory) as place, Engine(place) as engine:
        yield from _staged(engine.create("bulk"), made)


def _staged(log: StoredLog, made: list[pa.RecordBatch]) -> Iterator[tuple[str, Cost]]:
    watch = _Watch()
    writer = Staging(log.directory).stage("bench", 0, 0, 0, made[0].schema)
    for batch in made:
        writer.write(batch)
    stage = writer.close()
    yield "staging all as one file", watch.read()
    watch = _Watch()
    commit_staged(log, log.directory, "bench", 0, [stage.stage])
    yield "commit of the staged batch", watch.read()


def _raw(made: list[pa.RecordBatch], directory: Path) -> Cost:
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        contents = [os.urandom(made[0].nbytes)] * len(made)
        os.posix_fallocate(file.fileno(), 0, sum(map(len, contents)))
        os.fsync(file.fileno())
        watch = _Watch()
        for content in contents:
            os.write(file.fileno(), content)
            os.fdatasync(file.fileno())
        return watch.read()


def _profiled(made: list[pa.RecordBatch], directory: Path) -> Iterator[tuple[str, Cost]]:
    profiles: list[cProfile.Profile] = []
    run = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        if not thread.name.endswith("committer"):
            return run(thread)
        profiles.append(cProfile.Profile())
        profiles[-1].runcall(run, thread)

    threading.Thread.run = profiled  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory(dir=directory) as place, Engine(place, maintains=False) as engine:
        watch = _Watch()
        one_after_the_other(engine.create("bulk"), made)
        yield "profiled", watch.read()
    for profile in profiles:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
