"""A delivery in several transfers (2.6.14): its frames are made one by one, when they can be written.

Its content is not copied before. So a message of 64 MiB costs nothing if the sender keeps it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .performatives import Transfer, encode_performative

if TYPE_CHECKING:
    from .link import Sender

Content = bytes | memoryview
"""A part of a message. A view refers to memory that is kept elsewhere, such as a mapped file; bytes are kept for this
delivery.
"""


class LargeDelivery:
    """The unsent rest of one delivery."""

    __slots__ = ("_at", "_parts", "_rest_bytes", "first", "held_bytes", "is_begun", "link")

    def __init__(self, link: Sender, first: Transfer, parts: tuple[Content, ...], held_bytes: int) -> None:
        """`held_bytes` were reserved for it, and are released when it ends."""
        self.link, self.held_bytes = link, held_bytes
        self.first: Transfer | None = first
        """Its first transfer, until that is sent."""
        self._parts = [memoryview(part) for part in parts if len(part)]
        self._rest_bytes = sum(map(len, self._parts))
        self._at = 0
        """The offset of the next frame in the first part."""
        self.is_begun = False

    @property
    def is_whole(self) -> bool:
        """Whether its last transfer has been made."""
        return self.is_begun and not self._rest_bytes

    def transfer(self, bytes_max: int) -> tuple[bytes, list[memoryview]]:
        """The next transfer, of at most `bytes_max` bytes: the performative, and its payload."""
        transfer = self.first or Transfer(handle=self.link.handle)
        self.first, self.is_begun = None, True
        transfer.more = True
        head = bytes(encode_performative(transfer))
        room = bytes_max - len(head)
        if self._rest_bytes <= room:
            transfer.more = False
            head = bytes(encode_performative(transfer))
        return head, list(self._take(room))

    def _take(self, room: int) -> Iterator[memoryview]:
        while room > 0 and self._parts:
            piece = self._parts[0][self._at : self._at + room]
            self._at += len(piece)
            self._rest_bytes -= len(piece)
            room -= len(piece)
            if self._at == len(self._parts[0]):
                del self._parts[0]
                self._at = 0
            yield piece
