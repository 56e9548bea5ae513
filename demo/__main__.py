"""`python -m demo`: Headwater's whole story on one server."""

from __future__ import annotations

import argparse
import sys

from .acts import ACTS
from .performance import perform
from .stage import Stage


def main() -> int:
    """Play; answers the exit code."""
    parser = argparse.ArgumentParser(prog="demo", description="Headwater's whole story on real data.")
    parser.add_argument("--keep", action="store_true", help="leave the server running, with its data")
    keeps = parser.parse_args().keep
    return perform(Stage(keeps=keeps), ACTS)


if __name__ == "__main__":
    sys.exit(main())
