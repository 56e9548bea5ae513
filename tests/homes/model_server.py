"""A server as a model: `Roles`, and the rules around it that whoever drives it must keep.

What is asked of the home is sent again, the same with the same nonce, until an answer says what became of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.homes.roles import actions, events
from headwater.homes.roles.lease import Term
from headwater.homes.roles.machine import Role, Roles

from .copies import Copy
from .model_home import NOBODY, STATE, Found, Frame, Head, MemberRow, Part

if TYPE_CHECKING:
    from .simulator import World

PATIENCE = 0.7
POLL = 1.0
REPORT = 1.0
LOOK = 0.2
ACT = 0.4
WATCH = 0.1
"""So often a server looks whether it is the primary still."""
"""Seconds between two acts of a coordinator."""

Reply = Callable[[str, int], None]


@dataclass(slots=True)
class Request:
    """One try of a client's append."""

    log: str
    ids: tuple[str, ...]
    attempt: int
    key: str | None
    mark: tuple[str, int] | None
    reply: Reply


@dataclass(slots=True)
class Pending:
    """A commit that was sent, and whose outcome is not known."""

    parts: tuple[Part, ...]
    requests: list[Request]
    term: Term
    timeline: int
    incarnation: int


class ModelServer:
    """One server, through all its lives."""

    def __init__(self, name: str, world: World, rate: float, clock_off: float) -> None:
        self.name = name
        self.world = world
        self.rate = rate
        """How fast its clock goes."""
        self.clock_off = clock_off
        """How far its time of day is off."""
        self.stops_at_renewal = 0.0
        self._clock_base = 1000.0
        self.clock_step = 0.0
        self.stepped_at = -1000.0
        self.rng = random.Random(world.rng.getrandbits(62))
        self.life = 0
        self.is_up = False
        self.started_at = 0.0
        self.paused_until = 0.0
        self.cut_until = 0.0
        """Until then it does not reach its home."""
        self.copy = Copy(1, world.judge.seen)
        self.local_positions: dict[str, int] = {}
        self.copy_id = self.rng.getrandbits(62)
        self.held = self.seen = NOBODY
        """What the copy keeps in its own files: the term of which it has all, and the newest that it saw."""

    # Its lives

    def start(self) -> None:
        self.life += 1
        self.is_up = True
        self.started_at = self.world.now
        times = self.world.times
        self.roles = Roles(
            replace(times, length_s=times.length_s * 1.5) if "full-lease" in self.broken else times, self.rng
        )
        self.pending: dict[str, Pending] = {}
        self.waiting: dict[str, list[Request]] = {}
        self.operations: list[tuple[Any, ...]] = []
        self.term: Term | None = None
        """Under which it accepts."""
        self.timeline = 0
        self.coordinates = False
        self.known: dict[str, tuple[int, int]] = {}
        """Where the fence and its own commits say that logs end."""
        self.terms: dict[str, Term] = {}
        """Broken rules only: terms that were taken over from a refusal."""
        self.fence: dict[str, Head] = {}
        self.catching_up: Term | None = None
        self.memory: dict[str, tuple[int, int]] = {}
        self.is_compared = False
        self.compared = 0
        """The timeline of the home with which the copy was compared last."""
        self.is_ahead = False
        self.unproved_since: float | None = None
        self._tick_at = float("inf")
        self.tell(events.CopyOpened())
        self._poll()
        self._report()

    def crash(self, keeps_copy: bool) -> None:
        self.is_up = False
        self.life += 1
        if keeps_copy:
            self.copy = self.copy.cut(lambda: self.rng.random() < 0.7)
            if "held-through-crashes" not in self.broken:
                self.held = NOBODY
        else:
            if "wiped-unnoticed" not in self.broken:
                self.copy_id, self.held, self.seen = self.rng.getrandbits(62), NOBODY, NOBODY
            self.copy = Copy(1, self.world.judge.seen)
            self.local_positions = {}

    @property
    def broken(self) -> frozenset[str]:
        return self.world.broken

    def now(self) -> float:
        """Its clock that counts sleep."""
        return self._clock_base + self.world.now * self.rate

    def mend_clock(self) -> None:
        """Its clock goes as fast as the home's from now on."""
        self._clock_base = self.now() - self.world.now
        self.rate = 1.0
        if self.is_up:
            self._tick_at = float("inf")
            self._set_tick()

    def clock(self) -> float:
        """Its time of day."""
        return self.world.now + self.clock_off + self.clock_step

    def step_clock(self, by: float) -> None:
        """Somebody sets its time of day."""
        self.clock_step, self.stepped_at = by, self.world.now

    # Roles

    def tell(self, event: Any) -> None:
        for action in self.roles.receive(event, self.now()):
            _DOERS[type(action)](self, action)
        self._set_tick()

    def _set_tick(self) -> None:
        wake_at = self.roles.wake_at
        if wake_at < self._tick_at:
            self._tick_at = wake_at
            self.after(max(0.0, (wake_at - self.now()) / self.rate) + 1e-6, self._tick, wake_at)

    def _tick(self, wake_at: float) -> None:
        if wake_at == self._tick_at:
            self._tick_at = float("inf")
            self.tell(events.Tick())

    def after(self, delay: float, fn: Callable[..., None], *args: Any) -> None:
        self.world.at(delay, self.enter, self.life, fn, args)

    def enter(self, life: int, fn: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Whatever reaches this process: nothing if that life is over, and later if it is stopped."""
        if life != self.life or not self.is_up:
            return
        if self.paused_until > self.world.now:
            delay = self.paused_until - self.world.now + self.rng.random() * 0.02
            self.world.at(delay, self.enter, life, fn, args)
            return
        fn(*args)

    def ask(self, then: Callable[..., None], statement: Callable[..., Any], *args: Any) -> None:
        """Ask the home; `then` gets its answer, if one comes."""
        self.world.ask(self, self.now(), then, statement, args)

    def answered(
        self, sent: float, home_clock: float | None, then: Callable[..., None], answer: Any, *, clock_first: bool
    ) -> None:
        if home_clock is not None and clock_first:
            self._compare(sent, home_clock)
        then(*answer)
        if home_clock is not None and not clock_first:
            self._compare(sent, home_clock)

    def _compare(self, sent: float, home_clock: float) -> None:
        trip = self.now() - sent
        off = 0.0 if "any-clock" in self.broken else self.clock() - trip / 2 - home_clock
        if "clock-once" not in self.broken or not self.is_compared:
            self.tell(events.ClockCompared(off, trip))
        self.is_compared = True

    # What roles ask for

    def _try_lease(self, action: actions.TryLease) -> None:
        def answered(what: str, *more: Any) -> None:
            if what == "got":
                self.tell(events.LeaseGot(more[0], more[1], action.sent_at))
            elif what == "refused":
                self.tell(events.LeaseRefused(more[0], more[1]))
            elif what == "unproved" and self._waits_for_proof():
                self.tell(events.LeaseRefused("", LOOK))
            else:
                self.tell(events.HomeChangeSeen())

        self.ask(answered, self.world.home.try_lease, self.name, action.nonce, self.copy_id)

    def _waits_for_proof(self) -> bool:
        """Copies are compared for a while before a person is told."""
        now = self.now()
        self.unproved_since = self.unproved_since or now
        return now <= self.unproved_since + self.roles.times.length_s

    def _report(self) -> None:
        """Tell the home what the copy can prove."""
        row = MemberRow(self.copy_id, max(self.seen, self.held), self.held, self.compared, self.is_ahead)
        self.ask(lambda _: None, self.world.home.enter_member, self.name, row)
        self.after(REPORT, self._report)

    def _renew_lease(self, action: actions.RenewLease) -> None:
        def answered(what: str) -> None:
            if what == "renewed":
                counted = self.now() if "counts-from-answer" in self.broken else action.sent_at
                self.tell(events.LeaseRenewed(action.term, counted))
            elif what == "lost":
                self.tell(events.LeaseLost(action.term))
            elif what == "weakened":
                self.tell(events.StandbysChanged(action.term, what))
            else:
                self.tell(events.HomeChangeSeen())

        self.ask(answered, self.world.home.renew_lease, action.term)

    def _release_lease(self, action: actions.ReleaseLease) -> None:
        def answered(_: str) -> None:
            self.tell(events.LeaseReleased(action.term))

        self.ask(answered, self.world.home.release_lease, action.term, action.successor)

    def _offer_lease(self, action: actions.OfferLease) -> None:
        self.world.send(self, self.world.servers[action.successor], "tell", events.LeaseOffered())

    def _end_sessions(self, action: actions.EndSessions) -> None:
        def answered(_: str) -> None:
            self.tell(events.SessionsEnded(action.term))

        self.ask(answered, self.world.home.end_sessions, [name for name in self.world.servers if name != self.name])

    def _fence_journal(self, action: actions.FenceJournal) -> None:
        home = self.world.home
        statement = home.fence_logs if "logs-before-journal" in self.broken else home.fence_journal
        self._fence(statement, action.term, action.timeline, events.JournalFenced(action.term))

    def _fence_logs(self, action: actions.FenceLogs) -> None:
        home = self.world.home
        statement = home.fence_journal if "logs-before-journal" in self.broken else home.fence_logs
        self._fence(statement, action.term, action.timeline, events.LogsFenced(action.term))

    def _fence(self, statement: Callable[..., Any], term: Term, timeline: int, done: Any) -> None:
        def answered(what: str, *more: Any) -> None:
            if what == "fenced":
                self.fence = more[0]
                self.tell(done)
            elif what == "foreign":
                self.tell(events.ForeignTerm(term, more[0]))
            else:
                self.tell(events.HomeChangeSeen())

        self.ask(answered, statement, term, timeline)

    def _catch_up(self, action: actions.CatchUp) -> None:
        if "no-catch-up" in self.broken:
            self.tell(events.CaughtUp(action.term))
            return
        self.catching_up = action.term
        self._read()

    def _accept(self, action: actions.AcceptAppends) -> None:
        self.term, self.timeline = action.term, action.timeline
        self.held = action.term
        self.known = dict(self.copy.ends)
        if "no-catch-up" in self.broken:
            self.known.update({log: (row.number, row.crc) for log, row in self.fence.items()})
        self.terms = {}
        self.world.judge.accepted(self.name, action.term)

    def _refuse(self, _: actions.RefuseAppends) -> None:
        self.term = None
        for requests in self.waiting.values():
            for request in requests:
                self.reply(request, "failed", 0)
        self.waiting = {}
        self.operations = []

    def _start_coordinators(self, _: actions.StartCoordinators) -> None:
        self.coordinates = True
        self.world.judge.coordinates(self.name, self.roles.term)
        self.after(self.rng.random() * ACT, self._act, self.roles.term)
        self.after(WATCH, self._watch, self.roles.term)

    def _stop_coordinators(self, _: actions.StopCoordinators) -> None:
        self.coordinates = False
        self.after(0.01, self.tell, events.CoordinatorsStopped())

    def _watch(self, term: Term) -> None:
        """All that only a primary does ends by itself when its time is over, whatever the roles hear later."""
        if not self.coordinates or self.term != term:
            return
        if self.roles.may_act(self.now()):
            self.after(WATCH, self._watch, term)
            return
        self.coordinates, self.term = False, None
        if "ends-untold" not in self.broken:
            self.after(0.01, self.tell, events.CoordinatorsStopped(term))

    def _mark_home(self, _: actions.MarkHome) -> None:
        self.ask(lambda _: self.tell(events.HomeChangeSeen()), self.world.home.mark)

    def _drain(self, _: actions.Drain) -> None:
        self.world.stopped(self)

    def _told(self, action: actions.Tell) -> None:
        self.world.judge.told(self.name, action.what)

    # Following

    def _poll(self) -> None:
        self._read()
        self.after(POLL, self._poll)

    def _read(self) -> None:
        fence = self.fence if self.catching_up is not None else {}
        term = self.catching_up

        def answered(_: str, found: Found | None) -> None:
            if found is None:
                self.tell(events.HomeChangeSeen())
                return
            self._found(found)
            if self.catching_up is not None and "reached-by-any-answer" in self.broken:
                self._reach(self.fence, found)
            elif term is not None and term == self.catching_up == self.roles.term:
                self._reach(fence, found)

        self.ask(answered, self.world.home.read, self.copy.incarnation, dict(self.copy.ends))

    def _reach(self, fence: dict[str, Head], found: Found) -> None:
        """Whether the copy is where the fence found the logs. The home was asked after that: it has all of it."""
        for log, row in fence.items():
            there = found.heads.get(log)
            if there is None or there.number < row.number:
                self.tell(events.HomeRollbackSeen(log, row.number, there.number if there else 0))
                return
        if all(self.copy.ends.get(log, (0, 0))[0] >= row.number for log, row in fence.items()):
            term, self.catching_up = self.catching_up, None
            assert term is not None
            self.tell(events.CaughtUp(term))

    def _found(self, found: Found) -> None:
        if found.incarnation < self.copy.incarnation:
            return
        if found.incarnation > self.copy.incarnation:
            self.copy = Copy(found.incarnation, self.world.judge.seen)
            self.known = {}
            self.copy_id, self.held, self.is_ahead = self.rng.getrandbits(62), NOBODY, False
            found = found._replace(asked={}, forked=[])
            self.tell(events.HomeAccepted())
        elif found.is_refused:
            self.tell(events.HomeChangeSeen())
        elif found.is_believed:
            self.unproved_since = None
            if self.roles.role is Role.WENT_BACK:
                self.tell(events.HomeAccepted())
        self.seen = max(self.seen, *(row.term for row in found.heads.values()))
        if "went-back-unseen" not in self.broken:
            asked = self.copy.ends if "compares-with-now" in self.broken else found.asked
            for log, (number, _crc) in asked.items():
                there = found.heads.get(log)
                if (there is None and number) or (there is not None and there.number < number) or log in found.forked:
                    self.is_ahead = "went-back-untold" not in self.broken
                    self.tell(events.HomeRollbackSeen(log, number, there.number if there else 0))
                    break
        for frame in found.frames:
            self.copy.add(frame)
        ends = self.copy.ends
        is_level = all(ends.get(log, (0, 0)) == (row.number, row.crc) for log, row in found.heads.items())
        if is_level and not any(ends[log][0] for log in ends.keys() - found.heads.keys()):
            self.compared, self.is_ahead = found.timeline, False

    def pushed(self, incarnation: int, frames: tuple[Frame, ...]) -> None:
        """The primary committed these just now."""
        if incarnation == self.copy.incarnation:
            for frame in frames:
                self.copy.add(frame)

    # Appends

    def append(self, request: Request) -> None:
        """A client's request. Its reply says stored, conflict, failed (never in the log) or unknown."""
        if self.term is None:
            self.reply(request, "failed", 0)
            return
        self.waiting.setdefault(request.log, []).append(request)
        self._commit(request.log)

    def reply(self, request: Request, outcome: str, number: int, incarnation: int = 0) -> None:
        self.world.judge.replied(incarnation or self.copy.incarnation, request, outcome, number)
        self.world.answer(request, outcome, number)

    def _commit(self, log: str) -> None:
        if self.term is None or log in self.pending:
            return
        if not self.roles.may_act(self.now()) and "judges-unasked" not in self.broken:
            self.tell(events.Tick())
            return
        if log == STATE:
            self._commit_journal()
            return
        requests, entries, mark = self.waiting.pop(log, []), [], None
        passed = []
        taken: set[str] = set()
        for at, request in enumerate(requests):
            if mark is not None or (request.mark is not None and entries):
                self.waiting[log] = requests[at:]
                break
            outcome = self._judge(request, taken)
            if outcome is None:
                passed.append(request)
                entries.extend((event_id, request.attempt, request.key) for event_id in request.ids)
                taken.update(request.ids)
                taken.update([request.key] if request.key else [])
                mark = request.mark
            else:
                self.reply(request, *outcome)
        if passed:
            frame = self._frame(log, tuple(entries), mark)
            self._send(Pending((self._part(frame),), passed, self.term, self.timeline, self.copy.incarnation))

    def _judge(self, request: Request, taken: set[str]) -> tuple[str, int] | None:
        copy = self.copy
        if request.log not in copy.ends:
            return ("failed", 0)
        if request.mark is not None:
            marks = self.memory if "marks-in-memory" in self.broken else copy.marks
            batch, number = marks.get(request.mark[0], (0, 0))
            return ("stored", number) if batch >= request.mark[1] else None
        number_there = copy.ids.get((request.log, request.ids[0]))
        if number_there is not None:
            return ("stored", number_there)
        if request.ids[0] in taken:
            return ("failed", 0)
        if request.key is not None and ((request.log, request.key) in copy.keys or request.key in taken):
            return ("conflict", 0) if (request.log, request.key) in copy.keys else ("failed", 0)
        return None

    def _frame(self, log: str, entries: tuple[Any, ...], mark: tuple[str, int] | None = None) -> Frame:
        number, prev = self._end(log)
        nonce = self.rng.getrandbits(62)
        crc = hash((prev, nonce, len(entries)))
        at = max(self.copy.newest_at, self.clock())
        self.world.judge.stamped(self)
        assert self.term is not None
        return Frame(log, number + 1, number + len(entries), prev, crc, nonce, self.term, at, entries, mark)

    def _end(self, log: str) -> tuple[int, int]:
        known = self.known.get(log, (0, 0))
        return max(known, self.copy.ends.get(log, (0, 0)))

    def _part(self, frame: Frame) -> Part:
        return Part(frame, Head(frame.first - 1, frame.prev, self.terms.get(frame.log, frame.term)))

    def _send(self, pending: Pending) -> None:
        for part in pending.parts:
            self.pending[part.frame.log] = pending
        self._send_again(pending)

    def _send_again(self, pending: Pending) -> None:
        if self.pending.get(pending.parts[0].frame.log) is not pending:
            return

        def answered(what: str, *more: Any) -> None:
            self._settle(pending, what, *more)

        self.ask(answered, self.world.home.commit, pending.parts)
        if "unknown-is-failure" in self.broken:
            self.after(PATIENCE, self._settle, pending, "refused", {}, False, False)
        else:
            self.after(PATIENCE, self._send_again, pending)

    def _settle(self, pending: Pending, what: str, *more: Any) -> None:
        """What became of it is known, unless the home writes another history: then nothing is, yet."""
        log = pending.parts[0].frame.log
        if self.pending.get(log) is not pending:
            return
        if what == "changed":
            self.tell(events.HomeChangeSeen())
            return
        if what == "weakened":
            for part in pending.parts:
                del self.pending[part.frame.log]
            for request in pending.requests:
                self.reply(request, "unknown", 0)
            self.tell(events.StandbysChanged(pending.term, what))
            return
        heads: dict[str, Head] = more[0] if more else {}
        is_there, is_trimmed = (what == "committed", False) if what == "committed" else (more[1], more[2])
        if not is_there and not is_trimmed and self._judges_wrongly(pending, heads):
            return
        for part in pending.parts:
            del self.pending[part.frame.log]
        if is_there:
            self._committed(pending)
        else:
            for request in pending.requests:
                self.reply(
                    request, "unknown" if is_trimmed and "trimmed-is-failure" not in self.broken else "failed", 0
                )
            found = next((row.term for row in heads.values() if row.term != pending.term), None)
            if found is not None:
                self.tell(events.ForeignTerm(pending.term, found))
            elif what == "refused":
                self._read()
        for part in pending.parts:
            self._commit(part.frame.log)

    def _judges_wrongly(self, pending: Pending, heads: dict[str, Head]) -> bool:
        """Rules that are broken on purpose: what may be tempting to do after a conflict."""
        if not heads or not self.broken & {"old-frame-new-head", "judges-again"} or self.term is None:
            return False
        log = pending.parts[0].frame.log
        row = heads[log]
        self.terms[log] = row.term
        if "judges-again" in self.broken:
            del self.pending[log]
            self.waiting.setdefault(log, [])[:0] = pending.requests

            def found(_: str, answer: Found | None) -> None:
                if answer is not None:
                    self._found(answer)
                self._commit(log)

            self.ask(found, self.world.home.read, self.copy.incarnation, dict(self.copy.ends))
            return True
        old = pending.parts[0].frame
        frame = old._replace(
            first=row.number + 1, last=row.number + len(old.entries), prev=row.crc, crc=hash((row.crc, old.nonce))
        )
        pending.parts = (Part(frame, row),)
        self._send_again(pending)
        return True

    def _committed(self, pending: Pending) -> None:
        if pending.incarnation == self.copy.incarnation:
            frames = tuple(part.frame for part in pending.parts)
            for frame in frames:
                self.copy.add(frame)
                self.known[frame.log] = max(self.known.get(frame.log, (0, 0)), (frame.last, frame.crc))
                if frame.mark is not None:
                    self.memory[frame.mark[0]] = (frame.mark[1], frame.last)
            for other in self.world.servers.values():
                if other is not self:
                    self.world.send(self, other, "pushed", pending.incarnation, frames)
        number = pending.parts[0].frame.first - 1
        for request in pending.requests:
            number += len(request.ids)
            self.reply(request, "stored", number, pending.incarnation)

    # The journal, and a coordinator that moves a position and trims behind it

    def _commit_journal(self) -> None:
        operations, self.operations = self.operations, []
        entries = tuple(operation for operation in operations if self._is_due(operation))
        if entries and self.term is not None:
            frame = self._frame(STATE, entries)
            self._send(Pending((self._part(frame),), [], self.term, self.timeline, self.copy.incarnation))

    def _is_due(self, operation: tuple[Any, ...]) -> bool:
        kind, what = operation[:2]
        if kind == "create":
            return what not in self.copy.ends
        if kind == "trim":
            return bool(operation[2] > self.copy.floors.get(what, 0))
        return bool(operation[2] > self.copy.positions.get(what, 0))

    def _act(self, term: Term) -> None:
        if not self.coordinates or self.term != term:
            return
        self.after(ACT, self._act, term)
        if not self.roles.may_act(self.now()) and "acts-unasked" not in self.broken:
            return
        self.world.judge.acted(self.name, term)
        if STATE in self.pending:
            return
        log = self.rng.choice("ab")
        positions = self.local_positions if "local-positions" in self.broken else self.copy.positions
        position = positions.get(log, 0)
        self.world.judge.delivers(self.name, log, position, self.copy.floors.get(log, 0))
        head = self.copy.ends[log][0]
        position = min(head, position + self.rng.randrange(4))
        trim = ("trim", log, position) if self.rng.random() < 0.5 else None
        if "trim-first" in self.broken:
            self.operations.extend([trim] if trim else [("position", log, position)])
        elif "local-positions" in self.broken:
            self.local_positions[log] = max(position, positions.get(log, 0))
            self.operations.extend([trim] if trim else [])
        else:
            self.operations.append(("position", log, position))
            self.operations.extend([trim] if trim else [])
        if self.rng.random() < 0.1 and len(self.copy.ends) < 8:
            self.operations.append(("create", f"c{len(self.copy.ends)}"))
        self._commit(STATE)

    def create(self) -> None:
        """A client creates a log."""
        if self.term is not None and len(self.copy.ends) < 12:
            self.operations.append(("create", f"c{len(self.copy.ends)}"))
            self._commit(STATE)


_DOERS: dict[type[Any], Callable[[ModelServer, Any], None]] = {
    actions.TryLease: ModelServer._try_lease,
    actions.RenewLease: ModelServer._renew_lease,
    actions.ReleaseLease: ModelServer._release_lease,
    actions.OfferLease: ModelServer._offer_lease,
    actions.EndSessions: ModelServer._end_sessions,
    actions.FenceJournal: ModelServer._fence_journal,
    actions.FenceLogs: ModelServer._fence_logs,
    actions.CatchUp: ModelServer._catch_up,
    actions.AcceptAppends: ModelServer._accept,
    actions.RefuseAppends: ModelServer._refuse,
    actions.StartCoordinators: ModelServer._start_coordinators,
    actions.StopCoordinators: ModelServer._stop_coordinators,
    actions.MarkHome: ModelServer._mark_home,
    actions.Drain: ModelServer._drain,
    actions.Tell: ModelServer._told,
}
__all__ = ["ModelServer", "Request", "Role"]
