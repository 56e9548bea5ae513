"""A process that commits staged batches: `python -m tests.crash.committer DIRECTORY LAST [STEP]`.

Commits the batches 1 to LAST of one writer, staged by somebody else, in order. At its STEP-th step it is gone, as if
killed; without STEP it goes on until it is killed or done. Each line on its standard output is a batch that is done.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headwater.formats import arrow_events
from headwater.storage import Engine, segments
from headwater.storage.committing import commit_staged
from headwater.storage.staging import batch_directory, read_manifest

NAME, WRITER = "orders", "spark"
APPEND_ROWS = 100


def stages_of(log_directory: Path, batch: int) -> list[str]:
    """All stages of a batch, by part."""
    paths = batch_directory(log_directory, WRITER, batch).glob("*.arrow")
    return sorted((path.stem for path in paths), key=lambda stem: int(stem.partition("-")[0]))


def small() -> None:
    """Appends and segments so small that a batch has several of them."""
    arrow_events.APPEND_EVENTS_MAX = APPEND_ROWS
    segments.SEGMENT_BYTES_MIN = segments.SEGMENT_BYTES_MAX = 64 * 1024


def main(directory: str, last: str, at: str = "0") -> None:
    small()
    left = [int(at)]

    def step(_name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            os._exit(9)

    log = Engine(directory, maintains=False).open(NAME)
    for batch in range(1, int(last) + 1):
        stages = stages_of(log.directory, batch)
        done = commit_staged(log, log.directory, WRITER, batch, stages, step=step)
        os.write(1, f"{batch} {done.was_applied:d} {read_manifest(log.directory) is None:d}\n".encode())
    os._exit(0)  # not in order: nothing is written down


if __name__ == "__main__":
    main(*sys.argv[1:])
