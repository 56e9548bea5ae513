"""A process that has imported the server, and forks one `headwater` for each command that a test starts.

The imports are most of what a start costs, and here they are paid once. `tests.server.starting` runs it, as
`python -m tests.server.template DESCRIPTOR`; the descriptor is its end of a socket of packets. Each packet is a `Start`
in JSON, and carries four descriptors: standard input, output and error, and a pipe to which the template writes the
process id and, at the end, the exit code. When the other end of the socket is closed, the template kills the processes
that still run, and ends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import NamedTuple

LOADED = (
    "headwater.cli.main",
    "headwater.cli.serve",
    "headwater.server.app",
    "headwater.server.process.event_loop",
    "encodings.idna",
)
"""What a server has imported when it is ready, with all that these import."""
PACKET_BYTES_MAX = 128 * 1024
"""Of one `Start`; the environment is most of it."""
DESCRIPTORS = 4
INTEGER_BYTES = 4
"""Of each number in the pipe: a write of it is never torn."""
STANDARD = 3
"""Standard input, output and error are the descriptors below."""


class Start(NamedTuple):
    """What a new process inherits or is given."""

    arguments: list[str]
    environment: dict[str, str]
    """The whole of it."""
    directory: str
    umask: int
    limits: list[tuple[int, int, int]]
    """Of resources: which, soft, hard."""
    leads_session: bool


class Child(NamedTuple):
    """A forked process that still runs."""

    pid: int
    pipe: int
    """Where its exit code is reported."""


class Template:
    """The loop that forks."""

    def __init__(self, packets: socket.socket) -> None:
        self._packets = packets
        self._children: dict[int, Child] = {}
        """By a descriptor that can be read once the process has ended."""
        self._waiting = select.poll()
        self._waiting.register(packets, select.POLLIN)

    def run(self) -> Start | None:
        """Fork for each packet, and return None when there are no more; in a forked process, return its `Start`."""
        while True:
            for descriptor, _ in self._waiting.poll():
                if descriptor in self._children:
                    self._report(descriptor)
                    continue
                threads = len(os.listdir("/proc/self/task"))
                assert threads == 1, f"a process with {threads} threads cannot be forked safely"
                packet, descriptors, _, _ = socket.recv_fds(self._packets, PACKET_BYTES_MAX, DESCRIPTORS)
                if not packet:
                    self._kill()
                    return None
                if self._fork(*descriptors):
                    return Start(*json.loads(packet))

    def _fork(self, *descriptors: int) -> bool:
        """Fork; answers whether this is the new process."""
        *standard, pipe = descriptors
        if (pid := os.fork()) == 0:
            self._packets.detach()
            for number, descriptor in enumerate(standard):
                os.dup2(descriptor, number)
            os.closerange(STANDARD, os.sysconf("SC_OPEN_MAX"))
            return True
        for descriptor in standard:
            os.close(descriptor)
        _write(pipe, pid)
        ended = os.pidfd_open(pid)
        self._children[ended] = Child(pid, pipe)
        self._waiting.register(ended, select.POLLIN)
        return False

    def _report(self, ended: int) -> None:
        self._waiting.unregister(ended)
        os.close(ended)
        child = self._children.pop(ended)
        _, status = os.waitpid(child.pid, 0)
        _write(child.pipe, os.waitstatus_to_exitcode(status))
        os.close(child.pipe)

    def _kill(self) -> None:
        for child in self._children.values():
            os.kill(child.pid, signal.SIGKILL)


def _write(pipe: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the reader has closed its end
        os.write(pipe, number.to_bytes(INTEGER_BYTES, "little", signed=True))


def become(start: Start) -> None:
    """Set this process up as `exec` would have."""
    if start.leads_session:
        os.setsid()
    os.umask(start.umask)
    for limit, soft, hard in start.limits:
        resource.setrlimit(limit, (soft, hard))
    os.chdir(start.directory)
    os.environ.clear()
    os.environ.update(start.environment)
    time.tzset()
    given = start.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = dict.fromkeys(["", *filter(None, given), *sys.path[1:]])
    sys.argv[:] = ["-c", *start.arguments]
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream.isatty():
            stream.reconfigure(line_buffering=True)


def main() -> None:
    """Run the template; in each process that it forks, run the command."""
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, before tests end their servers
    packets = socket.socket(fileno=int(sys.argv[1]))
    for name in LOADED:
        importlib.import_module(name)
    assert "pyarrow" not in sys.modules, "the server imports pyarrow at its start, and threads do not survive a fork"
    start = Template(packets).run()
    if start is None:
        packets.close()
        return
    signal.signal(signal.SIGINT, on_interrupt)
    become(start)
    from headwater.cli.main import main as headwater

    headwater()


if __name__ == "__main__":
    main()
