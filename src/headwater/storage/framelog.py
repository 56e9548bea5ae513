"""The port of a frame log: a durable, totally ordered sequence of frames with a compare-and-set on its head.

Nothing above this port knows where frames live. `segments` keeps them in local files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from .frame import EncodedFrame, Frame


class HeadMoved(Exception):
    """Somebody else appended: the head is not what the caller expected."""

    def __init__(self, head: int) -> None:
        self.head = head
        super().__init__(f"the head is {head}")


class FrameLog(Protocol):
    """Where frames are kept."""

    @property
    def head(self) -> int:
        """The number of the last event in it."""

    @property
    def crc_seed(self) -> int:
        """What the checksums of this log's frames begin with."""

    @property
    def last_crc(self) -> int:
        """The checksum of the last frame; 0 in an empty log."""

    def append_frames(self, frames: Sequence[EncodedFrame], expected_head: int) -> None:
        """Append all frames, durably when it returns.

        Raises HeadMoved if the head is another one, DiskFull or StorageUnavailable if there is no room (what was
        appended before that, is durable: `head` tells), OSError if writing failed: then it is unknown what is on
        disk, and the process must end.
        """

    def read(self, after: int) -> Iterator[Frame]:
        """The frames with events numbered above `after`, in order."""

    def trim(self, below: int) -> None:
        """Forget whole pieces of which every event is numbered below that."""
