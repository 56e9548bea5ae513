"""The role of a server of a shared home (primary, replica, or between the two) as a state machine without I/O.

`Roles` takes events and the time, and returns actions; every change of role is in this module. It does not make appends
safe: the home's compare-and-set by head, checksum and term does. It ensures that some server appends, that only one
server runs coordinators, and that no server appends to a home that lost events (tests/homes/ shows what happens without
each rule).

- The *lease* is granted by the home and timed by the home's clock. The holder counts from when it sent the request.
  After two thirds of the lease without a renewal it is no longer primary, whatever it learns later.
- A *takeover* has these steps: get the lease and a new term; end the other servers' sessions; write the new term into
  the head row of `$state`, then into all others; catch up to the heads; accept appends; start coordinators. Creating a
  log changes the head row of `$state` first, so no log can be created between the two fences.
- A *foreign term* ends a role at once: the server accepts nothing more in its term.
- A home that *changed its history* grants no lease until an operator accepts that. A server whose copy is ahead of its
  home marks the home, so that servers with shorter copies know.
- A server whose clock is too far off the home's, whose copy cannot be written, or at whose address two databases accept
  writes, takes no lease and gives up the one that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from . import actions, events
from .lease import Lease, LeaseTimes, Term

_NONCE_BITS = 62
_NEVER = float("inf")
OVER = "resolved"
"""The reason reported when an obstacle is gone."""


class Rng(Protocol):
    """Source of jitter and nonces: a `random.Random`. Two servers must not draw the same values."""

    def random(self) -> float:
        """A number from 0 to 1."""

    def getrandbits(self, k: int, /) -> int:
        """An integer of `k` random bits."""


class Role(Enum):
    """The role of a server of a shared home."""

    STARTING = "starting"
    """Its copy is not open."""
    FOLLOWING = "following"
    """A replica. It tries to get the lease whenever it may be free."""
    TAKING_OVER = "taking over"
    """It has the lease, but has not caught up with the logs yet."""
    PRIMARY = "primary"
    STEPPING_DOWN = "stepping down"
    """It accepts no more appends, and its coordinators are stopping."""
    WENT_BACK = "went back"
    """The home lost events, or may have. No server appends until an operator accepts that."""
    STOPPED = "stopped"


class Stage(Enum):
    """The step of a takeover or of stepping down."""

    ENDING_SESSIONS = "ending sessions"
    FENCING_JOURNAL = "fencing the journal"
    FENCING_LOGS = "fencing the logs"
    CATCHING_UP = "catching up"
    ENDING_COORDINATORS = "ending coordinators"
    RELEASING = "releasing"


class Roles:
    """The role of one server.

    The caller passes every event to `receive`, executes the returned actions in order, and sends a `Tick` at `wake_at`.
    It checks `may_act` before everything that only a primary does (an append, a step of a coordinator): a process that
    was suspended finds out there that its lease has expired.
    """

    def __init__(self, times: LeaseTimes, rng: Rng) -> None:
        self.times = times
        self.role = Role.STARTING
        self.stage: Stage | None = None
        self.holder: str | None = None
        """The holder of the lease at the last refusal."""
        self.obstacles: set[str] = set()
        """Reasons not to take the lease: `clock-off`, `copy-failed`, `two-hosts-write`."""
        self._rng = rng
        self._lease: Lease | None = None
        self._nonce: int | None = None
        """The nonce of the request for the lease. It stays the same until there is an answer, so that a lost answer
        does not block this server.
        """
        self._is_open = False
        """Whether the copy is open."""
        self._is_compared = False
        """Whether the clock was ever compared with the home's."""
        self._try_at = _NEVER
        self._repeat_at = _NEVER
        """When to repeat the request that `stage` waits for, or to give up on it."""
        self._successor: str | None = None
        self._stops = False
        self._ahead: events.HomeRollbackSeen | None = None
        """What the home lost, until the home is known to be marked."""
        self._now = 0.0
        self._actions: list[actions.RoleAction] = []

    @property
    def term(self) -> Term | None:
        """The term of this server's lease; None without one."""
        return None if self._lease is None else self._lease.term

    @property
    def ahead(self) -> str:
        """What the copy has and the home lacks; empty if nothing is known to be missing."""
        return "" if (found := self._ahead) is None else _described(found)

    @property
    def wake_at(self) -> float:
        """The latest time for the next `Tick`."""
        if self.role is Role.FOLLOWING:
            return _NEVER if self.obstacles else self._try_at
        if self.role in (Role.PRIMARY, Role.TAKING_OVER):
            assert self._lease is not None
            return min(self._repeat_at, self._lease.renew_at, self._lease.held_until(self.times))
        return self._repeat_at

    def may_act(self, now: float) -> bool:
        """Whether this server may act as the primary at `now`, which may be later than the last event."""
        return self.role is Role.PRIMARY and self._lease is not None and now < self._lease.held_until(self.times)

    def held_for(self, now: float) -> float:
        """Seconds for which this server still counts on its lease; 0 without a lease, or after that time."""
        lease = self._lease
        return 0.0 if lease is None else max(0.0, lease.held_until(self.times) - now)

    def receive(self, event: events.RoleEvent, now: float) -> list[actions.RoleAction]:
        """The actions to take after this event, in order.

        Expiry is handled before the event, because a process that slept may get many events before the next `Tick`.
        Requests are repeated after the event, because it may be the answer.
        """
        self._now = max(self._now, now)
        if isinstance(event, events.LeaseRenewed) and self._holds(event.term):
            self._granted(event.sent_at)
        self._end_by_time()
        handle = _HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)
        self._ask_by_time()
        done, self._actions = self._actions, []
        return done

    # Time

    def _end_by_time(self) -> None:
        if (lease := self._held) is not None and self._now >= lease.held_until(self.times):
            self._step_down("the lease was not renewed in time")

    def _ask_by_time(self) -> None:
        now = self._now
        if (lease := self._held) is not None and now >= lease.renew_at:
            lease.renew_at = now + self.times.renewal_s
            self._actions.insert(0, actions.RenewLease(lease.term, now))  # before actions that may take long
        if self.role is Role.FOLLOWING:
            if not self.obstacles and now >= self._try_at:
                self._try()
        elif now < self._repeat_at:
            return
        elif self.role in (Role.PRIMARY, Role.TAKING_OVER):
            self._go_on() if self.stage is Stage.ENDING_SESSIONS else self._ask()
        elif self.stage is Stage.ENDING_COORDINATORS:
            self._release()
        elif self.stage is Stage.RELEASING:
            self._leave()
        elif self._ahead is not None:
            self._mark()

    @property
    def _held(self) -> Lease | None:
        """The lease that this server counts on as primary or while taking over."""
        return self._lease if self.role in (Role.PRIMARY, Role.TAKING_OVER) else None

    def _granted(self, sent_at: float) -> None:
        assert self._lease is not None
        self._lease.renewed(sent_at)

    # A replica, and the lease

    def _opened(self, _: events.CopyOpened) -> None:
        self._is_open = True
        if self.role is Role.STARTING:
            self._follow(0.0)

    def _closed(self, _: events.CopyClosed) -> None:
        self._is_open = False
        if self.role is Role.FOLLOWING:
            self._follow(0.0)
        elif self.role is Role.TAKING_OVER:
            self._step_down("the copy is closed")

    def _follow(self, pause_s: float) -> None:
        self.role = Role.FOLLOWING if self._is_open else Role.STARTING
        self.stage = self._lease = self._nonce = self._successor = None
        self._repeat_at = _NEVER
        self._try_at = self._now + pause_s + self._jitter()

    def _try(self) -> None:
        if self._nonce is None:
            self._nonce = self._rng.getrandbits(_NONCE_BITS)
        self._try_at = self._now + self.times.patience_s + self._jitter()
        self._do(actions.TryLease(self._nonce, self._now))

    def _lease_refused(self, event: events.LeaseRefused) -> None:
        self.holder = event.holder
        if self.role is Role.FOLLOWING:
            self._try_at = self._now + min(max(event.remaining_s, 0.0), self.times.length_s) + self._jitter()

    def _lease_offered(self, _: events.LeaseOffered) -> None:
        if self.role is Role.FOLLOWING and not self.obstacles:
            self._try()

    def _lease_got(self, event: events.LeaseGot) -> None:
        if self._holds(event.term):
            self._granted(event.sent_at)
            return
        is_wanted = self.role is Role.FOLLOWING and event.term[1] == self._nonce
        if not is_wanted or self.obstacles or not self._is_compared:
            # This server no longer wants the lease, and keeping it would make other servers wait.
            self._do(actions.ReleaseLease(event.term, None))
        elif self._now >= event.sent_at + self.times.held_s:
            self._try()
        else:
            self._take_over(event)

    def _clock_compared(self, event: events.ClockCompared) -> None:
        most = self.times.clock_off_max_s
        is_off = abs(event.off_s) - event.round_trip_s / 2 > most
        if event.round_trip_s > most and not is_off:
            return  # the answer took too long to decide whether the clock is off
        self._is_compared = True
        if is_off:
            self._obstruct(
                "clock-off", f"this clock is {event.off_s:+.1f} s off the home's, but at most {most:g} s are allowed"
            )
        else:
            self._remove("clock-off")

    def _copy_failed(self, event: events.CopyFailed) -> None:
        self._obstruct("copy-failed", event.why)

    def _copy_mended(self, _: events.CopyMended) -> None:
        self._remove("copy-failed")

    def _two_hosts_write(self, event: events.TwoHostsWrite) -> None:
        self._obstruct("two-hosts-write", event.why)

    def _one_host_writes(self, _: events.OneHostWrites) -> None:
        self._remove("two-hosts-write")

    def _obstruct(self, obstacle: str, why: str) -> None:
        if obstacle in self.obstacles:
            return
        self.obstacles.add(obstacle)
        self._do(actions.Tell(obstacle, why))
        if self.role in (Role.PRIMARY, Role.TAKING_OVER):
            self._step_down(why)

    def _remove(self, obstacle: str) -> None:
        if obstacle in self.obstacles:
            self.obstacles.remove(obstacle)
            self._do(actions.Tell(obstacle, OVER))

    # A takeover

    def _take_over(self, event: events.LeaseGot) -> None:
        self.role = Role.TAKING_OVER
        self.stage = Stage.ENDING_SESSIONS
        self._nonce = None
        self._lease = Lease(event.term, event.timeline, event.sent_at, event.sent_at + self.times.renewal_s)
        self._do(actions.Tell("taking-over", f"the lease was free; the term is {event.term[0]}"))
        self._ask()

    def _ask(self) -> None:
        """Send the request of the current stage of the takeover."""
        assert self._lease is not None
        term, timeline = self._lease.term, self._lease.timeline
        self._repeat_at = self._now + self.times.patience_s
        if self.stage is Stage.ENDING_SESSIONS:
            self._do(actions.EndSessions(term))
        elif self.stage is Stage.FENCING_JOURNAL:
            self._do(actions.FenceJournal(term, timeline))
        elif self.stage is Stage.FENCING_LOGS:
            self._do(actions.FenceLogs(term, timeline))
        elif self.stage is Stage.CATCHING_UP:
            self._do(actions.CatchUp(term))

    def _sessions_ended(self, event: events.SessionsEnded) -> None:
        self._advance(event.term, Stage.ENDING_SESSIONS)

    def _journal_fenced(self, event: events.JournalFenced) -> None:
        self._advance(event.term, Stage.FENCING_JOURNAL)

    def _logs_fenced(self, event: events.LogsFenced) -> None:
        self._advance(event.term, Stage.FENCING_LOGS)

    def _caught_up(self, event: events.CaughtUp) -> None:
        self._advance(event.term, Stage.CATCHING_UP)

    def _advance(self, term: Term, stage: Stage) -> None:
        if self._holds(term) and self.stage is stage:
            self._go_on()

    def _go_on(self) -> None:
        """Go on to the next stage of the takeover."""
        assert self._lease is not None and self.stage is not None
        if self.stage is Stage.CATCHING_UP:
            self.role, self.stage, self._repeat_at = Role.PRIMARY, None, _NEVER
            self._do(actions.AcceptAppends(self._lease.term, self._lease.timeline))
            self._do(actions.StartCoordinators(self._lease.term))
            self._do(actions.Tell("primary", f"the term is {self._lease.term[0]}"))
        else:
            self.stage = _NEXT[self.stage]
            self._ask()

    # The end of a role

    def _lease_lost(self, event: events.LeaseLost) -> None:
        if (lease := self._held) is not None and lease.term == event.term:
            self._step_down("the home no longer grants this lease")

    def _standbys_changed(self, event: events.StandbysChanged) -> None:
        if self._holds(event.term) and self.role in (Role.PRIMARY, Role.TAKING_OVER):
            self._step_down(event.why)

    def _foreign_term(self, event: events.ForeignTerm) -> None:
        if self._holds(event.mine):
            self._step_down(
                f"a head has term {event.found[0]} of another server, but this server's term is {event.mine[0]}"
            )

    def _hand_over_asked(self, event: events.HandOverAsked) -> None:
        if self.role is Role.PRIMARY:
            self._step_down(f"handed over to {event.successor}", event.successor)

    def _stop_asked(self, event: events.StopAsked) -> None:
        self._stops = True
        if self.role in (Role.PRIMARY, Role.TAKING_OVER):
            self._step_down("asked to stop", event.successor)
        elif self.role is not Role.STEPPING_DOWN:
            self._stop()

    def _step_down(self, why: str, successor: str | None = None) -> None:
        was_primary = self.role is Role.PRIMARY
        self.role, self._successor = Role.STEPPING_DOWN, successor
        self._do(actions.Tell("stepping-down", why))
        if was_primary:
            self._end_primary(why)
            self.stage = Stage.ENDING_COORDINATORS
            self._repeat_at = self._now + self.times.patience_s
        else:
            self._release()

    def _end_primary(self, why: str) -> None:
        self._do(actions.RefuseAppends(why))
        self._do(actions.StopCoordinators())

    def _coordinators_stopped(self, event: events.CoordinatorsStopped) -> None:
        """Give up the lease of a primary whose coordinators have ended, so that another server can take over."""
        is_own = event.term is not None and self._holds(event.term)
        if is_own and self.role in (Role.PRIMARY, Role.TAKING_OVER):
            self._step_down("this server has stopped its work as the primary")
        if self.stage is Stage.ENDING_COORDINATORS:
            self._release()

    def _release(self) -> None:
        """Release the lease first, before slower steps. A lease of another term is not touched."""
        assert self._lease is not None
        self.stage = Stage.RELEASING
        self._repeat_at = self._now + self.times.patience_s
        self._do(actions.ReleaseLease(self._lease.term, self._successor))

    def _lease_released(self, event: events.LeaseReleased) -> None:
        if self.stage is Stage.RELEASING and self._holds(event.term):
            self._leave()

    def _leave(self) -> None:
        successor = self._successor
        if successor is not None:
            self._do(actions.OfferLease(successor))
        if self._stops:
            self._stop()
        else:
            self._follow(0.0 if successor is None else self.times.length_s)

    def _stop(self) -> None:
        self.role = Role.STOPPED
        self.stage = self._lease = self._nonce = None
        self._repeat_at = _NEVER
        self._do(actions.Drain())

    # A home that went back

    def _home_changed(self, event: events.HomeChangeSeen) -> None:
        self._ahead = None  # Whatever the reason, the home gives no lease.
        self._repeat_at = _NEVER if self.role is Role.WENT_BACK else self._repeat_at
        self._give_up("home-changed", event.why)

    def _home_went_back(self, event: events.HomeRollbackSeen) -> None:
        if self.role is Role.WENT_BACK and self._ahead is not None:
            return
        if self._give_up("home-went-back", _described(event)) or self.role is Role.WENT_BACK:
            self._ahead = event
            self._mark()

    def _give_up(self, what: str, why: str) -> bool:
        if self.role not in (Role.STARTING, Role.FOLLOWING, Role.TAKING_OVER, Role.PRIMARY):
            return False
        if self.role is Role.PRIMARY:
            self._end_primary(why)
        self.role = Role.WENT_BACK
        self.stage = self._lease = self._nonce = None
        self._repeat_at = _NEVER
        self._do(actions.Tell(what, why))
        return True

    def _mark(self) -> None:
        assert self._ahead is not None
        self._repeat_at = self._now + self.times.patience_s
        self._do(actions.MarkHome(self._ahead.log, self._ahead.copy_head, self._ahead.home_head))

    def _home_accepted(self, _: events.HomeAccepted) -> None:
        if self.role is Role.WENT_BACK:
            self._ahead = None
            self._do(
                actions.Tell("home-accepted", "an operator accepted the state of the home, or it was proved complete")
            )
            self._follow(0.0)

    # The home, as far as this server reaches it

    def _home_unreachable(self, _: events.HomeUnreachable) -> None:
        self._do(actions.Tell("home-unreachable", "the home does not answer"))

    def _home_reachable(self, _: events.HomeReachable) -> None:
        self._do(actions.Tell("home-reachable", "the home answers"))
        if self.role is Role.FOLLOWING:
            self._try_at = min(self._try_at, self._now + self._jitter())

    # Small things

    def _holds(self, term: Term) -> bool:
        return self._lease is not None and self._lease.term == term

    def _jitter(self) -> float:
        return self._rng.random() * self.times.jitter_s

    def _do(self, action: actions.RoleAction) -> None:
        self._actions.append(action)


