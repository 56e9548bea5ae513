"""What a server's role asks for: what `Roles.receive` answers, to be done in this order.

Each asks the home, or this process, once; what must be asked again comes as another action. So all of them can be
repeated, and none waits for the one before it unless it says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from .lease import Term


@dataclass(frozen=True, slots=True)
class RoleAction:
    """Anything that a role asks for."""


@dataclass(frozen=True, slots=True)
class TryLease(RoleAction):
    """Ask the home for the lease: `LeaseGot`, `LeaseRefused` or `HomeChanged` tell.

    If the home gave a lease to this nonce already and no other since, it says so and the lease begins again.
    Else it gives one if `LeaseTimes.is_free`, or if it was released for this server, with the next number.
    """

    nonce: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class RenewLease(RoleAction):
    """Ask the home for the same lease from now on: `LeaseRenewed`, `LeaseLost` or `HomeChanged` tell."""

    term: Term
    sent_at: float


@dataclass(frozen=True, slots=True)
class ReleaseLease(RoleAction):
    """End the lease at the home if it is of this term still: `LeaseReleased` tells.

    Until a lease's length later only `successor` gets one, where there is one.
    """

    term: Term
    successor: str | None


@dataclass(frozen=True, slots=True)
class OfferLease(RoleAction):
    """Tell that server, directly: `LeaseOffered`."""

    successor: str


@dataclass(frozen=True, slots=True)
class EndSessions(RoleAction):
    """End the sessions of others at the home, as far as it can: `SessionsEnded`."""

    term: Term


@dataclass(frozen=True, slots=True)
class FenceJournal(RoleAction):
    """Put this term into the head row of `$state`, in a statement of its own: `JournalFenced`, or `ForeignTerm`.

    Only over terms of a lower number, and only on this timeline.
    """

    term: Term
    timeline: int


@dataclass(frozen=True, slots=True)
class FenceLogs(RoleAction):
    """Put this term into the head rows of all other logs, and learn where each ends: `LogsFenced`, or `ForeignTerm`.

    Only while the head row of `$state` has this term, only over terms of a lower number, and only on this timeline.
    """

    term: Term
    timeline: int


@dataclass(frozen=True, slots=True)
class CatchUp(RoleAction):
    """Bring the copy to where the fence found the logs: `CaughtUp`, or `HomeWentBack`.

    A repetition asks for nothing that is under way.
    """

    term: Term


@dataclass(frozen=True, slots=True)
class AcceptAppends(RoleAction):
    """Judge appends, each group after `Roles.may_act`; commit them under this term, on this timeline."""

    term: Term
    timeline: int


@dataclass(frozen=True, slots=True)
class RefuseAppends(RoleAction):
    """Judge no more. What may have been sent to the home is asked about until it is known, whatever the role."""

    why: str


@dataclass(frozen=True, slots=True)
class StartCoordinators(RoleAction):
    """Start webhooks, groups, retention. Each asks `Roles.may_act` before each thing that it does."""

    term: Term


@dataclass(frozen=True, slots=True)
class StopCoordinators(RoleAction):
    """Stop them; `CoordinatorsStopped` tells when nothing is done any more."""


@dataclass(frozen=True, slots=True)
class MarkHome(RoleAction):
    """Write into the home that it went back: it gives no lease until a person accepted that."""

    log: str
    copy_head: int
    home_head: int


@dataclass(frozen=True, slots=True)
class Drain(RoleAction):
    """End what is still served, and the process: another may have the lease by now."""


@dataclass(frozen=True, slots=True)
class Tell(RoleAction):
    """Something that an operator is to know: an event and a line of the log."""

    what: str
    why: str
