"""Refills a home that was rolled back: events that only a stopped server's copy has are committed again, with their
numbers.

This requires that the copy continues every log of the home and the journal. The refill uses the servers' commit, in a
separate term. The home is marked from before the first frame until after the last one, so it grants no lease. If the
refill is interrupted, repeating it continues where the home ends.
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
"""Called with the name of a log, the number of events to commit, and the number committed so far."""


class Refilled(NamedTuple):
    """The result of a refill."""

    added: list[Surplus]
    """The recommitted events, by log."""
    obstacle: str
    """Why the home grants no lease yet; empty if it does."""


def untold(log: str, total: int, done: int) -> None:
    """Ignore progress."""


def refill(home: PostgresHome, directory: Path, server: str) -> Refilled:
    """Recommit the events that the copy has and its home lacks. `server`: the copy's server if the home does not know.

    The mark is removed if the copy has all of the newest known term. Raises StorageUnavailable with the reason if this
    is not possible; StorageCorrupted.
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
            raise StorageUnavailable("the loss was already accepted: all logs of the home have new incarnations")
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
    """Commit `found` to the home in a separate term, during which the home has that mark, and close the copy.

    `proves`: the copy has all of the newest earlier term. Then its member can prove that the home is complete, and the
    mark is removed. `before` is called in that term before the first frame, `after` after the last one. Raises
    StorageUnavailable, StorageCorrupted; the mark stays, and this can be repeated.
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
        raise StorageUnavailable(
            "another server or command took the lease of the home in the meantime; run this command again"
        ) from None
    copy.close()
    if (evidence := copy.witness.evidence()) is not None:
        home.enter_member(Member(server, evidence, compared))
    home.end_marked("" if proves else UNPROVED.format(server))


def refuse_others(home: PostgresHome) -> None:
    """Raise StorageUnavailable if another server may write to the home or runs."""
    standing = home.standing()
    if standing.is_vouched and standing.remaining_s:
        problem = (
            f"{standing.holder or 'a server'} holds the lease of this home for another {standing.remaining_s:.1f} s"
        )
        raise StorageUnavailable(f"{problem}: stop it, or wait that long if it is stopped, then run this command again")
    for each in home.servers():
        if each.runs:  # it could record a comparison with the home as it is only after this
            raise StorageUnavailable(
                f"server {each.name} is running; stop all servers, and start them again after this command"
            )
    if (why := both_write(home.writable_hosts()[0])) is not None:
        raise StorageUnavailable(why)


def begin(copy: StoppedCopy, server: str, mark: str, *, holds: bool) -> None:
    """Begin a term for this command, during which the home has that mark. `holds`: the copy has all of the newest term.

    Raises StorageUnavailable.
    """
    home, evidence = copy.home, copy.witness.evidence()
    seen = 0 if evidence is None else max(evidence.seen, evidence.held).number
    granted = home.begin_marked(server, mark, max(seen, copy.newest_epoch()), losses_heeded(copy.engine.state))
    if granted is None:
        raise StorageUnavailable("a server has just taken the lease of this home; stop it, and run this command again")
    if holds:  # before the fence nothing is committed in that term, so the copy has all of it
        copy.witness.hold(granted.term)
    home.fence(granted)


def has_newest(copy: StoppedCopy, standing: LeaseStanding) -> bool:
    """Whether a copy has all of the newest term that any member has seen.

    Members may have seen the term of an earlier refill. Its events came from a copy, and this copy has them too, since
    it continues the home. That term directly follows the newest term known then, which this copy must hold.
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
    """Raise StorageUnavailable if the home continues with other events than the copy."""
    apart = [each for each in found if not each.continues]
    if apart:
        raise StorageUnavailable(
            f"the home and this copy contain different events: {'; '.join(map(_apart, apart))}; nothing "
            "was committed. Restore the complete database, or export the events that only this copy contains, and "
            "continue without it: headwater home accept-loss --data"
        )


def _apart(found: Surplus) -> str:
    end = "is missing from the home" if found.home_head is None else f"ends with {found.home_head.number} in the home"
    more = f"the {found.size} entries after {found.after}, up to {found.last}"
    return f"log {found.name} {end}, and only the copy contains {more}"
