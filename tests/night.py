"""What is proved in short by day and in full by night.

`make check` and `make test` run by day; with `NIGHT=1` in the environment, as `make nightly` sets it, all tests run, at
full length. Nothing is proved at night alone that a change of one line breaks by day: what leaves the day keeps a short
form there. And each `make check` runs a slice of what is marked `night`, chosen by the commit's id, so that none of it
rots.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.seconds import SECONDS

IS_NIGHT: Final = os.environ.get("NIGHT") == "1"
"""For counts of rounds and for lists of cases: `KILLS = 5 if IS_NIGHT else 1`."""
night = pytest.mark.night
"""For a test, a case (`pytest.param(..., marks=night)`) or a module (`pytestmark = night`) that runs by night alone."""


@cache
def seed() -> str:
    """What chooses between cases: `SEED` of the environment, or the commit's id; `0` outside of a clone."""
    if given := os.environ.get("SEED"):
        return given
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:
        return "0"
    return done.stdout.strip() or "0"


def draw(nodeid: str) -> str:
    """The place of a test in the order of this seed."""
    return hashlib.sha256(f"{seed()} {nodeid}".encode()).hexdigest()


def sliced(nodeids: Sequence[str], seconds_max: float) -> set[str]:
    """Some of these tests: by the order of the seed, so many that they take no longer, one after the other."""
    chosen: set[str] = set()
    left = seconds_max
    for nodeid in sorted(nodeids, key=draw):
        takes = SECONDS.get(nodeid, 1.0)
        if takes <= left:
            left -= takes
            chosen.add(nodeid)
    return chosen
