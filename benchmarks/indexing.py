"""What does the index take for an event? `python -m benchmarks.indexing [EVENTS]`

Events of 100 bytes with two tags, one of them distinct, in one log. The worker's jobs run in this process: each part of
a segment is indexed, then the segment is sealed, with its parts and from nothing. CPU time, divided by the events.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from headwater.storage import Engine
from headwater.storage.index.builder import index_part, seal
from headwater.storage.segments.segment import Segment
from headwater.storage.segments.segment_log import SEGMENT_EVENTS_MAX

ROWS = 8192
PARTS = 2


def batch(first: int) -> pa.RecordBatch:
    """Events numbered from there on."""
    tags = [[f"flight:{number}", f"plane:{number % 5000}"] for number in range(first, first + ROWS)]
    columns = {"type": ["FlightReported"] * ROWS, "data": [bytes(100)] * ROWS, "tags": tags}
    return pa.record_batch(columns)


def cpu_us(work: Callable[[], object], events: int) -> float:
    """CPU time of that work for an event, in microseconds."""
    begin = time.process_time()
    work()
    return (time.process_time() - begin) / events * 1e6


def measured(log: Path, segment: Segment) -> tuple[float, float, float]:
    """What an event takes in a part, in a seal of parts, and in a seal from nothing."""
    count = segment.last - segment.first + 1
    step = count // PARTS // ROWS * ROWS
    parts = [(segment.first + n * step, segment.first + (n + 1) * step - 1) for n in range(PARTS)]
    name, last = segment.path.name, segment.last
    part = cpu_us(lambda: [index_part(log, name, *each) for each in parts], PARTS * step)
    merged = cpu_us(lambda: seal(log, name, last, parts), count)
    return part, merged, cpu_us(lambda: seal(log, name, last), count)


def main(events: int) -> None:
    """Fill a log, and print what each job takes for an event."""
    with (
        tempfile.TemporaryDirectory(prefix="headwater-indexing-") as directory,
        Engine(Path(directory) / "data", maintains=False, unindexed_bytes_max=2**36) as engine,
    ):
        log = engine.create("flights")
        for first in range(0, events, ROWS):
            log.append_batch(batch(first))
        found = [measured(log.directory, segment) for segment in log.frames.segments[:-1]]
    for what, each in zip(("part", "seal of parts", "seal from nothing"), zip(*found, strict=True), strict=True):
        print(f"{what}: {sum(each) / len(each):.2f} us an event, over {len(each)} segments")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4 * SEGMENT_EVENTS_MAX)
