"""What does an event take on the disk and in memory?

Disk: what the files of the full log take (blocks, preallocated ones included), write-ahead log and index included.
Memory: what a fresh process takes (anonymous pages) to open the full log, append a tenth more and read a thousand tags.
SQLite's share is mostly its page cache, which was given 256 MiB here. The payload is 256 bytes; with id, type and tags
an event is about 330.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from .. import child
from ..bench import HEADWATER, SQLITE, Bench
from ..measure import Case, Sample, disk_bytes, expect

TITLE = "Disk and memory"


def cases(bench: Bench) -> Iterator[Case]:
    """Disk, then memory (which makes the log grow)."""
    disk = {name: partial(_disk, bench, name) for name in (HEADWATER, SQLITE)}
    yield Case("disk", "bytes/event", disk, is_lower_better=True, rounds=1)
    memory = {name: partial(_memory, bench, name) for name in (HEADWATER, SQLITE)}
    yield Case("memory", "bytes/event", memory, is_lower_better=True, rounds=1)


def _disk(bench: Bench, name: str) -> Sample:
    head = bench.store(name).head()
    return Sample(disk_bytes(bench.release(name)) / head)


def _memory(bench: Bench, name: str) -> Sample:
    head = bench.store(name).head()
    fresh = bench.workload.total // 10
    answer = child.run("weigh", name, bench.release(name), bench.workload, fresh)
    expect(f"{name}: head", head + fresh // 1000 * 1000, answer["head"])
    return Sample(answer["bytes"] / answer["head"])
