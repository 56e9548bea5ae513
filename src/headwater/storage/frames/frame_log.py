"""The port of a frame log: a durable, totally ordered sequence of frames with a compare-and-set on its head.

Nothing above this port depends on where frames are. `segments.segment_log` stores them in local files.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ...core.errors import StorageUnavailable
from .encoding import EncodedFrame
from .frame import Frame


class Term(NamedTuple):
    """The term of one writer of a log. A number alone could be issued twice, so it is combined with its holder's nonce.

    A log in local files begins a new term at each opening.
    """

    number: int
    """Increases with each term."""
    nonce: int
    """Random."""


def new_term(number: int) -> Term:
    """A new term with that number and a random nonce."""
    return Term(number, secrets.randbits(62))


class Head(NamedTuple):
    """The end of a log: an append compares it and sets it.

    The number alone is not enough: another history may have reached the same one.
    """

    number: int
    """The number of the last event."""
    crc: int
    """The checksum of the last frame; 0 in an empty log."""
    term: Term
    """The term of the writer that owns the log."""


class HeadMoved(Exception):
    """The head is not the expected one: another writer has appended or owns the log. Nothing was appended."""

    def __init__(self, head: Head) -> None:
        self.head = head
        super().__init__(f"the head is {head.number} (checksum {head.crc:08x}, term {head.term.number})")


class NotKept(Exception):
    """Frames were committed at the home, but could not be written here, so they cannot be read here."""


class NotAdopted(StorageUnavailable):
    """A staged file cannot become a segment as it is. Nothing has changed: its rows are appended instead."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: it cannot be used as a segment: {why}")


def nobody() -> None:
    """The `on_overdue` callback to use if there are no waiters."""


class FrameLog(Protocol):
    """A store of frames."""

    @property
    def head(self) -> int:
        """The number of the last event."""

    term: Term
    """The term of the log's current writer."""
    crc_seed: int
    """The seed of the checksums of this log's frames."""

    @property
    def last_crc(self) -> int:
        """The checksum of the last frame; 0 in an empty log."""

    @property
    def unavailable(self) -> StorageUnavailable | None:
        """Why appends are currently refused at once, before they wait; None if they are accepted."""

    def append_frames(
        self, frames: Sequence[EncodedFrame], expected: Head, on_overdue: Callable[[], None] = nobody
    ) -> None:
        """Append all frames; they are durable when this returns. The file of a `staged` one becomes a segment.

        Raises HeadMoved if the head differs, DiskFull or StorageUnavailable if there is no room (frames appended
        before that are durable: see `head`), OSError if writing failed: the content of the disk is unknown, and the
        process must end. Raises NotKept if all are in the log but cannot be read here.

        A log that can lose an answer retries until it knows the outcome. Another thread calls `on_overdue` repeatedly
        while that takes too long: it must report an unknown outcome to the waiters.
        """

    def read(self, after: int) -> Iterator[Frame]:
        """The frames with events numbered above `after`, in order."""

    def trim(self, below: int) -> None:
        """Remove whole pieces whose events are all below that number."""
