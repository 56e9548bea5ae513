"""`python -m demo.replicas`: three servers of one home, and what appends and reads do when primary and database die."""

from __future__ import annotations

import sys

from ..performance import perform
from .acts import ACTS
from .stage import ReplicaStage


def main() -> int:
    """Play; answers the exit code."""
    return perform(ReplicaStage(), ACTS)


if __name__ == "__main__":
    sys.exit(main())
