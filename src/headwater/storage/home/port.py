"""The port of a home, where a server may commit the frames of its logs instead of in its own data directory.

With a home, the data directory is a copy that can be lost and rebuilt from the home. Nothing above this port depends
on the kind of home. `homes/` has the implementations.
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
"""The size of a piece of a batch part; each piece is a row in the home."""
JOURNAL_KEY = "$state"
"""The key of the state journal; the key of a log is the id of its segments."""


class HomeChanged(StorageUnavailable):
    """The home has changed: no server appends until an operator has checked it."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}, so appends are refused: restore the complete database, or refill this one from the "
            "copy of a server (headwater home refill)",
            reason="committed events may be missing from the home; an operator must check it",
        )


class HomeWentBack(HomeChanged):
    """A copy has events that its home has lost."""

    def __init__(self, log: str, copy_head: int, home_head: int) -> None:
        self.log, self.copy_head, self.home_head = log, copy_head, home_head
        problem = f"ends with {copy_head}, but its home ends with {home_head}"
        if copy_head == home_head:
            problem = f"and its home have different events up to {copy_head}"
        self.problem = f"the copy {log} {problem}"
        super().__init__(f"the home went back: {self.problem}")


REMEDY = (
    "make commits wait for every standby in synchronous_standby_names and reload, or continue without: headwater home "
    "promotion ask"
)
"""The remedy if commits do not wait for the standbys declared by the owner of a home."""


class StandbysChanged(OutcomeUnknown):
    """The configured standbys changed during the term, so a promoted standby may lack a commit."""

    def __init__(self, key: str, before: str, now: str) -> None:
        super().__init__(key)
        self.why = standbys_changed(before, now)


def standbys_changed(before: str, now: str) -> str:
    """The reason to end a term whose commits had to wait for the standbys `before`."""
    return f"commits waited for the standbys {before!r} when the term began, and wait for {now!r} now; {REMEDY}"


class HomeMoved(HomeChanged):
    """The home is in a different database cluster than its journal records: after a restore or an upgrade."""

    MARK = "the home is now in a different database cluster"
    """The start of the mark on such a home."""

    def __init__(self, known: str, found: str) -> None:
        self.what = (
            f"{self.MARK}: the identifier is {found} here, but {known} in its journal; data committed to the other "
            "cluster since may be missing here"
        )
        super().__init__(self.what)


@contextmanager
def called(name: str) -> Iterator[None]:
    """Replace the key of a log by its name in errors of the home."""
    try:
        yield
    except NotPrimary:
        raise NotPrimary(name) from None
    except OutcomeUnknown:
        raise OutcomeUnknown(name) from None


class BegunBatch(NamedTuple):
    """A staged batch whose commit has begun."""

    manifest: bytes
    parts: Callable[[], Iterator[tuple[str, Iterator[bytes]]]]
    """The bytes of each part in pieces, by name. Raises StorageUnavailable."""


