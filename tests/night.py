"""What is proved in short by day and in full by night.

`make check` and `make test` run by day; with `NIGHT=1` in the environment, as `make nightly` sets it, all tests run, at
full length. Nothing is proved at night alone that a change of one line breaks by day: what leaves the day keeps a short
form there. And each `make check` runs a slice of what is marked `night`, chosen by the commit's id, so that none of it
rots.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import pytest

from tests.seconds import SECONDS
from tests.seeds import draw, seed

This = TypeVar("This")
That = TypeVar("That")

IS_NIGHT: Final = os.environ.get("NIGHT") == "1"
"""For counts of rounds and for lists of cases: `KILLS = 5 if IS_NIGHT else 1`."""
night = pytest.mark.night
"""For a test, a case (`pytest.param(..., marks=night)`) or a module (`pytestmark = night`) that runs by night alone."""
ONE_IN: Final = 3
"""By day of so many pairs of a product one is enough: each value of both sides comes."""


def pairs(these: Iterable[This], those: Sequence[That]) -> list[tuple[This, That]]:
    """By night all pairs; by day each of these with one in three of those, which are others in each turn."""
    one_in = 1 if IS_NIGHT else ONE_IN
    return [(this, that) for turn, this in enumerate(these) for that in those[turn % one_in :: one_in]]


UNKNOWN_S: Final = 60.0
"""What a test is taken to last that no night has measured yet."""


def sliced(nodeids: Sequence[str], seconds_max: float) -> set[str]:
    """Some of these tests: by the order of the seed, so many that they take no longer, one after the other."""
    chosen: set[str] = set()
    left = seconds_max
    for nodeid in sorted(nodeids, key=lambda nodeid: draw(seed(), nodeid)):
        takes = SECONDS.get(nodeid, UNKNOWN_S)
        if takes <= left:
            left -= takes
            chosen.add(nodeid)
    return chosen
