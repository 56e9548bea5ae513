"""Whose turn it is on the event loop: work that scans gets a few ms of each turn, dealt to users, then to connections.

A step is a callable that scans for about half a millisecond (`BatchSizer` says how much that is) and asks for another
turn if there is more: it may do so for ever. Each turn of the loop has 2 ms of CPU time for all steps; everything else
on the loop gets its turn in between. Long jobs that end, as their input is bounded, run in `slices` instead.

Start-time fair queueing (Goyal, Vin, Cheng 1996), on two levels: users, and the connections of each user. A flow (a
user, or a connection) has a start: the virtual time since which it is due.

    state    `add`                                `take`                             `served`
    -------  -----------------------------------  ---------------------------------  ----------------------------------
    idle     waiting and new, at the later of     -                                  -
             its own start and the virtual time
    waiting  -                                    served; the virtual time is its    -
                                                  start, if that is later
    served   -                                    -                                  its start grows by its cost;
                                                                                     waiting if it has more, else idle

Rules:

1. *The earliest start is next*, and of two flows with the same start the newer one.
2. *Idleness saves nothing*: a flow that comes again starts at the virtual time or later.
3. *The user is the unit*: a hundred connections of one user have together as much as one connection of another.
4. *New and cheap flows go before dear ones.* But each new flow that is served moves the virtual time on, so that an
   endless row of newcomers does not keep others waiting for ever.
5. *If the queue is empty and little was done just now, a step runs at once*, for half of the time at most.
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
    """The note of one event loop. To set it costs an attribute, so nothing is made of it before somebody asks."""

    __slots__ = ("what",)

    def __init__(self) -> None:
        self.what: object = None
        """The room and the kind of work, as two texts; or the ASGI scope of a request. It stays until the next."""


_logger = logging.getLogger("headwater.turns")

BUDGET_S = 0.002
"""CPU time for all steps of one turn of the loop. All else that the loop has to do gets its turn in between."""
STEP_S = 0.0005
"""CPU time that one step should take: the budget is exceeded by one step at most."""
COST_S_MIN = 1e-6
"""What a step costs at least, so that everybody's virtual time grows."""
USERS_REMEMBERED = 1000
"""Users of whom it is remembered what they have had after their last connection is gone: the newest of them."""
PATIENCE = 2
"""Who waits while only newcomers are served gets one part in so many of what an equal share would be."""
AT_ONCE_FACTOR = 2
"""Steps that are done at once take half of the time, and not more than the budget in one go."""

T = TypeVar("T")
Step = Callable[[], object]
Clock = Callable[[], float]


class _Flow:
    """What shares time with others of its kind: since when, in virtual time, it is due."""

    __slots__ = ("is_busy", "is_new", "start")

    def __init__(self) -> None:
        self.start = 0.0
        self.is_new = False
        """Whether it was not served since it had nothing to do."""
        self.is_busy = False
        """Whether it waits, or is served."""


F = TypeVar("F", bound=_Flow)


class _FairQueue(Generic[F]):
    """Flows that wait: the one that is due since earliest is next, and of two with the same start the newer one."""

    __slots__ = ("_count", "_waiting", "virtual")

    def __init__(self) -> None:
        self.virtual = 0.0
        """Where whoever comes anew begins: the start of the flow that was served last, and further by each newcomer
        that was served, so that of an endless row of them some come behind those who wait."""
        self._waiting: list[tuple[float, int, F]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, flow: F) -> None:
        """The flow has something to do; does nothing if that is known already."""
        if not flow.is_busy:
            flow.is_busy = flow.is_new = True
            flow.start = max(flow.start, self.virtual)
            self._push(flow)

    def take(self) -> F:
        """The next one. It is served until `served`."""
        start, _, flow = heappop(self._waiting)
        self.virtual = max(self.virtual, start)
        return flow

    def pass_to(self, flow: F) -> None:
        """As `add` and then `take`, where nothing else waits."""
        flow.is_busy = flow.is_new = True
        self.virtual = flow.start = max(flow.start, self.virtual)

    def served(self, flow: F, cost: float, *, has_more: object) -> None:
        """The flow has had so much; it waits again if it has more to do."""
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
    """Who pays: a user, or a place from which somebody unknown comes."""

    __slots__ = ("__weakref__", "connections")

    def __init__(self) -> None:
        super().__init__()
        self.connections: _FairQueue[Flow] = _FairQueue()


