"""Bodies and messages of which only a part has come: bounded in sum, for all peers together.

Where there is too much of them, the largest is given up. What is whole is its application's, and counts no more.
"""

from __future__ import annotations

from typing import Protocol

BYTES_MAX = 2**30


class Part(Protocol):
    """A body or a message that is still coming. Its methods are called on the event loop."""

    def give_up(self) -> None:
        """There is no room for the rest of it: end it, and say why. Its bytes do not count any more."""


class Unfinished:
    """The budget of what is unfinished, on one event loop."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        """How much there may be in all."""
        self.bytes = 0
        """How much there is."""
        self._parts: dict[Part, int] = {}

    def hold(self, part: Part, size: int) -> None:
        """So much of it has come by now. Where that is too much in all, the largest part is given up, this one too."""
        self.bytes += size - self._parts.get(part, 0)
        self._parts[part] = size
        while self.bytes > self.bytes_max:
            largest = max(self._parts, key=self._parts.__getitem__)
            self.release(largest)
            largest.give_up()

    def release(self, part: Part) -> None:
        """It is whole, or nobody waits for the rest of it. It need not be known here."""
        self.bytes -= self._parts.pop(part, 0)

    def refusal(self, what: str) -> str:
        """What to tell the peer whose part was given up; `what` are parts of its kind."""
        return f"more than {self.bytes_max} bytes of unfinished {what} wait, and yours is the largest"