def pieces_of(path: Path) -> Iterator[bytes]:
    """A file in pieces, for one part of a batch. Raises OSError."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


class History(NamedTuple):
    """The history of a home: it changes when a standby is promoted or a backup is restored."""

    timeline: int
    identifier: str
    """The identifier of its database cluster: it changes with a logical restore."""


NO_HISTORY = History(0, "")


class KeptHeads(NamedTuple):
    """The heads of all logs of a home."""

    history: History
    """The history of the home that answered."""
    heads: dict[str, Head]
    """Heads by log key."""


class Home(Protocol):
    """The place where one server at a time commits frames. Thread-safe."""

    @property
    def incarnation(self) -> str:
        """The id of the home and of its journal: 32 hexadecimal digits."""

    @property
    def seed(self) -> int:
        """The seed of the journal's checksums: see `Meta.id_seed`."""

    @property
    def term(self) -> Term:
        """The term in which this server appends."""

    may_act: Callable[[], bool]
    """Whether this server is still the primary: checked before an append is judged, and by coordinators."""

    has_lapsed: Callable[[], bool]
    """Whether this server's lease as the primary has expired. It is checked before each read, because another server
    may already append."""

    @property
    def patience_s(self) -> float:
        """The time after which callers of a commit are notified that its outcome is unknown."""

    @property
    def away(self) -> StorageUnavailable | None:
        """The error if the home has not answered for too long; None if it answers."""

    @property
    def unavailable(self) -> StorageUnavailable | None:
        """The error if nothing can be appended now (it is `away`, or another server is the primary); otherwise None."""

    def identifier(self) -> str:
        """The identifier of its database cluster: it changes with a logical restore. Raises StorageUnavailable."""

    def knows_cluster(self) -> bool:
        """Whether it knew the database cluster of the previous lease when it granted this one.

        Raises StorageUnavailable.
        """

    def know_cluster(self) -> None:
        """Record that its cluster is the right one. Raises StorageUnavailable."""

    def mark(self, what: str) -> None:
        """Mark the home as having lost data, or possibly so: no server appends until an operator has checked it.

        Raises StorageUnavailable.
        """

    def losses(self) -> int:
        """The number of losses that operators accepted. Raises StorageUnavailable."""

    def head(self, key: str) -> Head | None:
        """The head of a log; None if there is no such log. Raises StorageUnavailable."""

    def kept_heads(self) -> KeptHeads:
        """The heads of all logs, up to the events that all awaited standbys also have.

        Raises StorageUnavailable, also if those standbys may lack events.
        """

    def create(self, key: str, head: int) -> None:
        """Create an empty log that ends at `head`; an existing one stays. Raises NotPrimary, StorageUnavailable."""

    def commit(self, key: str, frames: Sequence[EncodedFrame], expected: Head, on_overdue: Callable[[], None]) -> None:
        """Append these frames to a log, all or none; they are durable when this returns.

        Raises HeadMoved or StorageUnavailable if none of them is or will be durable. If an answer is lost, it retries
        until the outcome is known. Raises OutcomeUnknown if that is impossible or the server stops first;
        StandbysChanged.
        Another thread calls `on_overdue` repeatedly while this takes longer than callers should wait.
        """

    def frames(self, key: str, after: int, upto: int) -> Iterator[bytes]:
        """The frames with events numbered above `after`, up to `upto`, in order. Raises StorageUnavailable."""

    def skip(self, key: str, number: int) -> None:
        """Make a log continue after that number. Raises NotPrimary, StorageUnavailable."""

    def forget(self, key: str, below: int) -> None:
        """Allow dropping frames whose events are all below that number. Raises NotPrimary, StorageUnavailable."""

    def takes_postings(self) -> bool:
        """Whether all of its servers fetch the postings of trimmed events from it, so that the frames can be dropped.

        Raises StorageUnavailable.
        """

    def delete(self, key: str) -> None:
        """Delete a log. Raises NotPrimary, StorageUnavailable."""

    def keep_batch(self, key: str, name: str, manifest: bytes, parts: Mapping[str, Iterator[bytes]]) -> None:
        """Store the parts of a staged batch of that log, then its manifest. With the manifest, the commit has begun.

        The postings of trimmed events are batches too: see `catalog.history`.

        Raises NotPrimary, StorageUnavailable: the commit may have begun.
        """

    def batch(self, key: str, name: str) -> BegunBatch | None:
        """A batch whose commit has begun. Raises StorageUnavailable."""

    def batches(self, key: str, prefix: str) -> list[str]:
        """The batches whose names have that prefix. Raises StorageUnavailable."""

    def forget_batch(self, key: str, name: str) -> None:
        """Drop a batch no longer needed; it stays if this server's term has ended. Raises StorageUnavailable."""

    def close(self) -> None:
        """Close; pending calls learn that their outcome is unknown."""
