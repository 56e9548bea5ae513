"""Moves a data directory into a home, where it becomes the first copy, and a copy out of a home again.

Frames, numbers, incarnations and the state stay the same; only the place of commits changes. At any time at most one of
the two can append: the home is marked during a move, and the directory has a COPY file from before the home gets the
first frame until after the home has ended. An interrupted move can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..core.errors import StorageUnavailable
from ..storage import Engine
from ..storage.catalog.history import keep_history
from ..storage.disk.locks import unserved
from ..storage.disk.system import refusing, sync_tree
from ..storage.home.copy_file import mark_copy, read_mark, remove_mark
from ..storage.home.replicated_log import ReplicatedLog
from ..storage.home.witness import HELD_NAME
from ..storage.segments.meta import HISTORY, Meta, read_meta
from ..storage.segments.segment_log import SegmentLog
from ..storage.staging.home import fetch_begun, keep_begun
from ..storage.state.data_directory import has_data
from ..storage.state.journal import JOURNAL, NAME
from .comparison import Compared, compare
from .last_lease import NAME as LEASE_NAME
from .postgres.home import PostgresHome
from .postgres.lease import LeaseStanding
from .postgres.marks import ENDED, LEAVING, MOVING, REVIVING
from .postgres.schema import HomeIdentity
from .refill import Progress, begin, fill, has_newest, refuse_others, untold
from .stopped_copy import StoppedCopy


class Origin(NamedTuple):
    """The identity for a new home, from a data directory."""

    identity: HomeIdentity
    is_copy: bool
    """Whether the directory already is a copy, of a lost home or of this one."""


class MovedIn(NamedTuple):
    """The result of moving a directory into a home."""

    logs: list[Compared]
    obstacle: str
    """Why the home grants no lease yet; empty if it does."""


def origin_of(directory: Path) -> Origin:
    """The identity for a home from that directory. The directory is not changed, except by recovery after a crash.

    Raises StorageUnavailable with the reason if it cannot move into a home; StorageCorrupted.
    """
    if not has_data(directory):
        raise StorageUnavailable(f"{directory} is not a data directory")
    if (mark := read_mark(directory)) is None:
        with Engine(directory, maintains=False, scrub_ms=0) as engine:
            for name in engine.names():
                log = engine.open(name)
                if log.meta.lost:
                    _check_chain(name, log.frames)
    meta = _journal(directory)
    if mark is not None and mark.home != meta.incarnation:
        raise StorageUnavailable(f"{directory} is a copy of home {mark.home}, but its journal belongs to another home")
    return Origin(HomeIdentity(meta.incarnation, meta.id_seed), mark is not None)


def move_in(home: PostgresHome, directory: Path, server: str, told: Progress = untold) -> MovedIn:
    """Commit everything in the directory to a home created with its `origin_of`, then count and compare.

    Afterwards the directory is the first copy of the home. Raises StorageUnavailable, StorageCorrupted.
    """
    with unserved(directory), refusing(directory, "cannot mark the directory as a copy"):
        if read_mark(directory) is None:
            mark_copy(directory, home.incarnation)
    with StoppedCopy(home, directory) as copy:
        standing, compared = home.standing(), list[Compared]()
        mark, proves = _mark_of(copy, standing)

        def check() -> None:
            _keep_marks(copy)
            compared.extend(compare(copy))

        fill(
            copy, copy.server or server, mark, copy.surplus(),
            proves=proves, told=told, before=lambda: _keep_beside_frames(copy), after=check,
        )  # fmt: skip
    return MovedIn(compared, home.standing().obstacle)


def _mark_of(copy: StoppedCopy, standing: LeaseStanding) -> tuple[str, bool]:
    """The mark of a home during the move, and whether the copy is known to have all events.

    A moving directory is the only one with its logs. The first directory that starts adds its ID to the mark. Raises
    StorageUnavailable if another one did.
    """
    known, is_own = standing.went_back, copy.id in standing.went_back
    if known.startswith(MOVING):
        seen = copy.witness.evidence()
        if not is_own and (known != MOVING or seen is None or seen.seen.number):
            raise StorageUnavailable(f"{known}; this is a different directory")
        return f"{MOVING} (copy {copy.id})", True
    if known.startswith(REVIVING):
        return f"{REVIVING} (copy {copy.id})", (known == REVIVING or is_own) and has_newest(copy, standing)
    raise StorageUnavailable(f"this home is not waiting for a data directory{known and f': {known}'}")


def move_out(home: PostgresHome, directory: Path, server: str) -> list[Compared]:
    """Turn the copy in that directory into a single server's data directory. Its home ends and grants no more leases.

    Missing events are fetched, and all logs are counted and compared. Empty if the copy has already left. Raises
    StorageUnavailable with the reason if the copy lacks events or the home is still in use; StorageCorrupted.
    """
    if _has_left(home, directory):
        return []
    with StoppedCopy(home, directory) as copy:
        ended = f"{ENDED}{copy.server or server} (copy {copy.id})"
        if is_to_end := copy.id not in home.standing().went_back:
            _begin_leaving(copy, copy.server or server)
            copy.end(takes_over=False)
            for log in map(copy.engine.open, copy.engine.names()):
                fetch_begun(log, log.directory)
        compared = compare(copy)
        copy.close()
        with unserved(directory), refusing(directory, "the copy cannot leave its home"):
            sync_tree(directory)
            if is_to_end:
                home.end_marked(ended, forgets_members=True)
            remove_mark(directory, HELD_NAME, LEASE_NAME)
    return compared


def _begin_leaving(copy: StoppedCopy, server: str) -> None:
    """Begin the last term of the home. Raises StorageUnavailable."""
    standing, follower = copy.home.standing(), copy.engine.follower
    obstacle = standing.contradiction or "" if standing.went_back == LEAVING else standing.obstacle
    if obstacle:
        raise StorageUnavailable(f"the home grants no lease: {obstacle}")
    refuse_others(copy.home)
    assert follower is not None
    follower.follow(takes_over=True)  # without waiting for the index
    if follower.stuck:
        name, stuck = next(iter(follower.stuck.items()))
        raise StorageUnavailable(f"this copy is missing events of log {name}: {stuck.why}")
    if more := copy.surplus():
        raise StorageUnavailable(f"its home lacks events of this copy in log {more[0].name}; run headwater home refill")
    begin(copy, server, LEAVING, holds=True)


def _has_left(home: PostgresHome, directory: Path) -> bool:
    """Whether this directory already got the logs of that home."""
    if read_mark(directory) is not None or not has_data(directory):
        return False
    return _journal(directory).incarnation == home.incarnation and home.standing().went_back.startswith(ENDED)


def _journal(directory: Path) -> Meta:
    return read_meta(directory / JOURNAL)


def _keep_beside_frames(copy: StoppedCopy) -> None:
    """Store data without frames in the home: postings of trimmed events, and batches whose commit has begun."""
    for name, frames in _logs(copy):
        log = copy.engine.open(name)
        with refusing(log.directory, "cannot read the postings of trimmed events"):
            keep_history(frames, [file for file in log.index.files if file.path.parent.name == HISTORY])
        keep_begun(log, log.directory)


def _keep_marks(copy: StoppedCopy) -> None:
    """Store the marks of writers whose frames are trimmed in the state, and so in the home."""
    if copy.engine.is_following:
        return  # the state of a copy has them already
    for name, _ in _logs(copy):
        copy.engine.open(name).writer_table.keep_all()
    copy.engine.state.flush()


def _logs(copy: StoppedCopy) -> Iterator[tuple[str, ReplicatedLog]]:
    return ((name, frames) for name, frames in copy.frames().items() if name != NAME)


def _check_chain(name: str, frames: SegmentLog) -> None:
    """Raise StorageUnavailable if events are missing in the middle of a log: a home needs unbroken chains."""
    crc = 0
    for frame in frames.read(0):
        if crc and frame.previous_crc != crc:
            raise StorageUnavailable(
                f"damaged events before {frame.first} of log {name} were discarded (headwater check --accept-loss), "
                "and a home cannot store a log with missing events: export it, delete it, and import it afterwards"
            )
        crc = frame.crc