class Flow(_Flow):
    """The work of one connection, or of one request: its steps are done in the order in which they asked."""

    __slots__ = ("steps", "user")

    def __init__(self, user: _User) -> None:
        super().__init__()
        self.user = user
        self.steps: deque[Step] = deque()


class FairScheduler:
    """Deals the time of one event loop. All of it is called on that loop."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        *,
        cpu: Clock = time.thread_time,
        wall: Clock = time.perf_counter,
        activity: LoopActivity | None = None,
    ) -> None:
        """`call_soon` has something done in the next turn of the loop; by default of the one that runs then."""
        self.activity = activity or LoopActivity()
        """Where a step notes what it is."""
        self._call_soon = call_soon
        self.cpu = cpu
        """The CPU time of this thread, in s: what is dealt."""
        self._wall = wall
        self._users: WeakValueDictionary[str, _User] = WeakValueDictionary()
        self._newest: deque[_User] = deque(maxlen=USERS_REMEMBERED)
        self._waiting: _FairQueue[_User] = _FairQueue()
        self._is_due = self._is_running = False
        self._debt = 0.0
        """What steps that were done at once have cost, times AT_ONCE_FACTOR; it is paid off by time that passes."""
        self._paid_at = wall()
        self.steps = 0
        """Steps done so far."""

    def flow(self, user: str, peer: str) -> Flow:
        """The flow of one more connection of that user, or of somebody unknown (`user` is empty) at that place."""
        key = f"user {user}" if user else f"peer {place_of(peer)}"
        found = self._users.get(key)
        if found is None:
            found = self._users[key] = _User()
            self._newest.append(found)
        return Flow(found)

    @property
    def is_waited_for(self) -> bool:
        """Whether some step waits for its turn. Where none does, what is short may be done without asking."""
        return bool(self._waiting)

    def now(self, flow: Flow, step: Step) -> None:
        """Do a step at once where nobody waits and little was done just now; else when it is its turn."""
        if self._is_free():
            self._run_at_once(flow, step)
        else:
            self.soon(flow, step)

    def soon(self, flow: Flow, step: Step) -> None:
        """Do a step when it is its turn, in a later turn of the loop."""
        flow.steps.append(step)
        flow.user.connections.add(flow)
        self._waiting.add(flow.user)
        self._go_on()

    async def do(self, flow: Flow, work: Callable[[], T]) -> T:
        """The answer of some work, done as a step by `now`; raises what it raises."""
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
        """One turn of the loop: steps until the budget is spent, or nobody waits."""
        self._is_due = False
        spent = 0.0
        while self._waiting and spent < BUDGET_S:
            user = self._waiting.take()
            flow = user.connections.take()
            spent += self._run(flow, flow.steps.popleft())
        if self._waiting:
            self._go_on()

    def _run_at_once(self, flow: Flow, step: Step) -> None:
        """A step while nobody waits: it is as if it had waited, and been taken."""
        self._waiting.pass_to(flow.user)
        flow.user.connections.pass_to(flow)
        self._debt += AT_ONCE_FACTOR * self._run(flow, step)
        if self._waiting:
            self._go_on()

    def _run(self, flow: Flow, step: Step) -> float:
        """Do a step of a flow that is served, and charge it; answers what that is."""
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
    """How much of some work makes one step: more while steps are short, at once less where one was long."""

    __slots__ = ("_most", "_step_s", "size")

    def __init__(self, most: int, first: int, step_s: float = STEP_S) -> None:
        """`first`: with how much to begin, before anything is known of what it costs; `step_s`: how long a step is."""
        self._most, self._step_s = most, step_s
        self.size = min(first, most)
        """What the next step should do at most, 1 at least."""

    def took(self, count: int, seconds: float) -> None:
        """A step has done so much, in so much CPU time."""
        if seconds > self._step_s:
            self.size = max(1, min(self._most, int(count * self._step_s / seconds)))
        elif count >= self.size and seconds < self._step_s / 2:
            self.size = min(self._most, self.size * 2)


def _answer(future: asyncio.Future[T], work: Callable[[], T]) -> None:
    if future.done():  # who asked has gone
        return
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
