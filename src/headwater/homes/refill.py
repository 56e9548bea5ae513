"""Refilling a home that went back: what only the copy of a stopped server has is committed again, with its numbers.

That is possible where the copy continues the log of the home, for every log and for the journal. All goes through the
commit of any server, in a term of its own. The home is marked from before the first frame until after the last, and so
gives no lease. A refill that was interrupted is repeated: it goes on where the home ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..core.errors import NotPrimary, StorageUnavailable
from ..storage.catalog.incarnations import losses_heeded, losses_to_heed
from ..storage.frames.frame_log import HeadMoved
from ..storage.home.surplus import Surplus, add
from .postgres.home import PostgresHome
from .postgres.hosts import both_write
from .postgres.lease import LeaseStanding
from .postgres.marks import ENDED, MOVING, REFILL, REFILLING, REVIVING, UNPROVED
from .postgres.members import Member
from .stopped_copy import StoppedCopy

Progress = Callable[[str, int, int], None]
"""Gets the name of a log, the number of its events to commit, and how many are committed."""


class Refilled(NamedTuple):
    """What a refill did."""

    added: list[Surplus]
    """The events that were committed again, by log."""
    obstacle: str
    """Why the home gives no lease yet; empty: it does."""


def untold(log: str, total: int, done: int) -> None:
    """Ignore the progress."""


def refill(home: PostgresHome, directory: Path, server: str) -> Refilled:
    """Commit again what that copy has beyond its home. `server`: whose copy it is, where the home does not know that.

    The mark goes if the copy has all of the newest term that is known. Raises StorageUnavailable: it is not possible,
    and why; StorageCorrupted.
    """
    with StoppedCopy(home, directory) as copy:
        server = copy.server or server
        mark = REFILLING.format(server)
        found, standing = copy.surplus(), home.standing()
        proves = has_newest(copy, standing)
        is_stopped = bool(standing.went_back or standing.contradiction)
        if standing.went_back.startswith((ENDED, MOVING, REVIVING)):
            raise StorageUnavailable(standing.went_back)
        if not found and not (is_stopped and (proves or standing.went_back == mark)):
            return Refilled([], standing.obstacle)
        if losses_to_heed(copy.engine.state, home) is not None:
            raise StorageUnavailable("the loss was accepted already: the logs of the home are new incarnations since")
        fill(copy, server, mark, found, proves=proves)
    return Refilled(found, home.standing().obstacle)


def fill(
    copy: StoppedCopy,
    server: str,
    mark: str,
    found: Sequence[Surplus],
    *,
    proves: bool,
    told: Progress = untold,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Commit everything `found` beyond the home, in a term of its own in which the home has that mark; close the copy.

    `proves`: the copy has all of the newest term before. Then it becomes the member that can prove that the home has
    all, and the mark goes. `before` is called in that term before the first frame, `after` behind the last one.
    Raises StorageUnavailable, StorageCorrupted: the mark stays, and all of this can be repeated.
    """
    home = copy.home
    refuse_others(home)
    _refuse_apart(found)
    begin(copy, server, mark, holds=proves)
    try:
        before()
        for each in copy.surplus():
            add(each, partial(told, each.name, each.size))
        compared = copy.end(takes_over=proves)
        after()
    except (HeadMoved, NotPrimary):
        raise StorageUnavailable("another server or command took the home meanwhile; run this again") from None
    copy.close()
    if (evidence := copy.witness.evidence()) is not None:
        home.enter_member(Member(server, evidence, compared))
    home.end_marked("" if proves else UNPROVED.format(server))


def refuse_others(home: PostgresHome) -> None:
    """Raises StorageUnavailable while somebody else may write to the home, or looks at it."""
    standing = home.standing()
    if standing.is_vouched and standing.remaining_s:
        problem = f"{standing.holder or 'a server'} has the lease of this home, for {standing.remaining_s:.1f} s more"
        raise StorageUnavailable(f"{problem}: stop it")
    for each in home.servers():
        if each.runs:  # it would say that its copy was compared with what the home has after this
            raise StorageUnavailable(f"the server {each.name} runs: stop all servers, and start them after this")
    if (why := both_write(home.writable_hosts()[0])) is not None:
        raise StorageUnavailable(why)


def begin(copy: StoppedCopy, server: str, mark: str, *, holds: bool) -> None:
    """Begin a term of this command, in which the home has that mark. `holds`: the copy has all of the newest term.

    Raises StorageUnavailable.
    """
    home, evidence = copy.home, copy.witness.evidence()
    seen = 0 if evidence is None else max(evidence.seen, evidence.held).number
    granted = home.begin_marked(server, mark, max(seen, copy.newest_epoch()), losses_heeded(copy.engine.state))
    if granted is None:
        raise StorageUnavailable("a server took the lease of this home just now: stop it, and run this again")
    if holds:  # before the fence: nothing is committed in that term yet, so the copy has all of it
        copy.witness.hold(granted.term)
    home.fence(granted)


def has_newest(copy: StoppedCopy, standing: LeaseStanding) -> bool:
    """Whether a copy has all of the newest term that any member has seen.

    The term of an earlier refill may have been seen: what that one committed was in a copy, and is in this one too,
    since it goes on from there. It follows the newest term that was known then, so that one must be this copy's.
    """
    evidence, members = copy.witness.evidence(), copy.home.members()
    if evidence is None or not evidence.is_whole:
        return False
    held, seen = evidence.held, {evidence.seen, *(each.evidence.seen for each in members)}
    if standing.went_back.startswith(REFILL) and standing.term.number == held.number + 1:
        seen.discard(standing.term)
    known = seen.union(each.evidence.held for each in members)
    return all(term == held or term.number < held.number for term in known)


def _refuse_apart(found: Sequence[Surplus]) -> None:
    """Raises StorageUnavailable where the home goes on with other events than the copy."""
    apart = [each for each in found if not each.continues]
    if apart:
        raise StorageUnavailable(
            f"the home goes on with other events than this copy: {'; '.join(map(_apart, apart))}; so nothing was "
            "committed. Bring back the database that has it all, or export what only this copy has, and go on without "
            "it: headwater home accept-loss --data"
        )


def _apart(found: Surplus) -> str:
    end = "is not there" if found.home_head is None else f"ends with {found.home_head.number} there"
    return f"log {found.name} {end}, and the copy alone has {found.size} behind {found.after}, up to {found.last}"
