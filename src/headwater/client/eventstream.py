"""Server-Sent Events (HTML Living Standard, 9.2) as the server writes them: bytes in, messages out. No I/O.

Every line ends in a line feed and no message has several lines of data, because the server writes them so.
"""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """One block of the stream. Without data it only says how far the cursor moved."""

    id: int | None
    data: bytes


class EventStreamParser:
    """Cuts a stream into messages; a block may come in any number of pieces."""

    def __init__(self) -> None:
        self._cut_block = b""

    def receive_data(self, piece: bytes) -> list[Message]:
        """The messages that are whole by now."""
        *blocks, self._cut_block = (self._cut_block + piece).split(b"\n\n")
        return [_message(block) for block in blocks]


def _message(block: bytes) -> Message:
    id, data = None, b""
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data = value
        elif name == b"id" and value.isdigit():
            id = int(value)
    return Message(id, data)
