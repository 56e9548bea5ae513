"""Events that `Roles.receive` takes.

Times are seconds of the caller's clock, which must count time asleep.
"""

from __future__ import annotations

from dataclasses import dataclass

from .lease import Term


@dataclass(frozen=True, slots=True)
class RoleEvent:
    """Base class of all events."""


@dataclass(frozen=True, slots=True)
class CopyOpened(RoleEvent):
    """The copy is open and has all that its home had when it was opened. It may be behind by now."""


@dataclass(frozen=True, slots=True)
class CopyClosed(RoleEvent):
    """The copy is being closed. Until `CopyOpened`, other servers can take over sooner."""


@dataclass(frozen=True, slots=True)
class Tick(RoleEvent):
    """Time passed. The next one is due by `Roles.wake_at`; more of them do no harm."""


@dataclass(frozen=True, slots=True)
class ClockCompared(RoleEvent):
    """The clocks of this server and of the home were compared."""

    off_s: float
    """This server's time of day minus the home's, if the home read its clock in the middle of the round trip."""
    round_trip_s: float
    """The round trip, in seconds; `off_s` is accurate to half of it."""


@dataclass(frozen=True, slots=True)
class LeaseGot(RoleEvent):
    """The home granted the lease that `TryLease` asked for. The same nonce may have been answered before."""

    term: Term
    """The term. Its nonce is the one of `TryLease`."""
    timeline: int
    """The timeline that the home writes. It changes when a standby is promoted or a backup restored."""
    sent_at: float
    """`sent_at` of the `TryLease` that is answered."""


@dataclass(frozen=True, slots=True)
class LeaseRefused(RoleEvent):
    """Another server has the lease."""

    holder: str
    """The name of that server."""
    remaining_s: float
    """Seconds until its lease expires by the home's clock, unless it renews the lease."""


@dataclass(frozen=True, slots=True)
class LeaseRenewed(RoleEvent):
    """The home granted `RenewLease`."""

    term: Term
    sent_at: float
    """`sent_at` of the `RenewLease` that is answered."""


@dataclass(frozen=True, slots=True)
class LeaseLost(RoleEvent):
    """The home refused `RenewLease`: another server has the lease, or the home lost the record of this one."""

    term: Term


@dataclass(frozen=True, slots=True)
class StandbysChanged(RoleEvent):
    """Commits no longer wait for the standbys that they waited for when this term began."""

    term: Term
    why: str


@dataclass(frozen=True, slots=True)
class LeaseReleased(RoleEvent):
    """`ReleaseLease` was executed, or was no longer needed."""

    term: Term


@dataclass(frozen=True, slots=True)
class SessionsEnded(RoleEvent):
    """The home ended those sessions of other servers that it could. There may have been none."""

    term: Term


@dataclass(frozen=True, slots=True)
class JournalFenced(RoleEvent):
    """The head row of `$state` now has this term."""

    term: Term


@dataclass(frozen=True, slots=True)
class LogsFenced(RoleEvent):
    """The head rows of all logs now have this term, and the heads were passed on for catching up."""

    term: Term


@dataclass(frozen=True, slots=True)
class CaughtUp(RoleEvent):
    """The copy reaches every head that the fence found, `$state` included.

    The events were read after the fence: an older read may lack some of them.
    """

    term: Term


@dataclass(frozen=True, slots=True)
class ForeignTerm(RoleEvent):
    """The home refused a request of this term, because a head row has another term.

    For a commit, it is sent only once it is known that the frame is not in the home: a frame that is there was
    committed.
    """

    mine: Term
    """The term of the request."""
    found: Term


@dataclass(frozen=True, slots=True)
class CopyFailed(RoleEvent):
    """The copy cannot be written. Committed appends are answered, and no more are accepted."""

    why: str


@dataclass(frozen=True, slots=True)
class CopyMended(RoleEvent):
    """The copy can be written again."""


@dataclass(frozen=True, slots=True)
class TwoHostsWrite(RoleEvent):
    """Two databases accept writes at the address of the home. Another server may append to the other one."""

    why: str


@dataclass(frozen=True, slots=True)
class OneHostWrites(RoleEvent):
    """Only one database accepts writes again."""


@dataclass(frozen=True, slots=True)
class CoordinatorsStopped(RoleEvent):
    """All that `StartCoordinators` started has ended.

    Coordinators also end by themselves when `may_act` is false. That ends the role too, even if the home grants a
    renewal later.
    """

    term: Term | None = None
    """The term of the coordinators; None if none had started."""


@dataclass(frozen=True, slots=True)
class StopAsked(RoleEvent):
    """Shut down gracefully."""

    successor: str | None = None
    """The server that should take over: a replica that is caught up and can take the lease."""


@dataclass(frozen=True, slots=True)
class HandOverAsked(RoleEvent):
    """Hand the lease over and become a replica."""

    successor: str
    """As for `StopAsked`. If it does not take the lease, no server appends for the length of a lease."""


@dataclass(frozen=True, slots=True)
class LeaseOffered(RoleEvent):
    """The primary released its lease for this server and says so directly, so that this server need not wait."""


@dataclass(frozen=True, slots=True)
class HomeUnreachable(RoleEvent):
    """The home does not answer."""


@dataclass(frozen=True, slots=True)
class HomeReachable(RoleEvent):
    """The home answers again."""


@dataclass(frozen=True, slots=True)
class HomeRollbackSeen(RoleEvent):
    """The copy has events that its home lost.

    The comparison uses the head that the copy had when it asked, since the copy may grow before the answer, and only
    events that a standby confirmed. Unconfirmed events are removed from a copy without this event.
    """

    log: str
    copy_head: int
    home_head: int


@dataclass(frozen=True, slots=True)
class HomeChangeSeen(RoleEvent):
    """The home writes another history than the accepted one, or a server marked the home as rolled back.

    There is no proof that the home is complete.
    """

    why: str = "the home's history differs from the accepted one"


@dataclass(frozen=True, slots=True)
class HomeAccepted(RoleEvent):
    """An operator accepted the state of the home (`headwater home accept-loss`), and the copy is not ahead of it."""
