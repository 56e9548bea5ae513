"""What a server's role is told: what `Roles.receive` takes.

Times are seconds of the caller's clock that counts sleep.
"""

from __future__ import annotations

from dataclasses import dataclass

from .lease import Term


@dataclass(frozen=True, slots=True)
class RoleEvent:
    """Anything that may happen to a role."""


@dataclass(frozen=True, slots=True)
class CopyOpened(RoleEvent):
    """The copy is open, and has what its home had when it was. It may be behind by now."""


@dataclass(frozen=True, slots=True)
class CopyClosed(RoleEvent):
    """The copy is being closed: until `CopyOpened`, others can go on sooner."""


@dataclass(frozen=True, slots=True)
class Tick(RoleEvent):
    """Time passed. `Roles.wake_at` says when this is wanted at the latest; more often does no harm."""


@dataclass(frozen=True, slots=True)
class ClockCompared(RoleEvent):
    """The home told its time."""

    off_s: float
    """This server's time of day less the home's, as if the home had answered in the middle of the round trip."""
    round_trip_s: float
    """So the difference is known to half of that."""


@dataclass(frozen=True, slots=True)
class LeaseGot(RoleEvent):
    """The home gave the lease that `TryLease` asked for. Another answer to the same nonce may have come before."""

    term: Term
    """Its nonce is that of `TryLease`."""
    timeline: int
    """Which history the home writes: another number says that a standby was promoted, or a backup restored."""
    sent_at: float
    """That of the `TryLease` which is answered."""


@dataclass(frozen=True, slots=True)
class LeaseRefused(RoleEvent):
    """Another has the lease."""

    holder: str
    """The name of that server."""
    remaining_s: float
    """For how long, by the home's clock, unless it is renewed."""


@dataclass(frozen=True, slots=True)
class LeaseRenewed(RoleEvent):
    """The home granted `RenewLease`."""

    term: Term
    sent_at: float
    """That of the `RenewLease` which is answered."""


@dataclass(frozen=True, slots=True)
class LeaseLost(RoleEvent):
    """The home did not grant `RenewLease`: another has the lease, or the home forgot that it gave it."""

    term: Term


@dataclass(frozen=True, slots=True)
class StandbysChanged(RoleEvent):
    """Commits do not wait for the standbys any more that they waited for when this term began."""

    term: Term
    why: str


@dataclass(frozen=True, slots=True)
class LeaseReleased(RoleEvent):
    """`ReleaseLease` was done, or was not needed any more."""

    term: Term


@dataclass(frozen=True, slots=True)
class SessionsEnded(RoleEvent):
    """The home ended what it could of the other servers' sessions. It may have been nothing."""

    term: Term


@dataclass(frozen=True, slots=True)
class JournalFenced(RoleEvent):
    """The head row of `$state` has this term now."""

    term: Term


@dataclass(frozen=True, slots=True)
class LogsFenced(RoleEvent):
    """The head rows of all logs have this term now; where they end was told to whoever catches up."""

    term: Term


@dataclass(frozen=True, slots=True)
class CaughtUp(RoleEvent):
    """The copy reaches every head that the fence found, `$state` included.

    The home was asked for it after the fence: an older answer may lack what the fence found.
    """

    term: Term


@dataclass(frozen=True, slots=True)
class ForeignTerm(RoleEvent):
    """The home refused something that was asked under a term, because a head row has another.

    It is told once it is known that the frame is not there: what was found to be there was committed.
    """

    mine: Term
    """Under which it was asked."""
    found: Term


@dataclass(frozen=True, slots=True)
class CopyFailed(RoleEvent):
    """The copy cannot be written: what was committed is answered, and nothing more is taken."""

    why: str


@dataclass(frozen=True, slots=True)
class CopyMended(RoleEvent):
    """The copy can be written again."""


@dataclass(frozen=True, slots=True)
class TwoHostsWrite(RoleEvent):
    """Two databases take writes at the address of the home: another server may append to the other one."""

    why: str


@dataclass(frozen=True, slots=True)
class OneHostWrites(RoleEvent):
    """That is over."""


@dataclass(frozen=True, slots=True)
class CoordinatorsStopped(RoleEvent):
    """Nothing that `StartCoordinators` started does anything any more. They may have ended by themselves, because
    `may_act` said that their time was over: then that is the end of the role too, whatever the home grants late."""

    term: Term | None = None
    """Of which term they were; None: none had begun."""


@dataclass(frozen=True, slots=True)
class StopAsked(RoleEvent):
    """Stop in order."""

    successor: str | None = None
    """The server that should go on: one that follows closely, and has no obstacle to take the lease."""


@dataclass(frozen=True, slots=True)
class HandOverAsked(RoleEvent):
    """Give the lease away, and follow."""

    successor: str
    """As for `StopAsked`. If it does not take the lease, nobody appends for as long as one lasts."""


@dataclass(frozen=True, slots=True)
class LeaseOffered(RoleEvent):
    """The primary released its lease for this server: it says so itself, so that nobody has to wait for a clock."""


@dataclass(frozen=True, slots=True)
class HomeUnreachable(RoleEvent):
    """The home does not answer."""


@dataclass(frozen=True, slots=True)
class HomeReachable(RoleEvent):
    """The home answers again."""


@dataclass(frozen=True, slots=True)
class HomeRollbackSeen(RoleEvent):
    """The copy has what its home does not have: the home forgot it.

    Compared is what the copy had when it asked, since it may have grown while the answer was under way, and what a
    standby is known to have: what nobody confirmed is cut from a copy in silence.
    """

    log: str
    copy_head: int
    home_head: int


@dataclass(frozen=True, slots=True)
class HomeChangeSeen(RoleEvent):
    """The home writes another history than the one that was accepted, or a server marked it as gone back.

    It is not proved that it lacks nothing.
    """

    why: str = "the home's history is not the one that was accepted"


@dataclass(frozen=True, slots=True)
class HomeAccepted(RoleEvent):
    """A person accepted what the home has (`headwater home accept-loss`), and the copy is not ahead of it."""
