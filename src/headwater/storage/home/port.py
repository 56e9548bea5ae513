"""The port of a home: where the frames of one server's logs are committed, if not in its own data directory.

With a home, the data directory is a copy: it can be lost, and made again from the home. Nothing above this port knows
what a home is made of. `homes/` has those that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from ...core.errors import NotPrimary, OutcomeUnknown, StorageUnavailable
from ..frames.encoding import EncodedFrame
from ..frames.frame_log import Head, Term

PIECE_BYTES = 4 * 1024 * 1024
"""So much of a part of a batch is one row of the home."""
JOURNAL_KEY = "$state"
"""The key of the journal of the small state; a log's is the id that its segments have."""


class HomeChanged(StorageUnavailable):
    """The home is not what it was: nothing is appended before a person has looked."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}; so nothing is appended: bring back the database that has it all, or refill this one from the "
            "copy of a server (headwater home refill)",
            reason="what was committed may be missing where it was committed to; an operator must look",
        )


class HomeWentBack(HomeChanged):
    """A copy has what its home does not have any more."""

    def __init__(self, log: str, copy_head: int, home_head: int) -> None:
        self.log, self.copy_head, self.home_head = log, copy_head, home_head
        problem = f"ends with {copy_head}, its home with {home_head}"
        if copy_head == home_head:
            problem = f"and its home have other events up to {copy_head}"
        self.problem = f"the copy {log} {problem}"
        super().__init__(f"the home went back: {self.problem}")


REMEDY = (
    "have commits wait for every standby in synchronous_standby_names, and reload; or go on without: headwater home "
    "promotion ask"
)
"""Where commits do not wait for the standbys as the owner of a home declared."""


class StandbysChanged(OutcomeUnknown):
    """Other standbys are named than at the begin of the term, so a commit may be on none that is promoted."""

    def __init__(self, key: str, before: str, now: str) -> None:
        super().__init__(key)
        self.why = standbys_changed(before, now)


def standbys_changed(before: str, now: str) -> str:
    """Why a term ends in which each commit was to wait for the standbys `before`."""
    return f"commits waited for the standbys {before!r} when the term began, and wait for {now!r} now; {REMEDY}"


class HomeMoved(HomeChanged):
    """The home is in another database cluster than its journal says: it was restored there, or upgraded into it."""

    MARK = "the home is in another database cluster than before"
    """The beginning of the mark that such a home gets."""

    def __init__(self, known: str, found: str) -> None:
        self.what = (
            f"{self.MARK}: the identifier is {found} here, and {known} in its journal; data committed to the other one "
            "since may be missing here"
        )
        super().__init__(self.what)


@contextmanager
def called(name: str) -> Iterator[None]:
    """Refusals of a home name a log by its key there; here they name it as users do."""
    try:
        yield
    except NotPrimary:
        raise NotPrimary(name) from None
    except OutcomeUnknown:
        raise OutcomeUnknown(name) from None


class BegunBatch(NamedTuple):
    """A staged batch of which a commit has begun."""

    manifest: bytes
    parts: Callable[[], Iterator[tuple[str, Iterator[bytes]]]]
    """The bytes of each part, by its name, in pieces. Raises StorageUnavailable."""


def pieces_of(path: Path) -> Iterator[bytes]:
    """A file in pieces, as one part of a batch. Raises OSError."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


class History(NamedTuple):
    """Which past a home has: another one since a standby was promoted, or a backup was restored."""

    timeline: int
    identifier: str
    """Of its database cluster: another one after a logical restore."""


NO_HISTORY = History(0, "")


class KeptHeads(NamedTuple):
    """Where all logs of a home end."""

    history: History
    """Of the home that answered."""
    heads: dict[str, Head]
    """By the keys of the logs."""


