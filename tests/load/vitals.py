"""Memory and open files of the server's processes over time, and whether they stay as they are."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import children, own_anonymous_bytes

MIB = 2**20


class Pids(NamedTuple):
    """The processes that live as long as the server; indexes are made by a third one, which is small."""

    server: int
    bulk: int


class Vitals(NamedTuple):
    at: float
    """By the monotonic clock, in s."""
    role: str
    rss_mib: float
    """Anonymous memory that is resident: what is not cached file content."""
    connections: int
    """Sockets, pipes and the like that are open."""
    files: int
    """Files that are open: those of logs, one for each of their segments."""
    events: int
    """Acknowledged by then, by all writers."""


def look(role: str, pid: int, events: int = 0) -> Vitals:
    """One process now. Raises FileNotFoundError, ProcessLookupError or StopIteration where it is none any more."""
    connections, files = open_files(pid)
    return Vitals(time.monotonic(), role, own_anonymous_bytes(pid) / MIB, connections, files, events)


def open_files(pid: int) -> tuple[int, int]:
    """How many sockets and the like are open, and how many files."""
    kinds = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            kinds.append(os.readlink(descriptor).startswith("/"))
    return len(kinds) - sum(kinds), sum(kinds)


def pids_of(server: int) -> Pids | None:
    """The processes of a server; None where one of them does not live."""
    for child in children(server):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"headwater.server.bulk.process" in Path(f"/proc/{child}/cmdline").read_bytes():
                return Pids(server, child)
    return None


class Bounds(NamedTuple):
    """How much more may stay in the last third of a stretch than in its first third."""

    rss_mib: float
    rss_mib_per_100k_events: float
    connections: int
    files: int


class Stretch(NamedTuple):
    """One process over some time without kills: the least of everything in the first and in the last third of it.

    So what comes and goes does not count, only what stays.
    """

    name: str
    role: str
    first: Vitals
    last: Vitals


def stretch_of(name: str, samples: Sequence[Vitals]) -> Stretch:
    """The stretch in which these samples of one process were taken."""
    third = max(1, len(samples) // 3)
    return Stretch(name, samples[0].role, _least(samples[:third]), _least(samples[-third:]))


def faults_of_stretch(stretch: Stretch, bounds: Bounds) -> list[str]:
    """Whether the process stayed as it was."""
    first, last = stretch.first, stretch.last
    events = last.events - first.events
    allowed = {
        "rss_mib": bounds.rss_mib + bounds.rss_mib_per_100k_events * events / 100_000,
        "connections": bounds.connections,
        "files": bounds.files,
    }
    return [
        f"{stretch.role} process, {stretch.name}: {name} went from {getattr(first, name):.1f} to "
        f"{getattr(last, name):.1f} over {events:,} events, {more:.1f} more are allowed"
        for name, more in allowed.items()
        if getattr(last, name) > getattr(first, name) + more
    ]


def _least(samples: Sequence[Vitals]) -> Vitals:
    return Vitals(*(min(values) for values in zip(*samples, strict=True)))
