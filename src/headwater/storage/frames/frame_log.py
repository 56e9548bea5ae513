"""The port of a frame log: a durable, totally ordered sequence of frames with a compare-and-set on its head.

Nothing above this port knows where frames live. `segments.segment_log` keeps them in local files.
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
    """The time in which one writer has a log. A number alone could be given twice, so its holder's nonce goes with it.

    A log in local files has a new one at each opening.
    """

    number: int
    """Counts up."""
    nonce: int
    """Drawn by chance."""


def new_term(number: int) -> Term:
    """A term of that number, told from any other of it."""
    return Term(number, secrets.randbits(62))


class Head(NamedTuple):
    """Where a log ends: what an append compares before it sets it.

    The number alone would not do: another history may have come to the same one.
    """

    number: int
    """That of the last event."""
    crc: int
    """The checksum of the last frame; 0 in an empty log."""
    term: Term
    """Whose log it is."""


class HeadMoved(Exception):
    """The head is not what the caller expected: somebody else appended, or has the log now. Nothing was appended."""

    def __init__(self, head: Head) -> None:
        self.head = head
        super().__init__(f"the head is {head.number} (checksum {head.crc:08x}, term {head.term.number})")


class NotKept(Exception):
    """Frames were committed elsewhere, but the files here could not take them: nobody can read them here."""


class NotAdopted(StorageUnavailable):
    """A staged file cannot become a segment as it is, and nothing has changed: its rows are appended instead."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: it cannot be taken as a segment: {why}")


def nobody() -> None:
    """To be called where nobody waits."""


class FrameLog(Protocol):
    """Where frames are kept."""

    @property
    def head(self) -> int:
        """The number of the last event in it."""

    term: Term
    """Whose log it is now."""
    crc_seed: int
    """What the checksums of this log's frames begin with."""

    @property
    def last_crc(self) -> int:
        """The checksum of the last frame; 0 in an empty log."""

    @property
    def unavailable(self) -> StorageUnavailable | None:
        """Why appends are refused at once at present, before they wait for anything; None if they are not."""

    def append_frames(
        self, frames: Sequence[EncodedFrame], expected: Head, on_overdue: Callable[[], None] = nobody
    ) -> None:
        """Append all frames, durably when it returns. One that is `staged` becomes a segment of the file that it is in.

        Raises HeadMoved if the head is another one, DiskFull or StorageUnavailable if there is no room (what was
        appended before that, is durable: `head` tells), OSError if writing failed: then it is unknown what is on
        disk, and the process must end. Raises NotKept if all are in the log, but cannot be read here.

        A log that can lose an answer asks again until it knows. `on_overdue` is called by another thread, again and
        again, where that takes longer than anybody shall wait: who waits is to be told that the outcome is unknown.
        """

    def read(self, after: int) -> Iterator[Frame]:
        """The frames with events numbered above `after`, in order."""

    def trim(self, below: int) -> None:
        """Forget whole pieces of which every event is numbered below that."""