class Home(Protocol):
    """Where frames are committed, by one server at a time. Safe to call from any thread."""

    @property
    def incarnation(self) -> str:
        """Who it is, in 32 hexadecimal digits; so is its journal called."""

    @property
    def seed(self) -> int:
        """From which the journal's checksums begin: see `Meta.id_seed`."""

    @property
    def term(self) -> Term:
        """In which this server appends."""

    may_act: Callable[[], bool]
    """Whether this server's time as the primary goes on: asked before an append is judged, and by coordinators."""

    has_lapsed: Callable[[], bool]
    """Whether this server served as the primary until its lease ended: asked before anything is read, for another
    server may append by now."""

    @property
    def patience_s(self) -> float:
        """Who waits for a commit is told after that time that its outcome is not known."""

    @property
    def away(self) -> StorageUnavailable | None:
        """Why it has not answered for so long that nothing more should be sent to it; None if it answers."""

    @property
    def unavailable(self) -> StorageUnavailable | None:
        """Why nothing more should be appended at present: it is `away`, or it is another server's turn; or None."""

    def identifier(self) -> str:
        """The database cluster that it is in: another one after a logical restore. Raises StorageUnavailable."""

    def knows_cluster(self) -> bool:
        """Whether it gave the lease knowing in which cluster it was given before. Raises StorageUnavailable."""

    def know_cluster(self) -> None:
        """It is in the right one: from now on it knows. Raises StorageUnavailable."""

    def mark(self, what: str) -> None:
        """It lacks data that it had, or may lack it: no server appends until a person has looked.

        Raises StorageUnavailable.
        """

    def losses(self) -> int:
        """How often a person accepted that it lacks what it had. Raises StorageUnavailable."""

    def head(self, key: str) -> Head | None:
        """Where a log ends; None if it is not there. Raises StorageUnavailable."""

    def kept_heads(self) -> KeptHeads:
        """Where all logs end, as far as the home will not lose it: standbys it waits for have that.

        Raises StorageUnavailable.
        """

    def create(self, key: str, head: int) -> None:
        """Make a log that is empty and ends there; one that is there stays. Raises NotPrimary, StorageUnavailable."""

    def commit(self, key: str, frames: Sequence[EncodedFrame], expected: Head, on_overdue: Callable[[], None]) -> None:
        """Append these frames to a log, all or none; they are durable when it returns.

        Raises HeadMoved, StorageUnavailable: then none of them is, or ever will be. If an answer is lost, it asks again
        until it knows. Raises OutcomeUnknown where that cannot be known any more, or the server stops before;
        StandbysChanged.
        `on_overdue` is called by another thread, again and again, where that takes longer than anybody shall wait.
        """

    def frames(self, key: str, after: int, upto: int) -> Iterator[bytes]:
        """The frames with events numbered above `after`, up to `upto`, in order. Raises StorageUnavailable."""

    def skip(self, key: str, number: int) -> None:
        """Have a log go on behind that number. Raises NotPrimary, StorageUnavailable."""

    def forget(self, key: str, below: int) -> None:
        """Frames of which every event is numbered below that may go. Raises NotPrimary, StorageUnavailable."""

    def takes_postings(self) -> bool:
        """Whether every server of it fetches the postings of trimmed events from it: then their frames may go.

        Raises StorageUnavailable.
        """

    def delete(self, key: str) -> None:
        """Forget a log whole. Raises NotPrimary, StorageUnavailable."""

    def keep_batch(self, key: str, name: str, manifest: bytes, parts: Mapping[str, Iterator[bytes]]) -> None:
        """Have the parts of a staged batch of that log, and then its manifest: a commit of it has begun.

        The postings of trimmed events are batches too: see `catalog.history`.

        Raises NotPrimary, StorageUnavailable: then it may have begun.
        """

    def batch(self, key: str, name: str) -> BegunBatch | None:
        """A batch of which a commit has begun. Raises StorageUnavailable."""

    def batches(self, key: str, prefix: str) -> list[str]:
        """Those whose names begin so. Raises StorageUnavailable."""

    def forget_batch(self, key: str, name: str) -> None:
        """It is needed no more; where this server has no term any more, it stays. Raises StorageUnavailable."""

    def close(self) -> None:
        """Who waits for an answer is told that it is not known."""
