"""Counts what each way takes of a server: files, and calls per event, less what the server does when it is idle."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.server.running import RunningServer
from tests.waiting import eventually

from .ways import LOG, Send, ways

EVENTS, RUNS = 300, 3
IDLE_S = 10.0
QUIET_S = 0.05
QUIET_CALLS = 50
"""In QUIET_S: an idle server makes about ten."""
IDLE_FILE_SHARE = 0.5
"""A file that an idle server is in, too, is on the way of an event if it has so many calls per event more."""
CALLS_SHARE = 0.02
"""By as much two counts of the same code may differ: a group commit takes one event or two."""


class Way(NamedTuple):
    """What one way takes."""

    files: tuple[str, ...]
    """Those in which something was called in every run, by their path below the package."""
    calls: float
    """Per event, in the run with the fewest."""


Ways = Mapping[str, Way]


class CountedServer(RunningServer):
    """A server with the log LOG that can be asked for the calls that it has made."""

    def __init__(self, cwd: Path) -> None:
        self._asked = str(cwd / "calls")
        super().__init__(
            *("--data", "data", "--log", LOG),
            *("--flight-enabled", "true", "--flight-port", "0", "--flight-start", "at_once"),
            cwd=cwd,
            program=(sys.executable, "-m", "tests.paths.counted", self._asked),
        )

    def calls(self) -> Counter[str]:
        """By file, in the server and its bulk process."""
        return _asked(self._asked) + _asked(f"{self._asked}.bulk")

    def settled(self) -> Counter[str]:
        """The same, as soon as the server has nothing more to do."""
        found = self.calls()

        def is_quiet() -> bool:
            nonlocal found
            time.sleep(QUIET_S)
            before, found = found, self.calls()
            return found.total() - before.total() < QUIET_CALLS

        eventually(is_quiet, lambda: f"the server did not come to rest: {found}")
        return found


def _asked(path: str) -> Counter[str]:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        with peer.makefile() as answer:
            return Counter(json.loads(answer.readline()))


def measured(
    directory: Path,
    *,
    events: int = EVENTS,
    runs: int = RUNS,
    idle_s: float = IDLE_S,
    tell: Callable[[str], None] = lambda name: None,
) -> Ways:
    """What each way takes of a server in this directory; `tell` gets the name of each as it begins."""
    found = {}
    with (
        CountedServer(directory) as server,
        ways(server.url, server.further_url("amqp"), server.further_url("grpc")) as sends,
    ):
        for send in sends.values():
            send(events)
        idle = _idle(server, idle_s)
        for name, send in sends.items():
            tell(name)
            found[name] = least([_run(server, send, events, idle) for _ in range(runs)], events)
    return found


def _idle(server: CountedServer, idle_s: float) -> Mapping[str, float]:
    """The calls a second of an idle server, by file."""
    before = server.settled()
    time.sleep(idle_s)
    return {file: calls / idle_s for file, calls in (server.calls() - before).items()}


def _run(server: CountedServer, send: Send, events: int, idle: Mapping[str, float]) -> Mapping[str, float]:
    """The calls that so many events took, by file; without files in which an idle server makes about as many."""
    before, began_s = server.settled(), time.monotonic()
    send(events)
    made = server.settled() - before
    seconds = time.monotonic() - began_s
    more = {file: calls - idle.get(file, 0.0) * seconds for file, calls in made.items()}
    return {file: calls for file, calls in more.items() if calls >= (IDLE_FILE_SHARE * events if file in idle else 1)}


def least(runs: list[Mapping[str, float]], events: int) -> Way:
    """What is in all runs: what a server does now and then by itself is not."""
    files = set.intersection(*map(set, runs))
    return Way(tuple(sorted(files)), min(sum(run[file] for file in files) for run in runs) / events)


def growth(before: Ways, after: Ways) -> list[str]:
    """A line for each way that has more files or more calls than before."""
    return [
        f"{name}: {what}"
        for name, way in after.items()
        if name in before
        for what in (*_more_files(before[name], way), *_more_calls(before[name], way))
    ]


def _more_files(before: Way, after: Way) -> list[str]:
    if len(after.files) <= len(before.files):
        return []
    new = sorted(set(after.files) - set(before.files))
    return [f"{len(after.files)} files, {len(before.files)} before; new are {', '.join(new)}"]


def _more_calls(before: Way, after: Way) -> list[str]:
    if after.calls <= before.calls * (1 + CALLS_SHARE):
        return []
    return [f"{after.calls:.1f} calls per event, {before.calls:.1f} before"]
