"""A process that commits staged batches: `python -m tests.crash.committer DIRECTORY LAST [STEP] [OPERATION]`.

Commits the batches 1 to LAST of one writer, staged by somebody else, in order. At its STEP-th step it is gone, as if
killed, or before its OPERATION-th operation on the disk; without them it goes on until it is killed or done. Each line
on its standard output is a batch that is done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from headwater.formats.arrow import events
from headwater.storage import Engine
from headwater.storage.disk.system import Disk
from headwater.storage.segments import segment_log
from headwater.storage.staging import commit
from headwater.storage.staging.batches import batch_directory, read_manifest
from headwater.storage.staging.commit import commit_staged
from headwater.storage.staging.part import PART_SUFFIX
from headwater.storage.staging.segments import TABLE_SUFFIX

NAME, WRITER = "orders", "spark"
APPEND_ROWS = 100


def stages_of(log_directory: Path, batch: int) -> list[str]:
    """All stages of a batch, by part."""
    paths = batch_directory(log_directory, WRITER, batch).glob("*")
    stages = {path.stem for path in paths if path.suffix in (PART_SUFFIX, TABLE_SUFFIX)}
    return sorted(stages, key=lambda stem: int(stem.partition("-")[0]))


def small() -> None:
    """Appends and segments so small that a batch has several of them; all that is staged as a segment becomes one."""
    events.APPEND_EVENTS_MAX = APPEND_ROWS
    segment_log.SEGMENT_BYTES_MIN = segment_log.SEGMENT_BYTES_MAX = 64 * 1024
    commit.ADOPTED_BYTES_MIN = 1


class EndingDisk(Disk):
    """The real disk, for so many operations: before the next one the process is gone."""

    def __init__(self, operations: int) -> None:
        self._left = operations

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            os._exit(9)

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        self._count()
        super().write(fd, buffers, offset)

    def writes_durably(self, directory: Path) -> bool:
        return False  # so that each write and each sync is one of its own

    def sync(self, fd: int) -> None:
        self._count()
        super().sync(fd)

    def link(self, source: Path, target: Path) -> None:
        self._count()
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)


def main(directory: str, last: str, at: str = "0", operation: str = "0") -> None:
    small()
    left = [int(at)]

    def step(_name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            os._exit(9)

    log = Engine(directory, maintains=False, disk=EndingDisk(int(operation))).open(NAME)
    for batch in range(1, int(last) + 1):
        stages = stages_of(log.directory, batch)
        done = commit_staged(log, log.directory, WRITER, batch, stages, step=step)
        os.write(1, f"{batch} {done.was_applied:d} {read_manifest(log.directory) is None:d}\n".encode())
    os._exit(0)  # not in order: nothing is written down


if __name__ == "__main__":
    main(*sys.argv[1:])