def _described(ahead: events.HomeRollbackSeen) -> str:
    return f"log {ahead.log}: the copy ends with {ahead.copy_head}, but its home ends with {ahead.home_head}"


_NEXT = {
    Stage.ENDING_SESSIONS: Stage.FENCING_JOURNAL,
    Stage.FENCING_JOURNAL: Stage.FENCING_LOGS,
    Stage.FENCING_LOGS: Stage.CATCHING_UP,
}

_HANDLERS: dict[type[Any], Callable[[Roles, Any], None]] = {
    events.CopyOpened: Roles._opened,
    events.CopyClosed: Roles._closed,
    events.ClockCompared: Roles._clock_compared,
    events.LeaseGot: Roles._lease_got,
    events.LeaseRefused: Roles._lease_refused,
    events.LeaseLost: Roles._lease_lost,
    events.StandbysChanged: Roles._standbys_changed,
    events.LeaseReleased: Roles._lease_released,
    events.SessionsEnded: Roles._sessions_ended,
    events.JournalFenced: Roles._journal_fenced,
    events.LogsFenced: Roles._logs_fenced,
    events.CaughtUp: Roles._caught_up,
    events.ForeignTerm: Roles._foreign_term,
    events.CopyFailed: Roles._copy_failed,
    events.CopyMended: Roles._copy_mended,
    events.TwoHostsWrite: Roles._two_hosts_write,
    events.OneHostWrites: Roles._one_host_writes,
    events.CoordinatorsStopped: Roles._coordinators_stopped,
    events.StopAsked: Roles._stop_asked,
    events.HandOverAsked: Roles._hand_over_asked,
    events.LeaseOffered: Roles._lease_offered,
    events.HomeUnreachable: Roles._home_unreachable,
    events.HomeReachable: Roles._home_reachable,
    events.HomeRollbackSeen: Roles._home_went_back,
    events.HomeChangeSeen: Roles._home_changed,
    events.HomeAccepted: Roles._home_accepted,
}
