"""Which tests of the contract run by day: all on four kinds of log, and a share on each other kind, chosen by a seed.

The four are the reference, the engine on a disk, over which all others are built, and the two clients, whose ways of
reading and following are their own. What is particular to a home and its replicas has rooms of tests of its own; by
night the contract runs whole on them too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ..seeds import draw

WHOLE: Final = frozenset({"memory", "segments", "client", "client_aio"})
"""The kinds on which the contract runs whole by day."""
ONE_IN: Final = 4
"""On each other kind, of so many tests of a file one runs, rounded up."""


class Candidate(NamedTuple):
    """A test on a kind of log."""

    name: str
    """Its id, with file and parameters."""
    kind: str

    @property
    def file(self) -> str:
        """That it is in."""
        return self.name.partition("::")[0]

    @property
    def function(self) -> str:
        """Its id without parameters."""
        return self.name.partition("[")[0]


def chosen(candidates: Iterable[Candidate], seed: str) -> set[str]:
    """The names of those that run by day with that seed, in whatever order they are given."""
    groups: dict[tuple[str, str], list[Candidate]] = defaultdict(list)
    for each in candidates:
        groups[each.file, each.kind].append(each)
    return {
        each.name
        for (_, kind), group in groups.items()
        for each in (group if kind in WHOLE else _drawn(group, seed)[: -(-len(group) // ONE_IN)])
    }


def _drawn(group: Sequence[Candidate], seed: str) -> list[Candidate]:
    """In the order of their lots; but each function comes once before one comes again."""
    turns: dict[str, int] = defaultdict(int)
    ordered = []
    for each in sorted(group, key=lambda candidate: draw(seed, candidate.name)):
        ordered.append((turns[each.function], each))
        turns[each.function] += 1
    return [each for _, each in sorted(ordered, key=lambda pair: pair[0])]
