"""Fair scheduling on the event loop: work that scans gets a few ms per turn, divided among users, then connections.

A step is a callable that scans for about half a millisecond (`BatchSizer` sets the amount) and asks for another turn if
there is more; it may do so forever. Each turn of the loop has 2 ms of CPU time for all steps; everything else on the
loop runs in between. Long jobs that end, because their input is bounded, run in `slices` instead.

Start-time fair queueing (Goyal, Vin, Cheng 1996), on two levels: users, and the connections of each user. A flow (a
user, or a connection) has a start: the virtual time from which it may be served.

    state    `add`                                `take`                             `served`
    -------  -----------------------------------  ---------------------------------  ----------------------------------
    idle     waiting and new, at the later of     -                                  -
             its own start and the virtual time
    waiting  -                                    served; the virtual time is its    -
                                                  start, if that is later
    served   -                                    -                                  its start grows by its cost;
                                                                                     waiting if it has more, else idle

Rules:

1. *The earliest start is next*; of two flows with the same start, the newer one.
2. *Idleness saves nothing*: a flow that returns starts at the virtual time or later.
3. *The user is the unit*: a hundred connections of one user together get as much time as one connection of another
   user.
4. *New and cheap flows are served before expensive ones.* But each new flow served advances the virtual time, so that
   an endless series of newcomers does not keep others waiting forever.
5. *If the queue is empty and little was done just now, a step runs at once*, at most half of the time.
6. *A step that fails is charged*, and the next one runs.

No I/O.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from ..client_subnet import place_of


class LoopActivity:
    """What one event loop is doing. Setting it assigns one attribute; it is formatted only when read."""

    __slots__ = ("what",)

    def __init__(self) -> None:
        self.what: object = None
        """The component and the kind of work, as two texts; or the ASGI scope of a request. Kept until the next value
        is set."""


_logger = logging.getLogger("headwater.turns")

BUDGET_S = 0.002
"""CPU time for all steps of one turn of the loop. Everything else on the loop runs in between."""
STEP_S = 0.0005
"""CPU time that one step should take: the budget is exceeded by at most one step."""
COST_S_MIN = 1e-6
"""The minimum cost of a step, so that every virtual time grows."""
USERS_REMEMBERED = 1000
"""The number of users whose virtual times are remembered after their last connection has closed: the newest are
kept."""
PATIENCE = 2
"""While only newcomers are served, waiting flows get one part in this many of an equal share."""
AT_ONCE_FACTOR = 2
"""Steps that run at once take half of the time, and at most the budget without a break."""

T = TypeVar("T")
Step = Callable[[], object]
Clock = Callable[[], float]


class _Flow:
    """A flow that shares time with others of its kind, and the virtual time from which it may be served."""

    __slots__ = ("is_busy", "is_new", "start")

    def __init__(self) -> None:
        self.start = 0.0
        self.is_new = False
        """Whether it has not been served since it was idle."""
        self.is_busy = False
        """Whether it is waiting or being served."""


F = TypeVar("F", bound=_Flow)


class _FairQueue(Generic[F]):
    """Waiting flows: the one with the earliest start is next; of two with the same start, the newer one."""

    __slots__ = ("_count", "_waiting", "virtual")

    def __init__(self) -> None:
        self.virtual = 0.0
        """Where a newcomer starts: at the start of the flow served last, advanced by each newcomer served, so that in
        an endless series of them, some are queued behind the waiting flows."""
        self._waiting: list[tuple[float, int, F]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, flow: F) -> None:
        """The flow has work. Does nothing if the flow is already waiting."""
        if not flow.is_busy:
            flow.is_busy = flow.is_new = True
            flow.start = max(flow.start, self.virtual)
            self._push(flow)

    def take(self) -> F:
        """The next flow. It is being served until `served`."""
        start, _, flow = heappop(self._waiting)
        self.virtual = max(self.virtual, start)
        return flow

    def pass_to(self, flow: F) -> None:
        """Equals `add` followed by `take`, if nothing else waits."""
        flow.is_busy = flow.is_new = True
        self.virtual = flow.start = max(flow.start, self.virtual)

    def served(self, flow: F, cost: float, *, has_more: object) -> None:
        """Charge the flow; it waits again if it has more to do."""
        flow.start += cost
        if flow.is_new:
            flow.is_new = False
            self.virtual += cost / (PATIENCE * (len(self._waiting) + 1))
        if has_more:
            self._push(flow)
        else:
            flow.is_busy = False

    def _push(self, flow: F) -> None:
        self._count -= 1
        heappush(self._waiting, (flow.start, self._count, flow))


class _User(_Flow):
    """The payer: a user, or the place of an unknown peer."""

    __slots__ = ("__weakref__", "connections")

    def __init__(self) -> None:
        super().__init__()
        self.connections: _FairQueue[Flow] = _FairQueue()


class Flow(_Flow):
    """The work of one connection or one request: its steps run in the order in which they were requested."""

    __slots__ = ("steps", "user")

    def __init__(self, user: _User) -> None:
        super().__init__()
        self.user = user
        self.steps: deque[Step] = deque()


class FairScheduler:
    """Assigns the time of one event loop. All methods must be called on that loop."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        *,
        cpu: Clock = time.thread_time,
        wall: Clock = time.perf_counter,
        activity: LoopActivity | None = None,
    ) -> None:
        """`call_soon` schedules a call in the next turn of the loop; by default, of the running loop."""
        self.activity = activity or LoopActivity()
        """Where a step notes what it does."""
        self._call_soon = call_soon
        self.cpu = cpu
        """The CPU time of this thread, in s: the time that is assigned."""
        self._wall = wall
        self._users: WeakValueDictionary[str, _User] = WeakValueDictionary()
        self._newest: deque[_User] = deque(maxlen=USERS_REMEMBERED)
        self._waiting: _FairQueue[_User] = _FairQueue()
        self._is_due = self._is_running = False
        self._debt = 0.0
        """The cost of steps run at once, times AT_ONCE_FACTOR; it decreases as time passes."""
        self._paid_at = wall()
        self.steps = 0
        """Steps run so far."""

    def flow(self, user: str, peer: str) -> Flow:
        """The flow of one more connection of that user, or of an unknown peer (`user` is empty) at that place."""
        key = f"user {user}" if user else f"peer {place_of(peer)}"
        found = self._users.get(key)
        if found is None:
            found = self._users[key] = _User()
            self._newest.append(found)
        return Flow(found)

    @property
    def is_waited_for(self) -> bool:
        """Whether any step waits for its turn. If not, short work may be done without a step."""
        return bool(self._waiting)

    def now(self, flow: Flow, step: Step) -> None:
        """Run a step at once if none waits and little was done just now; otherwise at its turn."""
        if self._is_free():
            self._run_at_once(flow, step)
        else:
            self.soon(flow, step)

    def soon(self, flow: Flow, step: Step) -> None:
        """Run a step at its turn, in a later turn of the loop."""
        flow.steps.append(step)
        flow.user.connections.add(flow)
        self._waiting.add(flow.user)
        self._go_on()

    async def do(self, flow: Flow, work: Callable[[], T]) -> T:
        """The result of some work, run as a step by `now`; raises the errors of the work."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.now(flow, partial(_answer, future, work))
        return future.result() if future.done() else await future

    def _is_free(self) -> bool:
        """Whether a step may run at once."""
        if self._waiting or self._is_running:
            return False
        now = self._wall()
        self._debt = max(0.0, self._debt - (now - self._paid_at))
        self._paid_at = now
        return self._debt < BUDGET_S

    def _go_on(self) -> None:
        if not self._is_due:
            self._is_due = True
            (self._call_soon or asyncio.get_running_loop().call_soon)(self._turn)

    def _turn(self) -> None:
        """One turn of the loop: runs steps until the budget is spent or none waits."""
        self._is_due = False
        spent = 0.0
        while self._waiting and spent < BUDGET_S:
            user = self._waiting.take()
            flow = user.connections.take()
            spent += self._run(flow, flow.steps.popleft())
        if self._waiting:
            self._go_on()

    def _run_at_once(self, flow: Flow, step: Step) -> None:
        """Run a step while none waits, as if it had waited and been taken."""
        self._waiting.pass_to(flow.user)
        flow.user.connections.pass_to(flow)
        self._debt += AT_ONCE_FACTOR * self._run(flow, step)
        if self._waiting:
            self._go_on()

    def _run(self, flow: Flow, step: Step) -> float:
        """Run a step of a flow being served, and charge it; returns the cost."""
        self.steps += 1
        self._is_running = True
        began = self.cpu()
        try:
            step()
        except Exception:  # others wait for their turn behind this one
            _logger.exception("a step failed")
        finally:
            self._is_running = False
            cost, user = max(self.cpu() - began, COST_S_MIN), flow.user
            user.connections.served(flow, cost, has_more=flow.steps)
            self._waiting.served(user, cost, has_more=user.connections)
        return cost


class BatchSizer:
    """How much work makes one step: grows while steps are short, shrinks at once after a long one."""

    __slots__ = ("_most", "_step_s", "size")

    def __init__(self, most: int, first: int, step_s: float = STEP_S) -> None:
        """`first`: the initial amount, before the cost is known; `step_s`: the target duration of a step."""
        self._most, self._step_s = most, step_s
        self.size = min(first, most)
        """The maximum number of units that the next step should process, at least 1."""

    def took(self, count: int, seconds: float) -> None:
        """A step has done `count` units of work in this much CPU time."""
        if seconds > self._step_s:
            self.size = max(1, min(self._most, int(count * self._step_s / seconds)))
        elif count >= self.size and seconds < self._step_s / 2:
            self.size = min(self._most, self.size * 2)


def _answer(future: asyncio.Future[T], work: Callable[[], T]) -> None:
    if future.done():  # the caller was cancelled
        return
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
