"""A way to a database with a round trip of some milliseconds, in a process of its own: no contender waits for it."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection

from tests.homes.proxy import Proxy


class Delayed:
    """Leads to a port of this machine, and lets each answer come later."""

    def __init__(self, port: int, round_trip_ms: float) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(port, round_trip_ms, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.port: int = ours.recv()

    def close(self) -> None:
        """End it, and all connections through it."""
        self._process.kill()
        self._process.join()


def _serve(port: int, round_trip_ms: float, told: Connection) -> None:
    proxy = Proxy(port)
    proxy.delay_s = round_trip_ms / 2000
    told.send(proxy.port)
    while True:
        time.sleep(3600)
