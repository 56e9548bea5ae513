"""Bodies and messages that have come in part: their bytes are bounded in sum, for all peers together.

Above that bound, the largest is given up. A whole body or message belongs to its application, and is not counted.
"""

from __future__ import annotations

from typing import Protocol

BYTES_MAX = 2**30


class Part(Protocol):
    """A body or a message that is still coming. Its methods are called on the event loop."""

    def give_up(self) -> None:
        """There is no room for the rest of it: end it, and say why. Its bytes do not count any more."""


class ByteAccount:
    """The budget of bodies and messages that have come in part, on one event loop."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        """The most bytes of all parts together."""
        self.bytes = 0
        """The bytes of all parts together."""
        self._parts: dict[Part, int] = {}

    def hold(self, part: Part, size: int) -> None:
        """`size` bytes of it have come by now. Above the bound, the largest part is given up, perhaps this one."""
        self.bytes += size - self._parts.get(part, 0)
        self._parts[part] = size
        while self.bytes > self.bytes_max:
            largest = max(self._parts, key=self._parts.__getitem__)
            self.release(largest)
            largest.give_up()

    def release(self, part: Part) -> None:
        """It is whole, or its rest is not needed any more. It need not be known here."""
        self.bytes -= self._parts.pop(part, 0)

    def refusal(self, what: str) -> str:
        """What to tell the peer whose part was given up; `what` are parts of its kind."""
        return f"more than {self.bytes_max} bytes of unfinished {what} wait, and yours is the largest"
