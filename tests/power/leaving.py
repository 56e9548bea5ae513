"""What a power cut leaves, written down: of each file a size, and sectors or pages, each of some moment."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from random import Random

from .nodes import Change, Node, resize
from .recording import Operation

SECTOR, PAGE = 512, 4096
"""What a disk writes whole, and what a page cache hands over at once."""


class Fate(Enum):
    """What becomes of that which was not synced."""

    GONE = "gone"
    KEPT = "kept"
    FIRST = "first"
    """What was done first is there, up to some moment, and nothing later."""
    SECTORS = "sectors"
    """Each sector is from a moment of its own."""
    PAGES = "pages"


class Remains:
    """Writes down one state."""

    def __init__(
        self, tree: Mapping[Node, Mapping[str, Node]], chance: Random, fate: Fate, committed: int, upto: int | None
    ) -> None:
        """`upto`: the journal's end, where there is one."""
        self._tree, self._chance, self._fate, self._committed, self._upto = tree, chance, fate, committed, upto
        self._written: dict[Node, Path] = {}

    def write(self, directory: Node, path: Path) -> None:
        path.mkdir(exist_ok=True)
        for name, node in self._tree.get(directory, directory.names).items():
            if node.is_directory:
                self.write(node, path / name)
            elif (other := self._written.get(node)) is not None:
                os.link(other, path / name)
            else:
                self._written[node] = path / name
                (path / name).write_bytes(self._content(node))

    def _content(self, node: Node) -> bytes | bytearray:
        changes = node.changes
        if not changes:
            return node.content
        sized = self._sized(changes)
        size = len(node.content)
        content = bytearray(node.content)
        for change in changes[:sized]:
            size = change.resized(size)
            if change.operation is Operation.TRUNCATE:
                resize(content, min(len(content), size))
        resize(content, size)
        block = SECTOR if self._fate is Fate.SECTORS else PAGE
        moment = self._chance.randint(0, len(changes))
        touched = {number for change in changes for number in change.touched(block)}
        for number in sorted(touched):
            start, end = number * block, min((number + 1) * block, size)
            if start < end:
                content[start:end] = self._block(node, start, end, sized, moment)
        return content

    def _sized(self, changes: Sequence[Change]) -> int:
        """The size is as it was after so many changes."""
        low, high = 0, len(changes)
        if self._upto is not None:
            high = bisect_left(changes, self._upto + 1, key=lambda change: change.number)
            low = max((place + 1 for place, change in enumerate(changes[:high]) if change.is_resize), default=0)
        match self._fate:
            case Fate.GONE:
                return low
            case Fate.KEPT:
                return high
        return self._chance.randint(low, high)

    def _block(self, node: Node, start: int, end: int, sized: int, moment: int) -> bytearray:
        """A block as it was after some number of changes; a truncation is there if the size says so."""
        low, high = 0, len(node.changes)
        for place, change in enumerate(node.changes):
            if change.operation is Operation.TRUNCATE and change.size < end:
                if place < sized:
                    low = place + 1
                else:
                    high = place
                    break
        match self._fate:
            case Fate.GONE:
                count = low
            case Fate.KEPT:
                count = high
            case Fate.FIRST:
                count = min(max(moment, low), high)
            case _:
                count = self._chance.randint(low, high)
        content = node.content[start:end]
        resize(content, end - start)
        for change in node.changes[:count]:
            change.apply(content, start)
        return content
