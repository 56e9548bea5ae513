"""The seed of a run: it chooses what the run does of all that a longer one would do.

It is the id of the commit, so each commit is tested by other choices, and each run of it by the same ones. `SEED` in
the environment sets it, which repeats the run of another commit.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final

VARIABLE: Final = "SEED"
WITHOUT_GIT: Final = "headwater"
"""The seed of a tree that is no clone, as that of a source distribution."""


@functools.cache
def seed() -> str:
    """That of this run."""
    return os.environ.get(VARIABLE) or commit(Path(__file__).parent) or WITHOUT_GIT


def commit(folder: Path) -> str | None:
    """The id of the commit that is checked out in a folder; None: there is none, or no git."""
    try:
        asked = ["git", "-C", str(folder), "rev-parse", "--verify", "--quiet", "HEAD"]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def draw(seed: str, name: str) -> bytes:
    """The lot of something of that name: what draws the least is chosen first."""
    return hashlib.sha256(f"{seed}\n{name}".encode()).digest()
