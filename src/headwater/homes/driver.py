"""Runs the `Roles` of one server: a thread that executes their actions at the home and passes them the results."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import TypeVar

from ..core.clocks import boot_time_s, wall_clock_ms
from ..core.errors import StorageUnavailable
from ..core.watch.threads import Threads
from ..storage.frames.frame_log import HeadMoved, Term
from ..storage.home.port import (
    JOURNAL_KEY,
    HomeChanged,
    HomeMoved,
    HomeWentBack,
    StandbysChanged,
    standbys_changed,
)
from ..storage.home.replicated_log import CopyBehind
from .hand_over import HandOver
from .last_lease import LastLease
from .postgres.home import PostgresHome
from .postgres.hosts import WritableHosts, both_write
from .postgres.lease import Granted, LeaseStanding
from .roles import actions, events
from .roles.lease import LeaseTimes
from .roles.machine import Role, Roles

logger = logging.getLogger("headwater.homes")

_T = TypeVar("_T")
LOOK_S = 0.2
"""Interval at which a server that is not primary checks whether the lease is free."""
FAILED_S = 2.0
"""Time after which a server that could not take over tries again."""
TIME_S = 0.1
"""Interval at which the expiry of a primary's lease is checked."""
HOSTS_S = 1.0
"""Interval at which the hosts of the address are asked whether they accept writes."""
RENEWING = 2
"""Threads that renew leases. While one waits for an overdue answer, another one tries again."""
COPY_RETRY_S = 30.0
"""Time after which a copy that could not be written is tried again."""


def _logged(what: str, why: str) -> None:
    logger.info("%s: %s", what, why)


