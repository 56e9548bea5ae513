"""`python -m tests.crash.stopped DIR`: a process that stops itself between its look at LOCK and a write.

Each line of its standard input is one write: the name of an event of log `orders`, or `state NAME`. It stops
(SIGSTOP) before the last byte of it goes to the file, and answers with a line when somebody lets it go on: `done`, or
the name of the error. Directories have no locks, as on NFS: LOCK alone tells whose the directory is.
"""

from __future__ import annotations

import fcntl
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from headwater.core import Event
from headwater.core.errors import EventLogError
from headwater.storage import Engine
from headwater.storage.disk.system import Disk
from tests.storage.disks import without_directory_locks


class StoppingDisk(Disk):
    """Stops this process before a write, behind every look at the lock."""

    is_armed = False

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        self._stop()
        super().write(fd, buffers, offset)

    def write_durably(self, fd: int, buffers: Sequence[bytes], offset: int) -> bool:
        self._stop()
        return super().write_durably(fd, buffers, offset)

    def _stop(self) -> None:
        if self.is_armed:
            self.is_armed = False
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # `kill` may stop this thread a little later


def main(directory: Path) -> None:
    """Write what is asked for, until nobody asks."""
    disk = StoppingDisk()
    engine = Engine(directory, disk=disk, reserve_bytes=0, ballast_bytes=0, maintains=False)
    log = engine.open("orders")
    print("ready", flush=True)
    for line in sys.stdin:
        what, _, name = line.strip().rpartition(" ")
        step: Callable[[], object] = (
            (lambda name=name: engine.state.put("kind", name, b"late"))  # type: ignore[misc]
            if what
            else (lambda name=name: log.append([Event("E", id=name)]))  # type: ignore[misc]
        )
        disk.is_armed = True
        try:
            step()
        except EventLogError as error:
            print(type(error).__name__, flush=True)
        else:
            print("done", flush=True)


if __name__ == "__main__":
    fcntl.flock = without_directory_locks
    main(Path(sys.argv[1]))
