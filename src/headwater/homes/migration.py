"""A data directory becomes the first copy of a home, and a copy becomes the data directory of one server again.

Frames, numbers, incarnations, the state and what belongs to it stay as they are: only where they are committed changes.
At every moment at most one of the two can append: the home is marked meanwhile, and COPY is in the directory from
before the first frame is in the home until after the home has ended. Each can be interrupted, and is then repeated.
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
    """What a home begins with."""

    identity: HomeIdentity
    is_copy: bool
    """Whether the directory is a copy already, of a home that was lost, or of this one."""


class MovedIn(NamedTuple):
    """What a home has of a directory."""

    logs: list[Compared]
    obstacle: str
    """Why the home gives no lease yet; empty: it does."""


def origin_of(directory: Path) -> Origin:
    """What a home from that directory begins with: it is looked at, and not changed but by a recovery after a crash.

    Raises StorageUnavailable: it cannot move into a home, and why; StorageCorrupted.
    """
    if not has_data(directory):
        raise StorageUnavailable(f"{directory}: no data directory")
    if (mark := read_mark(directory)) is None:
        with Engine(directory, maintains=False, scrub_ms=0) as engine:
            for name in engine.names():
                log = engine.open(name)
                if log.meta.lost:
                    _check_chain(name, log.frames)
    meta = _journal(directory)
    if mark is not None and mark.home != meta.incarnation:
        raise StorageUnavailable(f"{directory} is a copy of the home {mark.home}, and its journal is of another one")
    return Origin(HomeIdentity(meta.incarnation, meta.id_seed), mark is not None)


def move_in(home: PostgresHome, directory: Path, server: str, told: Progress = untold) -> MovedIn:
    """Give a home, which was made from `origin_of` that directory, all that the directory has; count and compare it.

    The directory is the first copy of the home from then on. Raises StorageUnavailable, StorageCorrupted.
    """
    with unserved(directory), refusing(directory, "the directory cannot be marked as a copy"):
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
    """The mark of a home while it gets that copy, and whether the copy is known to have all that there is.

    A directory that moves is the only one with its logs. The first that begins puts its name into the mark. Raises
    StorageUnavailable: another one did.
    """
    known, is_own = standing.went_back, copy.id in standing.went_back
    if known.startswith(MOVING):
        seen = copy.witness.evidence()
        if not is_own and (known != MOVING or seen is None or seen.seen.number):
            raise StorageUnavailable(f"{known}; this is another directory")
        return f"{MOVING} (copy {copy.id})", True
    if known.startswith(REVIVING):
        return f"{REVIVING} (copy {copy.id})", (known == REVIVING or is_own) and has_newest(copy, standing)
    raise StorageUnavailable(f"this home waits for no directory{known and f': {known}'}")


def move_out(home: PostgresHome, directory: Path, server: str) -> list[Compared]:
    """Make the copy in that directory the data directory of one server; its home ends, and gives no lease any more.

    What the copy lacks is fetched; all is counted and compared. Empty: that was done before. Raises
    StorageUnavailable: the copy lacks something, or the home goes on, and why; StorageCorrupted.
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
    """Begin the term in which the home ends. Raises StorageUnavailable."""
    standing, follower = copy.home.standing(), copy.engine.follower
    obstacle = standing.contradiction or "" if standing.went_back == LEAVING else standing.obstacle
    if obstacle:
        raise StorageUnavailable(f"the home gives no lease: {obstacle}")
    refuse_others(copy.home)
    assert follower is not None
    follower.follow(takes_over=True)  # it waits for no index
    if follower.stuck:
        name, stuck = next(iter(follower.stuck.items()))
        raise StorageUnavailable(f"this copy lacks events of log {name}: {stuck.why}")
    if more := copy.surplus():
        raise StorageUnavailable(f"this copy has more than its home, in log {more[0].name}: run headwater home refill")
    begin(copy, server, LEAVING, holds=True)


def _has_left(home: PostgresHome, directory: Path) -> bool:
    """Whether the directory is that with which the logs of that home went."""
    if read_mark(directory) is not None or not has_data(directory):
        return False
    return _journal(directory).incarnation == home.incarnation and home.standing().went_back.startswith(ENDED)


def _journal(directory: Path) -> Meta:
    return read_meta(directory / JOURNAL)


def _keep_beside_frames(copy: StoppedCopy) -> None:
    """Give the home what no frame has: postings of trimmed events, and batches with a commit under way."""
    for name, frames in _logs(copy):
        log = copy.engine.open(name)
        with refusing(log.directory, "the postings of trimmed events cannot be read"):
            keep_history(frames, [file for file in log.index.files if file.path.parent.name == HISTORY])
        keep_begun(log, log.directory)


def _keep_marks(copy: StoppedCopy) -> None:
    """Give the state, and so the home, the marks of writers whose frames are trimmed."""
    if copy.engine.is_following:
        return  # the state of a copy has them
    for name, _ in _logs(copy):
        copy.engine.open(name).writer_table.keep_all()
    copy.engine.state.flush()


def _logs(copy: StoppedCopy) -> Iterator[tuple[str, ReplicatedLog]]:
    return ((name, frames) for name, frames in copy.frames().items() if name != NAME)


def _check_chain(name: str, frames: SegmentLog) -> None:
    """Raises StorageUnavailable where events are missing in the middle of a log: a home has unbroken chains alone."""
    crc = 0
    for frame in frames.read(0):
        if crc and frame.previous_crc != crc:
            raise StorageUnavailable(
                f"events before {frame.first} of log {name} were given up as damaged, and a home takes no log with a "
                "hole: export it, delete it, and import it afterwards"
            )
        crc = frame.crc
