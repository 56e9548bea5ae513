"""Actions that `Roles.receive` returns. The caller executes them in order.

Each action is one request to the home or to this process; a retry is another action. All actions can be repeated, and
none waits for the previous one unless its docstring says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from .lease import Term


@dataclass(frozen=True, slots=True)
class RoleAction:
    """Base class of all actions."""


@dataclass(frozen=True, slots=True)
class TryLease(RoleAction):
    """Ask the home for the lease. Answered by `LeaseGot`, `LeaseRefused` or `HomeChangeSeen`.

    If the newest lease has this nonce already, the home grants the same lease again, and its time starts over.
    Otherwise the home grants a lease with the next number if `LeaseTimes.is_free`, or if it was released for this
    server.
    """

    nonce: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class RenewLease(RoleAction):
    """Extend the lease from now on. Answered by `LeaseRenewed`, `LeaseLost` or `HomeChangeSeen`."""

    term: Term
    sent_at: float


@dataclass(frozen=True, slots=True)
class ReleaseLease(RoleAction):
    """Release the lease at the home if it still belongs to this term. Answered by `LeaseReleased`.

    If there is a `successor`, only that server gets the next lease, for as long as a lease lasts.
    """

    term: Term
    successor: str | None


@dataclass(frozen=True, slots=True)
class OfferLease(RoleAction):
    """Send `LeaseOffered` directly to the successor."""

    successor: str


@dataclass(frozen=True, slots=True)
class EndSessions(RoleAction):
    """End the database sessions of other servers, where the database permits it. Answered by `SessionsEnded`."""

    term: Term


@dataclass(frozen=True, slots=True)
class FenceJournal(RoleAction):
    """Write this term into the head row of `$state` by a separate statement.

    It replaces only terms with a lower number, and only on this timeline. Answered by `JournalFenced` or `ForeignTerm`.
    """

    term: Term
    timeline: int


@dataclass(frozen=True, slots=True)
class FenceLogs(RoleAction):
    """Write this term into the head rows of all other logs and read where each log ends.

    It does so only while the head row of `$state` has this term. It replaces only terms with a lower number, and only
    on this timeline. Answered by `LogsFenced` or `ForeignTerm`.
    """

    term: Term
    timeline: int


@dataclass(frozen=True, slots=True)
class CatchUp(RoleAction):
    """Replicate up to the heads that the fence found. Answered by `CaughtUp` or `HomeRollbackSeen`.

    Repeating it does not start a second catch-up.
    """

    term: Term


@dataclass(frozen=True, slots=True)
class AcceptAppends(RoleAction):
    """Accept appends, checking `Roles.may_act` before each group, and commit them in this term, on this timeline."""

    term: Term
    timeline: int


@dataclass(frozen=True, slots=True)
class RefuseAppends(RoleAction):
    """Accept no more appends. The outcome of commits already sent is still looked up until it is known, in any role."""

    why: str


@dataclass(frozen=True, slots=True)
class StartCoordinators(RoleAction):
    """Start webhooks, consumer groups and retention. Each checks `Roles.may_act` before each step."""

    term: Term


@dataclass(frozen=True, slots=True)
class StopCoordinators(RoleAction):
    """Stop the coordinators. Answered by `CoordinatorsStopped` once all have ended."""


@dataclass(frozen=True, slots=True)
class MarkHome(RoleAction):
    """Mark the home as rolled back: it grants no lease until an operator accepts that."""

    log: str
    copy_head: int
    home_head: int


@dataclass(frozen=True, slots=True)
class Drain(RoleAction):
    """Close all connections and end the process. Another server may hold the lease by now."""


@dataclass(frozen=True, slots=True)
class Tell(RoleAction):
    """Report something to operators: an event and a log line."""

    what: str
    why: str