class Driver:
    """Keeps the role of one server at its home. Thread-safe."""

    def __init__(
        self,
        home: PostgresHome,
        server: str,
        addresses: Mapping[str, str],
        *,
        times: LeaseTimes,
        last_lease: LastLease | None = None,
        copy_id: Callable[[], str | None] = lambda: None,
        told: Callable[[str, str], None] = _logged,
    ) -> None:
        """`server` and `addresses` are published to other servers. `last_lease` stores the current lease. `copy_id`
        returns the ID of its copy as a member of the home.

        `told` gets reports for operators, see `roles.actions.Tell`.
        """
        self._home, self._server, self._addresses, self._times = home, server, addresses, times
        self._last_lease, self._copy_id, self._told = last_lease, copy_id, told
        self.asked = PostgresHome(
            home.url,
            silence_s=times.silence_s,
            connect_s_max=times.connect_s,
            lease_ms=round(times.length_s * 1000),
        )
        """The home through separate connections with short timeouts, so that commits never delay renewals."""
        self._roles = Roles(self._times, random.SystemRandom())
        self._events: SimpleQueue[events.RoleEvent] = SimpleQueue()
        self._renewals: SimpleQueue[Term | None] = SimpleQueue()
        """Terms whose lease the threads renew; None ends one thread."""
        self._renewed: SimpleQueue[events.LeaseRenewed] = SimpleQueue()
        """Handled before all other events, so that slow events do not make a renewed lease expire."""
        self._noting = threading.Lock()
        """Held while `is_away` changes."""
        self._changed = threading.Condition()
        self._turn: Granted | None = None
        """The present lease, from when the copy catches up until its coordinators stop."""
        self._begun: Term | None = None
        """The term that `wait_for_turn` returned, until `ended` is called."""
        self._is_over = False
        self._on_end: Callable[[], None] = lambda: None
        self._look_at = 0.0
        self._free_since: float | None = None
        """Since when every check found the lease free."""
        self._unproved_since: float | None = None
        """Since when the home changed and waits for copies to be compared."""
        self._copy_failed_at = 0.0
        self._waited_for: str | None = None
        """The standbys that commits of the newest lease must wait for, see `Granted`."""
        self.writable_hosts: list[str] | None = None
        """The hosts that accepted writes at the last check; None if the address names only one host."""
        self.is_away = False
        """Whether the home did not answer the last request."""
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self.standing: LeaseStanding | None = None
        """The state of the lease at the last query."""
        self.round_trip_s: float | None = None
        """The round trip of that query in seconds."""
        self.slowness: str | None = None
        """Why no lease can be kept with that round trip, and the remedy; None if it can."""
        self.obstacle: Callable[[], str | None] = lambda: None
        """Why this server should not be the primary although its copy can be written; None if it may."""
        self.hand_over: Callable[[], HandOver | None] = lambda: None
        """The newest planned change of the primary, as this server knows it."""
        home.may_act = self.may_act

    def give_back(self, term: Term) -> None:
        """Release the lease of a dead process, unless it is of another term. Raises StorageUnavailable."""
        self.asked.release_lease(term)

    def start(self, threads: Threads) -> None:
        """Start the threads."""
        threads.start("roles", self._run, self._stopping)
        for number in range(RENEWING):
            threads.start(f"renewals-{number}", self._renew_all, self._ended)
        threads.start("roles-time", self._watch_time, self._ended)
        if (hosts := WritableHosts(self._home.url)).are_several:
            threads.start("hosts", lambda: self._watch_hosts(hosts), self._ended)

    def opened(self) -> None:
        """The copy is open and caught up: from now on this server tries to get the lease.

        Before that, servers that are caught up would have to wait for this one.
        """
        self._events.put(events.CopyOpened())

    def closed(self) -> None:
        """The copy is being closed. This server does not try to get the lease until the copy is open again."""
        self._events.put(events.CopyClosed())

    @property
    def role(self) -> Role:
        """The present role of this server."""
        return self._roles.role

    @property
    def term(self) -> int:
        """The number of this server's term; 0 if it has no lease."""
        term = self._roles.term
        return 0 if term is None else term[0]

    @property
    def held_for_s(self) -> float:
        """Seconds for which this server still counts on its lease; 0 without a lease."""
        return self._roles.held_for(boot_time_s())

    @property
    def free_for_s(self) -> float:
        """Seconds for which the lease has been free; 0 if a server has it or the state is unknown."""
        return 0.0 if (since := self._free_since) is None else boot_time_s() - since

    @property
    def ahead(self) -> str:
        """What the copy has and the home lacks; empty if nothing is known to be missing."""
        return self._roles.ahead

    def may_act(self) -> bool:
        """Whether this server may act as the primary now."""
        return self._roles.may_act(boot_time_s())

    def wait_for_turn(self, on_end: Callable[[], None], patience_s: float) -> bool:
        """Wait until this server has the lease and has fenced the logs; False after `patience_s`, or if it stops.

        `on_end` is called when the lease ends. The caller must call `caught_up` next, and `ended` at last.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._turn is not None or self._is_over, patience_s)
            if self._turn is None:
                return False
            self._on_end, self._begun = on_end, self._turn.term
            return True

    def caught_up(self) -> None:
        """The copy has all events of the home."""
        if (begun := self._begun) is not None:
            self._events.put(events.CaughtUp(begun))

    def wait_until_primary(self) -> bool:
        """Wait until appends may be accepted; False if the lease has ended, even if there is another one by now."""
        with self._changed:
            self._changed.wait_for(lambda: not self._goes_on() or self.role is Role.PRIMARY)
            return self._goes_on()

    def _goes_on(self) -> bool:
        """Whether the lease that `wait_for_turn` returned is still held."""
        return self._turn is not None and self._turn.term == self._begun

    def lost(self, error: Exception) -> None:
        """Report why the engine can no longer append: see `storage.home.replicated_log.Homed`."""
        turn = self._turn
        if isinstance(error, HeadMoved):
            if turn is not None and error.head.term != turn.term:  # otherwise the request was of an earlier term
                self._events.put(events.ForeignTerm(turn.term, error.head.term))
        elif isinstance(error, HomeWentBack):
            self._events.put(events.HomeRollbackSeen(error.log, error.copy_head, error.home_head))
        elif isinstance(error, HomeMoved):
            self._events.put(events.HomeChangeSeen(error.what))
        elif isinstance(error, StandbysChanged):
            if turn is not None:
                self._events.put(events.StandbysChanged(turn.term, error.why))
        elif isinstance(error, HomeChanged):
            if turn is not None:
                self._events.put(events.LeaseLost(turn.term))
        elif isinstance(error, CopyBehind):
            self.failed(str(error))
        else:
            self.copy_failed(f"cannot write to the copy: {error}")

    def copy_failed(self, why: str) -> None:
        """The copy cannot be written: this server takes no lease for `COPY_RETRY_S` after the last such call."""
        self._copy_failed_at = boot_time_s()
        self._events.put(events.CopyFailed(why))

    def failed(self, why: str) -> None:
        """This server cannot be the primary now: it releases the lease and tries again after `FAILED_S`."""
        self._copy_failed_at = boot_time_s() + FAILED_S - COPY_RETRY_S
        self._events.put(events.CopyFailed(why))

    def stop(self) -> None:
        """Release the lease and stop. The caller calls `ended` when its work as primary has ended."""
        self._stopping.set()
        self._events.put(events.StopAsked())

    def ended(self) -> None:
        """The work as primary has ended here."""
        with self._changed:
            term, self._begun = self._begun, None
        self._events.put(events.CoordinatorsStopped(term))

    def close(self) -> None:
        """Close the connections to the home."""
        self.asked.close()

    def wait_until_over(self, patience_s: float) -> bool:
        """Wait until the lease is released after `stop`; False if that takes longer than `patience_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over, patience_s)

    # The thread

    def _run(self) -> None:
        while self._roles.role is not Role.STOPPED:
            try:
                wait_s = min(self._roles.wake_at - boot_time_s(), LOOK_S)
                event = self._events.get(timeout=max(wait_s, 0.001))
            except Empty:
                event = self._looked()
            self._receive(event)
        self._ended.set()
        for _ in range(RENEWING):
            self._renewals.put(None)
        with self._changed:
            self._is_over = True
            self._turn = None
            self._changed.notify_all()

    def _renew_all(self) -> None:
        """Renew leases when the roles ask for it, even while other requests to the home are slow."""
        self._answer_of(self._stands)  # opens the connection
        while (term := self._renewals.get()) is not None:
            self._renew(term, boot_time_s())

    def _watch_time(self) -> None:
        """End the turn when the lease expires, even while the home has not answered a request.

        The roles may get a late renewal and continue; `ended` tells them that this turn is over.
        """
        while not self._ended.wait(TIME_S):
            if self.role is Role.PRIMARY and not self.may_act():
                self._end_turn()

    def _watch_hosts(self, hosts: WritableHosts) -> None:
        """Report when two hosts accept writes, and when only one does again."""
        told: str | None = ""
        with closing(hosts):
            while not self._ended.wait(HOSTS_S):
                self.writable_hosts = found = hosts.look()
                if (why := both_write(found)) == told:
                    continue
                if why is not None:
                    logger.error("two databases accept writes: %s", why)
                self._events.put(events.OneHostWrites() if why is None else events.TwoHostsWrite(why))
                told = why

    def _looked(self) -> events.RoleEvent:
        """The event after a wait without events: the result of checks that nothing else triggers, or a `Tick`."""
        now = boot_time_s()
        if (why := self.obstacle()) is not None:
            self._copy_failed_at = now
            if "copy-failed" not in self._roles.obstacles:
                return events.CopyFailed(why)
        if "copy-failed" in self._roles.obstacles and now > self._copy_failed_at + COPY_RETRY_S:
            return events.CopyMended()
        if self.role is Role.PRIMARY and (wanted := self._wanted(self.term)) is not None:
            return events.HandOverAsked(wanted)
        if self.role in (Role.STARTING, Role.FOLLOWING, Role.WENT_BACK) and now > self._look_at + LOOK_S:
            self._look_at = now
            standing = self._answer_of(self._stands)
            is_free = standing is not None and standing.is_vouched and not standing.remaining_s
            if standing is not None and is_free and not self._is_kept(standing):
                return events.LeaseOffered() if self.role is Role.FOLLOWING else events.HomeAccepted()
        return events.Tick()

    def _wanted(self, term: int) -> str | None:
        """The other server that should be the primary after that term; None if any may."""
        wanted = self.hand_over()
        return wanted.server if wanted is not None and wanted.term == term and wanted.server != self._server else None

    def _is_kept(self, standing: LeaseStanding) -> bool:
        """Whether to leave the next lease to another server, at most for the length of a lease."""
        return self._wanted(standing.term.number) is not None and self.free_for_s < self._times.length_s

    def _receive(self, event: events.RoleEvent) -> None:
        told: list[events.RoleEvent] = [self._renewed.get() for _ in range(self._renewed.qsize())]
        for each in (*reversed(told), event):  # the newest first
            for action in self._roles.receive(each, boot_time_s()):
                self._do(action)
        with self._changed:
            self._changed.notify_all()

    def _do(self, action: actions.RoleAction) -> None:
        match action:
            case actions.TryLease(nonce, sent_at):
                self._try(nonce, sent_at)
            case actions.RenewLease(term, _):
                self._renewals.put(Term(*term))
            case actions.EndSessions(term):
                self._ask(self.asked.end_sessions, events.SessionsEnded(term))
            case actions.FenceJournal(term, timeline):
                granted = Granted(Term(*term), timeline, self._waited_for)
                self._fenced(lambda: self.asked.fence_journal(granted), granted, events.JournalFenced(term))
            case actions.FenceLogs(term, timeline):
                granted = Granted(Term(*term), timeline, self._waited_for)
                self._fenced(lambda: self.asked.fence_logs(granted), granted, events.LogsFenced(term))
            case actions.CatchUp():
                pass  # the turn began with the fence; `caught_up` reports the end of catching up
            case actions.AcceptAppends(term, timeline):
                logger.info("this server is the primary of its home, term %d on timeline %d", term[0], timeline)
            case actions.RefuseAppends(why):
                logger.warning("this server is no longer the primary: %s", why)
            case actions.StopCoordinators():
                self._end_turn()
            case actions.ReleaseLease(term, _):
                self._end_turn()
                self._ask(lambda: self.asked.release_lease(Term(*term)), events.LeaseReleased(term))
                self._keep(None)
            case actions.MarkHome(log, copy_head, home_head):
                text = f"the copy of {log} on {self._server} ends with {copy_head}, but the home ends with {home_head}"
                self._ask(lambda: self.asked.mark(text), events.Tick())
            case actions.Tell(what, why):
                self._told(what, why)
            case actions.StartCoordinators() | actions.OfferLease() | actions.Drain():
                pass  # who waits for the role starts them; nobody is told directly; and `_run` ends

    def _try(self, nonce: int, sent_at: float) -> None:
        if self.standing is None:  # the clocks are compared first
            self._answer_of(self._stands)
        if (known := self.standing) is not None and self._is_kept(known):
            self._events.put(events.LeaseRefused(known.holder, LOOK_S))
            return
        granted = self._answer_of(
            lambda: self.asked.try_lease(
                self._server, self._addresses, nonce, self._times.length_s, member=self._copy_id()
            )
        )
        if granted is not None:
            self._waited_for, self._free_since = granted.waited_for, None
            self._events.put(events.LeaseGot(granted.term, granted.timeline, sent_at))
            return
        before = boot_time_s()
        standing = self._answer_of(self._stands)
        if standing is None:
            return  # it is asked again
        if self._is_given(standing, nonce):
            self._waited_for = standing.waited_for
            self._events.put(events.LeaseGot(standing.term, standing.timeline, self._given_at(standing, before)))
        elif not standing.is_vouched:
            self._events.put(self._unbelieved(standing))
        else:
            self._events.put(events.LeaseRefused(standing.holder, standing.remaining_s))

    def _renew(self, term: Term, sent_at: float) -> None:
        renewal = self._answer_of(lambda: self.asked.renew_lease(term, self._times.length_s))
        if renewal is None:
            before = boot_time_s()
            standing = self._answer_of(self._stands)
            if standing is not None and standing.term == term and self._is_given(standing, term.nonce):
                self._tell_renewed(term, self._given_at(standing, before))
            return
        if renewal.is_given:
            self._tell_renewed(term, sent_at)
        standing = self._seen(renewal.standing)
        waited_for, now = self._waited_for, standing.waited_for
        if waited_for is not None and now is not None and waited_for != now:
            self._events.put(events.StandbysChanged(term, standbys_changed(waited_for, now)))
        elif not renewal.is_given:
            self._events.put(events.LeaseLost(term) if standing.is_vouched else self._unbelieved(standing, term))

    def _tell_renewed(self, term: Term, sent_at: float) -> None:
        self._renewed.put(events.LeaseRenewed(term, sent_at))
        self._events.put(events.Tick())

    def _unbelieved(self, standing: LeaseStanding, term: Term | None = None) -> events.RoleEvent:
        """The event for a home that grants no lease although it is free. `term`: this server's term if it had a lease.

        After a change of the home, comparing the copies may prove that it is complete. If that takes longer than a
        lease, an operator must decide.
        """
        self._unproved_since = self._unproved_since or boot_time_s()
        if not standing.may_be_proved or boot_time_s() > self._unproved_since + self._times.length_s:
            return events.HomeChangeSeen(standing.obstacle)
        return events.LeaseRefused(standing.holder, LOOK_S) if term is None else events.LeaseLost(term)

    def _is_given(self, standing: LeaseStanding, nonce: int) -> bool:
        """Whether this server got the lease that it asked for with that nonce although the answer was lost."""
        is_running = 0 < standing.remaining_s <= self._times.length_s  # otherwise the home's clock was set back
        return standing.term.nonce == nonce and standing.is_vouched and is_running

    def _given_at(self, standing: LeaseStanding, asked_at: float) -> float:
        """When the home granted the lease, or slightly earlier, by this clock. `asked_at`: the time of that query."""
        return asked_at - (self._times.length_s - standing.remaining_s)

    def _fenced(self, fence: Callable[[], bool], granted: Granted, done: events.RoleEvent) -> None:
        is_fenced = self._answer_of(fence)
        if is_fenced is None:
            return
        if is_fenced:
            if isinstance(done, events.LogsFenced):
                self._begin_turn(granted)
            self._events.put(done)
        elif (head := self._answer_of(lambda: self.asked.head(JOURNAL_KEY))) is not None:
            is_foreign = head.term != granted.term
            self._events.put(
                events.ForeignTerm(granted.term, head.term) if is_foreign else events.LeaseLost(granted.term)
            )

    def _ask(self, ask: Callable[[], None], done: events.RoleEvent) -> None:
        def answered() -> bool:
            ask()
            return True

        if self._answer_of(answered):
            self._events.put(done)

    def _stands(self) -> LeaseStanding:
        """The state of the lease. This also compares the clocks."""
        return self._seen(self.asked.standing())

    def _seen(self, standing: LeaseStanding) -> LeaseStanding:
        self._events.put(events.ClockCompared(standing.off_s, standing.round_trip_s))
        self.standing, self.round_trip_s = standing, standing.round_trip_s
        was_slow, self.slowness = self.slowness is not None, self._times.too_slow(standing.round_trip_s)
        if self.slowness is not None and not was_slow:
            logger.warning("the home is slow: %s", self.slowness)
        if standing.is_vouched:
            self._unproved_since = None
        is_free = standing.is_vouched and not standing.remaining_s
        self._free_since = (self._free_since or boot_time_s()) if is_free else None
        return standing

    def home_time_ms(self) -> int:
        """The home's time of day in ms since 1970, from this server's clock and the last comparison."""
        standing = self.standing
        return wall_clock_ms() - (0 if standing is None else round(standing.off_s * 1000))

    def _answer_of(self, ask: Callable[[], _T]) -> _T | None:
        """The home's answer; None if it does not answer. The roles get an event when this changes."""
        began = boot_time_s()
        try:
            answer = ask()
        except StorageUnavailable as error:
            with self._noting:
                was_away, self.is_away, self._free_since = self.is_away, True, None
            if not was_away:
                late = boot_time_s() > began + self._times.silence_s
                remedy = f"; {self._missing_standbys() or self._times.needed()}" if late else ""
                logger.warning("the home does not answer: %s%s", error, remedy)
                self._events.put(events.HomeUnreachable())
            return None
        with self._noting:
            was_away, self.is_away = self.is_away, False
        if was_away:
            self._events.put(events.HomeReachable())
        return answer

    def _missing_standbys(self) -> str | None:
        """Why commits wait for standbys that are not connected; None if they do not, or if nothing is answered."""
        try:
            return self.asked.missing_standbys()
        except StorageUnavailable:
            return None  # the home does not answer at all, which the caller logs

    def _begin_turn(self, granted: Granted) -> None:
        with self._changed:
            if self._turn is None:
                self._home.adopt(granted)
                self._keep(granted.term)
                self._turn = granted
                self._changed.notify_all()

    def _keep(self, term: Term | None) -> None:
        if self._last_lease is None:
            return
        try:
            self._last_lease.forget() if term is None else self._last_lease.keep(term)
        except OSError as error:
            logger.warning("cannot store the current lease, so a restart waits until it expires: %s", error)

    def _end_turn(self) -> None:
        with self._changed:
            if self._turn is None:
                return
            self._turn, on_end = None, self._on_end
            self._on_end = lambda: None
            self._changed.notify_all()
        on_end()
