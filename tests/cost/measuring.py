"""Measuring what a peer's bytes cost, and judging its growth: CPU time counts, not how long anything took.

So that a busy machine does not matter, each figure is the least of some tries, and limits are generous: what the tests
are for costs ten times as much.
"""

from __future__ import annotations

import json
import math
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.server.running import SILENCE_S_MAX, RunningServer

TRIES = 3
GROWTH_MAX = 2.0
"""How much more than four times the work four times the bytes may make. Work that grows with the square makes 4.0."""
GROWTH_FLOOR_S = 0.15
"""Work that is less than that may grow as it likes: threads that only look round spend as much on a busy machine."""
HOLD_S_MAX = 0.020
"""How long one thread may keep the interpreter from all others."""
STEP_S_MAX = 0.020
"""How long one turn of the event loop may take."""
GENEROSITY = 3.0
"""By what the two are multiplied: a core with a busy neighbour needs twice the CPU time for the same work."""
_OBSERVED = (sys.executable, "-m", "tests.cost.observed")
QUIET_S = 0.01
QUIET_SHARE = 0.2


class Cost(NamedTuple):
    """What something cost the server, in seconds of CPU."""

    whole: float
    step: float
    """The longest turn of the event loop."""
    hold: float
    """The longest time in which the interpreter was one thread's."""


NOTHING_YET = Cost(math.inf, math.inf, math.inf)


class ObservedServer(RunningServer):
    """A server that can be asked what it spent."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self._asked, self._turns = str(cwd / "cost"), 0
        super().__init__(*arguments, cwd=cwd, program=(*_OBSERVED, self._asked))

    def exchange(self, method: str, path: str, body: bytes, media_type: str, **headers: str) -> int:
        """One request on a connection of its own; answers the status, or 0 where the server has closed it."""
        with closing(HTTPConnection(urlsplit(self.url).netloc, timeout=SILENCE_S_MAX)) as connection:
            try:
                connection.request(method, path, body, {"content-type": media_type, **headers})
                answer = connection.getresponse()
                answer.read()
                return answer.status
            except (ConnectionError, HTTPException):
                return 0

    def spent(self) -> Cost:
        """Since it was last asked."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(self._asked)
            found = json.loads(peer.recv(10_000))
        self._turns = found.pop("turns")
        return Cost(**found)

    def settle(self) -> Cost:
        """What it spent until it has nothing more to do."""
        found, turns, ends = self.spent(), self._turns, time.monotonic() + SILENCE_S_MAX
        while True:
            time.sleep(QUIET_S)
            more = self.spent()
            found = Cost(found.whole + more.whole, max(found.step, more.step), max(found.hold, more.hold))
            if more.whole < QUIET_S * QUIET_SHARE and self._turns > turns:
                return found
            assert time.monotonic() < ends, "it is never quiet, or no turn of its event loop is seen"

    def cost_of(self, act: Callable[[], object]) -> Cost:
        """What the server spends on something, until it has nothing more to do; it must be settled before."""
        self.spent()
        act()
        return self.settle()

    def check_growth(self, name: str, act: Callable[[int], object], size_max: int) -> None:
        """At a quarter of the size and at the whole: the work grows with it, and nobody waits long.

        A busy machine spends more than the work needs, so what is too much is measured again, and the least counts.
        Raises AssertionError.
        """
        sizes = size_max // 4, size_max
        least = [NOTHING_YET] * len(sizes)
        self.settle()
        for left in reversed(range(TRIES)):
            costs = [self.cost_of(partial(act, size)) for size in sizes]
            least = [Cost(*map(min, *pair)) for pair in zip(least, costs, strict=True)]
            problem = _problem(least)
            if problem is None:
                return
            assert left, f"{name}, {sizes[0]} and {size_max} bytes: {problem}"

    def made(self, method: str, path: str, body: object) -> Any:
        """The answer to a request with a body, both of JSON."""
        with closing(HTTPConnection(urlsplit(self.url).netloc, timeout=SILENCE_S_MAX)) as connection:
            connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
            return json.loads(connection.getresponse().read())

    def check_holds(self, name: str, act: Callable[[], object], *, tries: int = TRIES) -> None:
        """Whatever it does, nobody waits long: the least of some tries counts. Raises AssertionError."""
        least = NOTHING_YET
        self.settle()
        for left in reversed(range(tries)):
            least = Cost(*map(min, least, self.cost_of(act)))
            if (problem := _hold_problem([least])) is None:
                return
            assert left, f"{name}: {problem}; {_told([least])}"


def _problem(costs: Sequence[Cost]) -> str | None:
    """What is wrong with the costs of n and 4n."""
    small, large = costs
    problem = _hold_problem(costs)
    if large.whole > GROWTH_FLOOR_S + small.whole * 4 * GROWTH_MAX:
        problem = "the work grows faster than the bytes"
    return problem and f"{problem}; {_told(costs)}"


def _hold_problem(costs: Sequence[Cost]) -> str | None:
    """Whether somebody waits for too long."""
    if max(cost.step for cost in costs) > STEP_S_MAX * GENEROSITY:
        return "one step holds up the event loop"
    if max(cost.hold for cost in costs) > HOLD_S_MAX * GENEROSITY:
        return "one thread keeps the interpreter"
    return None


def _told(costs: Sequence[Cost]) -> str:
    shown = "; ".join("/".join(f"{1000 * seconds:.1f}" for seconds in cost) for cost in costs)
    return f"ms of CPU in all/in one step/in one hold at n; 4n: {shown}"
