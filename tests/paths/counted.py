"""`headwater serve`, with every Python call below the package counted by file, on all threads.

    python -m tests.paths.counted SOCKET serve ...

A program that connects to the Unix socket SOCKET gets the calls so far as one line of JSON; those of the bulk process
are at SOCKET.bulk.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import headwater

PACKAGE = f"{Path(headwater.__file__).parent}{os.sep}"
FLIGHT_CALLS = ("list_flights", "get_flight_info", "get_schema", "do_get", "do_put", "do_action", "list_actions")


class Calls:
    """Counts the Python calls of each file. A generator that goes on counts as a call."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._of_threads: list[defaultdict[str, int]] = []

    def begin(self) -> None:
        """Count on this thread, and on those that it and its threads start."""
        threading.setprofile(self.count)
        sys.setprofile(self.count)

    def count(self, frame: FrameType, event: str, argument: object) -> None:
        """For `sys.setprofile`. Each thread has counts of its own, so that none is lost between two."""
        if event == "call":
            try:
                calls = self._own.calls
            except AttributeError:
                calls = self._own.calls = defaultdict(int)
                self._of_threads.append(calls)
            calls[frame.f_code.co_filename] += 1

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, for threads that Python did not start."""

        @wraps(function)
        def call(*arguments: Any) -> Any:
            sys.setprofile(self.count)
            return function(*arguments)

        return call

    def below_the_package(self) -> Counter[str]:
        """The calls so far, by the path of the file below the package."""
        found: Counter[str] = Counter()
        for calls in list(self._of_threads):
            for path, count in calls.copy().items():
                if path.startswith(PACKAGE):
                    found[path.removeprefix(PACKAGE)] += count
        return found

    def answer(self, path: str) -> None:
        """Answer every question at the Unix socket `path`, on a thread of its own that is not counted."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        threading.Thread(target=self._answer, args=(listener,), daemon=True).start()

    def _answer(self, listener: socket.socket) -> None:
        while True:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(json.dumps(self.below_the_package()).encode() + b"\n")


def serve(path: str) -> None:
    """The server, with the rest of the command line."""
    from headwater.cli.main import main
    from headwater.server.bulk import supervisor

    calls = Calls()
    calls.answer(path)
    supervisor.PROGRAM = f"from tests.paths.counted import bulk; bulk({path + '.bulk'!r})"
    calls.begin()
    main()


def bulk(path: str) -> None:
    """The bulk process. gRPC's threads are counted from each call of Flight, and each batch that it asks for."""
    import pyarrow.flight as flight

    from headwater.flight.server.server import BulkServer
    from headwater.server.bulk.process import main

    calls = Calls()
    calls.answer(path)
    for name in FLIGHT_CALLS:
        setattr(BulkServer, name, calls.counted(getattr(BulkServer, name)))
    stream_of = flight.GeneratorStream
    flight.GeneratorStream = lambda schema, batches, *more: stream_of(schema, _Counted(batches, calls), *more)
    calls.begin()
    main()


class _Counted(Iterator[Any]):
    """The batches of a stream, for threads that Python did not start."""

    def __init__(self, batches: Iterator[Any], calls: Calls) -> None:
        self._batches, self._next = batches, calls.counted(batches.__next__)

    def __next__(self) -> Any:
        return self._next()


if __name__ == "__main__":
    _path = sys.argv.pop(1)
    serve(_path)
