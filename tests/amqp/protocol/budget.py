"""Memory that an engine may hold, counted."""

from __future__ import annotations


class Budget:
    """Room for so many bytes."""

    def __init__(self, bytes_max: int = 2**40) -> None:
        self.bytes_max = bytes_max
        self.bytes = self.most = 0
        """What is held; the most that was."""

    def take(self, size: int) -> bool:
        """See `ConnectionSettings.take`."""
        if self.bytes + size > self.bytes_max:
            return False
        self.bytes += size
        self.most = max(self.most, self.bytes)
        return True

    def give(self, size: int) -> None:
        """See `ConnectionSettings.give`."""
        self.bytes -= size
        assert self.bytes >= 0
