"""One schedule: three servers, a home, clients, and what befalls them, all from one seed.

    .venv/bin/python -m tests.homes SEED

runs one schedule again, and prints what happened.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any

from headwater.homes.roles import events
from headwater.homes.roles.lease import LeaseTimes
from headwater.homes.roles.machine import Role

from .judge import Judge
from .model_home import STATE, ModelHome
from .model_server import ModelServer, Request

FAULTS_END = 30.0
"""Seconds after which nothing new goes wrong; what is late still comes."""
LEASES_MAX = 3
ROUND_TRIPS_MAX = 10
"""After the last fault every log must take an append within so many leases and round trips."""
COMPARED = ("try_lease", "renew_lease", "read")
"""Answers that tell the home's time."""
FENCES = ("fence_journal", "fence_logs")
FIRST_TERM = 5.0
"""Seconds after which every member knows of a term. A home that forgets more was never one, as far as it shows."""
PERSON_TAKES = 20.0
CALLS_MAX = 6
RATES = (0.8, 1.25)
"""How fast the servers' clocks go."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one schedule."""

    seed: int
    findings: dict[str, str]
    counts: dict[str, int]
    live_after: float
    overlap_s: float
    forgot: bool


class World:
    """Time, the network, and everybody in it."""

    def __init__(self, seed: int, broken: frozenset[str] = frozenset(), kind: str = "") -> None:
        """The kind may be

        - `forgets`: its standby is asynchronous;
        - `silent`: it is set back, and looks the same after that: numbers are given again until a copy sees it;
        - `witness`: only its primary has what is forgotten, and crashes in that moment;
        - `weakened`: commits do not wait for its standby any more, from some moment on.
        """
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.broken = broken
        self.now = 0.0
        self.times = LeaseTimes()
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self.judge = Judge(self)
        self.latest = 0.0
        """When the last that was late comes."""
        self.loss = rng.choice((0.0, 0.01, 0.05))
        self.late = rng.choice((0.0, 0.01, 0.05))
        self.latency = rng.uniform(0.1, 1.0) if rng.random() < 0.15 else 0.01
        """Seconds that a message takes at most, where nothing goes wrong."""
        self.live_within = LEASES_MAX * self.times.length_s + ROUND_TRIPS_MAX * 2 * self.latency
        self.slow_fences = rng.choice((0.0, 0.0, 0.4))
        """How many fences are under way for seconds."""
        self.slow_reads = rng.choice((0.0, 0.0, 0.0, 4.0))
        """Seconds that an answer takes at most which brings frames: a copy is behind meanwhile."""
        self.push_loss = rng.choice((0.0, 0.0, 0.0, 0.7))
        self.only_primary_knows = kind == "witness"
        if self.only_primary_knows:
            self.push_loss = 1.0
        forgets = rng.random() < 0.35 or kind != ""
        self.weakens = kind == "weakened"
        forgets = forgets and not self.weakens
        self.silent = kind == "silent"
        self.home = ModelHome(lambda: self.now, self.times, broken, keeps_all=not forgets)
        self.home.committed, self.home.granted = self.judge.committed, self.judge.granted
        self.clock_jumps = rng.random() < 0.08
        rates = [rng.uniform(*RATES) for _ in range(3)]
        if rng.random() < 0.25:
            # Clocks that nearly stand still: for their servers a lease never ends.
            rates = [rate if rng.random() < 0.5 else 0.03 for rate in rates]
        self.overlap_max = 0.0 if min(rates) >= RATES[0] else float("inf")
        self._person = False
        self._calls = 0
        offs = [rng.uniform(-0.5, 0.5) for _ in range(3)]
        if rng.random() < 0.15:
            offs[rng.randrange(3)] = rng.choice((-3600.0, 3600.0, 5.0))
        self.servers = {
            name: ModelServer(name, self, rate, off) for name, rate, off in zip("xyz", rates, offs, strict=True)
        }
        self.probed: dict[str, float] = {}
        self.quiet_at = float("inf")
        self.live_after = float("inf")

    # Time and the network

    def at(self, delay: float, fn: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heappush(self._queue, (self.now + delay, self._count, fn, args))

    def _delay(self, server: ModelServer) -> float | None:
        """How long a message takes; None if it is lost."""
        rng = self.rng
        if self.now < server.cut_until:
            return None
        if self.now < FAULTS_END:
            chance = rng.random()
            if chance < self.loss:
                return None
            if chance < self.loss + self.late:
                delay = 0.3 + 30.0 * rng.random() ** 3
                self.latest = max(self.latest, self.now + delay)
                return delay
        return 0.001 + self.latency * rng.random()

    def ask(
        self, server: ModelServer, sent: float, then: Callable[..., None], statement: Callable[..., Any], args: Any
    ) -> None:
        if statement.__name__ == "renew_lease" and server.stops_at_renewal and self.now < FAULTS_END:
            self._stop_for(server, server.stops_at_renewal)
            self.at(server.stops_at_renewal - 0.001, self._cut, server)
            server.stops_at_renewal = 0.0
        delay = self._delay(server)
        if delay is not None:
            if statement.__name__ in FENCES and self.now < FAULTS_END and self.rng.random() < self.slow_fences:
                delay += 12.0 * self.rng.random()
                self.latest = max(self.latest, self.now + delay)
            if statement.__name__ in FENCES:
                # The worst moment for whoever still holds itself for primary to create a log.
                for other in self.servers.values():
                    if other is not server:
                        self.at(delay + 0.02 * self.rng.random(), other.enter, other.life, other.create, ())
            self.at(delay, self._state, server, server.life, self.home.life, sent, self.now, then, statement, args)

    def _state(
        self,
        server: ModelServer,
        life: int,
        home_life: int,
        sent: float,
        asked_at: float,
        then: Callable[..., None],
        statement: Callable[..., Any],
        args: Any,
    ) -> None:
        """The statement is done at the home, and its answer goes back."""
        home = self.home
        if home.is_down or home.life != home_life or home.ended.get(server.name, -1.0) > asked_at:
            return
        if home.waits(statement.__name__, args):
            return
        answer = statement(*args)
        delay = self._delay(server)
        if delay is not None:
            if statement.__name__ == "read" and self.now < FAULTS_END:
                delay += self.slow_reads * self.rng.random()
                self.latest = max(self.latest, self.now + delay)
            home_clock = home.clock() if statement.__name__ in COMPARED else None
            told = partial(server.answered, clock_first=statement.__name__ != "renew_lease")
            self.at(delay, server.enter, life, told, (sent, home_clock, then, answer))

    def send(self, sender: ModelServer, receiver: ModelServer, method: str, *args: Any) -> None:
        """From one server to another."""
        delay = self._delay(sender)
        if method == "pushed" and self.rng.random() < self.push_loss:
            return
        if delay is not None:
            self.at(delay, receiver.enter, receiver.life, getattr(receiver, method), args)

    def answer(self, request: Request, outcome: str, number: int) -> None:
        """An answer to a client, which may be lost."""
        if self.now >= FAULTS_END or self.rng.random() >= self.loss:
            self.at(0.002, request.reply, outcome, number)

    # What befalls them

    def _befall(self) -> None:
        rng = self.rng
        befall = rng.choices(
            (
                self._pause,
                self._pause_in_renewal,
                self._crash,
                self._cut,
                self._stop,
                self._hand_over,
                self._copy_fails,
                self._clock_steps,
                self._home_restarts,
                self._standby_goes,
            ),
            (12, 8, 8, 10, 4, 6, 2, 1, 2, 4),
        )[0]
        befall(rng.choice(list(self.servers.values())) if rng.random() < 0.4 else self._primary())

    def _primary(self) -> ModelServer:
        for server in self.servers.values():
            if server.is_up and server.paused_until <= self.now and server.roles.role is Role.PRIMARY:
                return server
        return self.rng.choice(list(self.servers.values()))

    def _pause(self, server: ModelServer) -> None:
        self._stop_for(server, 20.0 * self.rng.random() ** 2)

    def _pause_two(self) -> None:
        """The primary stops, and so does the next one before the first goes on."""
        self._stop_for(self._primary(), 15.0 + 5.0 * self.rng.random())
        self.at(7.0 + 3.0 * self.rng.random(), lambda: self._stop_for(self._primary(), 12.0 + 8.0 * self.rng.random()))

    def _pause_in_renewal(self, server: ModelServer) -> None:
        """It stops while its next renewal is under way: the answer waits for it."""
        server.stops_at_renewal = 1.0 + 2.0 * self.rng.random()

    def _stop_for(self, server: ModelServer, duration: float) -> None:
        server.paused_until = max(server.paused_until, self.now + duration)
        self.latest = max(self.latest, server.paused_until)

    def _crash(self, server: ModelServer) -> None:
        if server.is_up:
            server.crash(self.rng.random() < 0.7)
            self._comes_back(server, self.rng.choice((0.3, 2.0, 10.0)))

    def _comes_back(self, server: ModelServer, delay: float) -> None:
        server.paused_until = 0.0
        self.latest = max(self.latest, self.now + delay)
        self.at(delay, server.start)

    def _cut(self, server: ModelServer) -> None:
        server.cut_until = self.now + 12.0 * self.rng.random()
        self.latest = max(self.latest, server.cut_until)

    def _stop(self, server: ModelServer) -> None:
        if server.is_up:
            self.latest = max(self.latest, self.now + 10.0, server.paused_until + 10.0)
            self.at(0.0, server.enter, server.life, server.tell, (events.StopAsked(self._another(server)),))

    def stopped(self, server: ModelServer) -> None:
        """It stopped in order, and is started again."""
        server.is_up = False
        server.life += 1
        self._comes_back(server, self.rng.choice((0.5, 5.0)))

    def _hand_over(self, server: ModelServer) -> None:
        event = events.HandOverAsked(self._another(server))
        self.at(0.0, server.enter, server.life, server.tell, (event,))

    def _another(self, server: ModelServer) -> str:
        return self.rng.choice([name for name in self.servers if name != server.name])

    def _copy_fails(self, server: ModelServer) -> None:
        if server.is_up:
            self.at(0.0, server.enter, server.life, server.tell, (events.CopyFailed("the disk is full"),))
            delay = 1.0 + 10.0 * self.rng.random()
            self.latest = max(self.latest, self.now + delay)
            self.at(delay, server.enter, server.life, server.tell, (events.CopyMended(),))

    def _clock_steps(self, server: ModelServer) -> None:
        """Its time of day is an hour ahead for a while."""
        server.step_clock(3600.0)
        delay = 5.0 + 10.0 * self.rng.random()
        self.latest = max(self.latest, self.now + delay)
        self.at(delay, server.step_clock, 0.0)

    def _home_restarts(self, _: ModelServer) -> None:
        self.home.is_down = True
        delay = self.rng.choice((0.2, 3.0, 8.0))
        self.latest = max(self.latest, self.now + delay)
        self.at(delay, self._home_is_back)

    def _standby_goes(self, _: ModelServer) -> None:
        """A synchronous standby is away for a while; the home may crash meanwhile, and the standby be promoted."""
        if not self.home.waits_for_standby or self.home.standby_is_away:
            return
        self.home.standby_is_away = True
        delay = 0.5 + 6.0 * self.rng.random()
        crash_at = delay * (0.3 + 0.7 * self.rng.random())
        self.latest = max(self.latest, self.now + delay)
        if self.rng.random() < 0.7:
            self.at(crash_at, self.home.crash)
        self.at(delay, self._standby_returns, self.rng.random() < 0.5)

    def _weaken(self) -> None:
        """Somebody takes the standby's name out, perhaps since it does not answer; it may be promoted then."""
        self.home.standby_is_away |= self.rng.random() < 0.7
        delay = 1.5 * self.rng.random()
        self.at(delay, self.home.weaken)
        delay += 0.1 + 8.0 * self.rng.random()
        self.latest = max(self.latest, self.now + delay)
        self.at(delay, partial(self.home.promote, 0.0) if self.rng.random() < 0.6 else self.home.name_again)

    def _standby_returns(self, is_promoted: bool) -> None:
        if is_promoted:
            self.home.promote(0.0)
        else:
            self.home.standby_returns()

    def _home_is_back(self) -> None:
        self.home.crash()
        self.home.is_down = False

    def _promote(self) -> None:
        lag = self.rng.choice((0.02, 0.3, 2.0, 6.0, 10.0))
        if self.only_primary_knows:
            lag = self.rng.choice((0.1, 0.3, 1.0))
            self._crash(self._primary())
        elif self.rng.random() < 0.6:
            # What takes the home takes servers as well.
            for server in self.servers.values():
                if self.rng.random() < 0.5:
                    self.rng.choice((self._pause, self._crash, self._cut, self._cut))(server)
        lag = min(lag, self.now - FIRST_TERM)
        if self.silent:
            self.home.restart()
            self.home.go_back(lag)
        else:
            self.home.promote(lag)

    def _clock_jumps(self) -> None:
        """The home's clock is an hour ahead for a while."""
        self.home.skew = 3600.0
        self.overlap_max = max(self.overlap_max, self.times.held_s / RATES[0])
        self.at(2.0 + 4.0 * self.rng.random(), self._clock_is_right)

    def _clock_is_right(self) -> None:
        self.home.skew = 0.0

    def call_a_person(self) -> None:
        """Somebody was told that the home went back, and accepts that after a while."""
        if not self._person and self._calls < CALLS_MAX:
            self._person = True
            self._calls += 1
            delay = 0.1 + PERSON_TAKES * self.rng.random() ** 2
            self.latest = max(self.latest, self.now + delay + 1.0)
            self.at(delay, self._accept_loss)

    def _accept_loss(self) -> None:
        if not self._person:
            return
        self._person = False
        if self.home.is_weakened:
            self.home.ask_after_promotions()
            return
        if self.home.is_believed:
            return  # it was proved meanwhile that nothing is missing
        self.home.accept_loss(self.rng.getrandbits(62))

    # The schedule

    def run(self) -> Result:
        rng = self.rng
        for server in self.servers.values():
            self.at(rng.random() * 0.1, server.start)
        for number in range(2):
            Client(self, f"k{number}").begin()
        Writer(self, "w").begin()
        for _ in range(rng.randrange(4, 16)):
            self.at(1.0 + (FAULTS_END - 1.0) * rng.random(), self._befall)
        for _ in range(rng.choice((0, 1, 1, 2))):
            self.at(5.0 + (FAULTS_END - 5.0) * rng.random(), self._promote)
        if rng.random() < 0.3:
            self.at(2.0 + 10.0 * rng.random(), self._pause_two)
        if self.weakens:
            self.at(FIRST_TERM + (FAULTS_END - FIRST_TERM) * rng.random(), self._weaken)
        if self.clock_jumps:
            self.at(5.0 + 30.0 * rng.random(), self._clock_jumps)
        self._pass(FAULTS_END)
        while self.latest > self.now:
            self._pass(self.latest)
        self._heal()
        return Result(
            self.seed,
            self.judge.findings,
            dict(self.judge.counts),
            self.live_after,
            self.judge.overlap_s if self.overlap_max < float("inf") else 0.0,
            self.home.has_forgotten,
        )

    def _pass(self, until: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, fn, args = heappop(queue)
            fn(*args)
        self.now = max(self.now, until)

    def _heal(self) -> None:
        """Nothing goes wrong any more: every log takes appends soon, and what was asked about is known."""
        self.quiet_at = self.now
        for server in self.servers.values():
            server.mend_clock()
        deadline, last = self.now + self.live_within, self.now + 4 * self.live_within
        while self.now < min(deadline, last):
            for log in self.home.heads:
                if log != STATE and log not in self.probed:
                    Probe(self, log).begin()
            self._pass(self.now + 0.5)
            if self._person:
                self._accept_loss()
                deadline = self.now + self.live_within
                self.quiet_at = self.now
                self.probed.clear()
            if all(log in self.probed for log in self.home.heads if log != STATE):
                break
        else:
            missing = sorted(log for log in self.home.heads if log != STATE and log not in self.probed)
            self.judge.find("live", f"{missing} took no append in {self.live_within:.0f} s; {self.roles()}")
        self.live_after = max(self.probed.values(), default=float("inf")) - self.quiet_at
        self._settle()
        self.judge.conclude()

    def roles(self) -> dict[str, str]:
        """What each server holds itself for."""
        return {name: server.roles.role.value for name, server in self.servers.items()}

    def _settle(self) -> None:
        """Soon every copy has what is there now, and every commit that is under way now is known."""
        since = self.now
        ends = {log: row.number for log, row in self.home.heads.items()}
        under_way = [(server, pending) for server in self.servers.values() for pending in server.pending.values()]
        self._pass(self.now + 3.0 + 4 * self.latency)
        for server in self.servers.values():
            if not server.is_up or server.started_at > since:
                continue
            behind = {log: end for log, end in ends.items() if server.copy.ends.get(log, (0, 0))[0] < end}
            if behind:
                self.judge.find("copies", f"{server.name} did not get {behind}, {self.roles()}")
        for server, pending in under_way:
            if server.is_up and pending in server.pending.values():
                self.judge.find("unknown for ever", f"{server.name}: {pending.parts}")


class Client:
    """Appends one event after another until each has an answer, at whichever server takes it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(world.rng.getrandbits(62))
        self.count = 0
        self.attempt = 0
        self.server = "x"

    def begin(self) -> None:
        self.world.at(self.rng.random(), self._next)

    def _next(self) -> None:
        if self.world.now > self.world.quiet_at:
            return
        self.count += 1
        self.attempt = 0
        self.log = self.rng.choice(list(self.world.home.heads)) if self.rng.random() < 0.2 else self.rng.choice("ab")
        if self.log == STATE:
            self.log = "a"
        self.key = f"seat{self.world.now // 4:g}" if self.rng.random() < 0.4 else None
        self._try()

    def _request(self, reply: Callable[[str, int], None]) -> Request:
        return Request(self.log, (f"{self.name}:{self.count}",), self.attempt, self.key, None, reply)

    def _try(self) -> None:
        self.attempt += 1
        attempt, count = self.attempt, self.count

        def reply(outcome: str, _number: int) -> None:
            if (attempt, count) == (self.attempt, self.count):
                self._answered(outcome)

        server = self.world.servers[self.server]
        self.world.at(0.002, server.enter, server.life, server.append, (self._request(reply),))
        self.world.at(3.0, self._give_up, attempt, count)

    def _answered(self, outcome: str) -> None:
        if outcome in ("stored", "conflict"):
            self._done()
        else:
            self._again()

    def _give_up(self, attempt: int, count: int) -> None:
        if (attempt, count) == (self.attempt, self.count):
            self._again()

    def _again(self) -> None:
        if self.world.now > self.world.quiet_at + self.world.live_within:
            return
        self.server = self.rng.choice("xyz")
        self.attempt += 1
        self.world.at(0.2 + 0.8 * self.rng.random(), self._try)

    def _done(self) -> None:
        self.attempt += 1
        self.world.at(0.1 + self.rng.random() * 2.0, self._next)


class Writer(Client):
    """An exactly-once writer: its events have new ids at each try, so only its mark says that a batch is there."""

    def _request(self, reply: Callable[[str, int], None]) -> Request:
        ids = tuple(f"{self.name}:{self.count}:{self.attempt}:{at}" for at in range(2))
        return Request("a", ids, self.attempt, None, (self.name, self.count), reply)


class Probe(Client):
    """One append to one log after the last fault."""

    def __init__(self, world: World, log: str) -> None:
        super().__init__(world, f"probe:{log}:{world.now}")
        self.probed = log

    def begin(self) -> None:
        self.log, self.key = self.probed, None
        self._try()

    def _answered(self, outcome: str) -> None:
        if outcome == "stored":
            self.world.probed.setdefault(self.probed, self.world.now)
        else:
            self._again()


def run(seed: int, broken: frozenset[str] = frozenset(), kind: str = "") -> Result:
    """One schedule."""
    return World(seed, broken, kind).run()
