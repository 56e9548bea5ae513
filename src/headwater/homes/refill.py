"""Refilling a home that went back: what only the copy of a stopped server has is committed again, with its numbers.

That is possible where the copy continues the log of the home, for every log and for the journal. All goes through the
commit of any server, in a term of its own. The home is marked from before the first frame until after the last, and so
gives no lease. A refill that was interrupted is repeated: it goes on where the home ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..core.errors import NotPrimary, StorageUnavailable
from ..storage.catalog.incarnations import losses_to_heed
from ..storage.frames.frame_log import HeadMoved
from ..storage.home.port import History
from ..storage.home.surplus import Surplus, add
from .postgres.home import PostgresHome
from .postgres.hosts import both_write
from .postgres.lease import LeaseStanding
from .postgres.members import Member
from .stopped_copy import StoppedCopy

_MARK = "a refill from the copy of "
"""How the mark of a home begins while nothing was committed since it went back but by refills."""
_UNFINISHED = _MARK + "{} has not ended: repeat headwater home refill there"
_UNPROVED = _MARK + (
    "{} has ended, but another copy may have more: this one did not hold the newest term, or cannot prove that it has "
    "all of it"
)


class Refilled(NamedTuple):
    """What a refill did."""

    added: list[Surplus]
    """The events that were committed again, by log."""
    obstacle: str
    """Why the home gives no lease yet; empty: it does."""


def refill(home: PostgresHome, directory: Path, server: str) -> Refilled:
    """Commit again what that copy has beyond its home. `server`: whose copy it is, where the home does not know that.

    The mark goes if the copy has all of the newest term that is known. Raises StorageUnavailable: it is not possible,
    and why; StorageCorrupted.
    """
    with StoppedCopy(home, directory) as copy:
        server = next((each.name for each in home.members() if each.evidence.id == copy.id), server)
        mark = _UNFINISHED.format(server)
        found, standing = copy.surplus(), home.standing()
        proves = _has_newest(copy, standing)
        is_stopped = bool(standing.went_back or standing.contradiction)
        if not found and not (is_stopped and (proves or standing.went_back == mark)):
            return Refilled([], standing.obstacle)
        _refuse(copy, found)
        _begin(copy, server, mark, proves=proves)
        try:
            for each in copy.surplus():
                add(each)
        except (HeadMoved, NotPrimary):
            raise StorageUnavailable("another server or refill took the home meanwhile; run this again") from None
        compared = _end(copy, proves=proves)
    if (evidence := copy.witness.evidence()) is not None:
        home.enter_member(Member(server, evidence, compared))
    home.end_refill("" if proves else _UNPROVED.format(server))
    return Refilled(found, home.standing().obstacle)


def _refuse(copy: StoppedCopy, found: Sequence[Surplus]) -> None:
    """Raises StorageUnavailable where a refill would be wrong."""
    home = copy.home
    if losses_to_heed(copy.engine.state, home) is not None:
        raise StorageUnavailable("the loss was accepted already: the logs of the home are new incarnations since")
    standing = home.standing()
    if standing.is_vouched and standing.remaining_s:
        problem = f"{standing.holder or 'a server'} has the lease of this home, for {standing.remaining_s:.1f} s more"
        raise StorageUnavailable(f"{problem}: stop it")
    for each in home.servers():
        if each.runs:  # it would say that its copy was compared with what the home has after this
            raise StorageUnavailable(f"the server {each.name} runs: stop all servers, and start them after this")
    if (why := both_write(home.writable_hosts()[0])) is not None:
        raise StorageUnavailable(why)
    apart = [each for each in found if not each.continues]
    if apart:
        raise StorageUnavailable(
            f"the home goes on with other events than this copy: {'; '.join(map(_apart, apart))}; so nothing was "
            "committed. Bring back the database that has it all, or export what only this copy has, and go on without "
            "it: headwater home accept-loss --data"
        )


def _begin(copy: StoppedCopy, server: str, mark: str, *, proves: bool) -> None:
    """Begin the term of the refill. `proves`: the copy has all of the newest term before it."""
    home, evidence = copy.home, copy.witness.evidence()
    granted = home.begin_refill(server, mark, 0 if evidence is None else max(evidence.seen, evidence.held).number)
    if granted is None:
        raise StorageUnavailable("a server took the lease of this home just now: stop it, and run this again")
    if proves:  # before the fence: nothing is committed in that term yet, so the copy has all of it
        copy.witness.hold(granted.term)
    home.fence(granted)


def _has_newest(copy: StoppedCopy, standing: LeaseStanding) -> bool:
    """Whether a copy has all of the newest term that any member has seen.

    The term of an earlier refill may have been seen: what that one committed was in a copy, and is in this one too,
    since it goes on from there. It follows the newest term that was known then, so that one must be this copy's.
    """
    evidence, members = copy.witness.evidence(), copy.home.members()
    if evidence is None or not evidence.is_whole:
        return False
    held, seen = evidence.held, {evidence.seen, *(each.evidence.seen for each in members)}
    if standing.went_back.startswith(_MARK) and standing.term.number == held.number + 1:
        seen.discard(standing.term)
    known = seen.union(each.evidence.held for each in members)
    return all(term == held or term.number < held.number for term in known)


def _end(copy: StoppedCopy, *, proves: bool) -> History:
    """Compare the copy with the home, which is like it now; answers with which history of the home."""
    follower = copy.engine.follower
    assert follower is not None
    if proves:
        copy.engine.begin_term()
    else:
        follower.follow()
    return follower.compared


def _apart(found: Surplus) -> str:
    end = "is not there" if found.home_head is None else f"ends with {found.home_head.number} there"
    return f"log {found.name} {end}, and the copy alone has {found.size} behind {found.after}, up to {found.last}"
