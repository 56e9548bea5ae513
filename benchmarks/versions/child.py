"""`python -m benchmarks.versions.child PIECE DIRECTORY`: one version does a piece; a line of JSON has its CPU seconds.

With `prepare` behind it, it makes what the piece needs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .pieces import piece_of


def main(name: str, directory: str, *how: str) -> None:
    """Do it. Raises WrongAnswer."""
    piece = piece_of(name)
    if how:
        piece.prepare(Path(directory))
    else:
        print(json.dumps(piece.measure(Path(directory))))


if __name__ == "__main__":
    main(*sys.argv[1:])
