"""Files and directories of the disk that is modelled: what of them is durable, and what was done since."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from .recording import Operation, Record


class Change(NamedTuple):
    """One that was made to a file, and not synced yet."""

    number: int
    operation: Operation
    at: int
    size: int
    data: bytes

    @property
    def is_resize(self) -> bool:
        """Whether the size is changed by itself, not by what is written behind the end."""
        return self.operation in (Operation.TRUNCATE, Operation.ALLOCATE)

    def resized(self, size: int) -> int:
        """What becomes of that size."""
        match self.operation:
            case Operation.TRUNCATE:
                return self.size
            case Operation.ALLOCATE:
                return max(size, self.size)
            case Operation.WRITE:
                return max(size, self.at + len(self.data))
        return size

    @property
    def end(self) -> int:
        """Up to where it changes bytes."""
        return self.at + (len(self.data) or self.size)

    def apply(self, content: bytearray, start: int = 0) -> None:
        """Do to a piece of the file, which begins there, what was done to the file; its length stays."""
        end = start + len(content)
        match self.operation:
            case Operation.WRITE:
                low, high = max(self.at, start), min(self.at + len(self.data), end)
                if low < high:
                    content[low - start : high - start] = self.data[low - self.at : high - self.at]
            case Operation.ZERO | Operation.TRUNCATE:
                low = max(self.size if self.operation is Operation.TRUNCATE else self.at, start)
                high = end if self.operation is Operation.TRUNCATE else min(self.at + self.size, end)
                if low < high:
                    content[low - start : high - start] = bytes(high - low)

    def touched(self, block: int) -> range:
        """The blocks of that size that it writes."""
        length = len(self.data) if self.operation is Operation.WRITE else self.size
        if self.is_resize or not length:
            return range(0)
        return range(self.at // block, (self.at + length - 1) // block + 1)


class Node:
    """A file or a directory, whatever its names."""

    def __init__(self, number: int, *, is_directory: bool) -> None:
        self.is_directory = is_directory
        self.content = bytearray()
        """Of a file: what is durable."""
        self.changes: list[Change] = []
        """And what was done since."""
        self.names: dict[str, Node] = {}
        """Of a directory: the durable ones."""
        self.names_now: dict[str, Node] = {}
        self.concerned: list[int] = [number]
        """The numbers of all records that a sync of it has to bring into the journal; ascending."""
        self.concerned_data: list[int] = [number]
        """The same for a sync of its data, which does not wait for the time of its last change."""

    def durable_now(self, number: int) -> None:
        """Whatever was done before that record is durable."""
        kept = bisect_left(self.changes, number, key=lambda change: change.number)
        size = len(self.content)
        for change in self.changes[:kept]:
            size = change.resized(size)
            resize(self.content, max(size, len(self.content)))
            change.apply(self.content)
            resize(self.content, size)
        del self.changes[:kept]

    def written_durably(self, record: Record) -> bool:
        """One write, of those bytes, is durable, and none before it; False if one of those is of the same bytes.

        The size is durable with it, without which it could not be read.
        """
        low, high = record.at, record.at + record.size
        place = next(
            place for place, change in reversed(list(enumerate(self.changes)))
            if change.operation is Operation.WRITE and (change.at, len(change.data)) == (low, record.size)
        )  # fmt: skip
        enlarging = [change for change in self.changes[:place] if change.operation is Operation.ALLOCATE]
        others = [change for change in self.changes[:place] if change.operation is not Operation.ALLOCATE]
        if any(change.is_resize or (low < change.end and change.at < high) for change in others):
            return False
        for change in enlarging:
            resize(self.content, change.resized(len(self.content)))
            self.changes.remove(change)
        place -= len(enlarging)
        change = self.changes.pop(place)
        resize(self.content, change.resized(len(self.content)))
        change.apply(self.content)
        return True


class Naming(NamedTuple):
    """One change of names that is whole or not at all."""

    number: int
    directory: Node
    changes: Sequence[tuple[str, Node | None]]
    """What the names stand for from now on; None = nothing."""

    def apply(self, names: dict[str, Node]) -> None:
        """Do it to the names of the directory."""
        for name, node in self.changes:
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


def resize(content: bytearray, size: int) -> None:
    """Cut it, or add zeros."""
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
