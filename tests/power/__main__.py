"""`python -m tests.power [STATES]`: so many power cuts, of one run of the server after the other."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from . import workload
from .disk import Kind
from .states import State, check_all, cutter, workers

STATES_OF_A_RUN = 1000
SECOND_CUTS = 8


def main(states: int = 5000) -> int:
    """Answers the exit code: 1 if any promise was broken. The record of a run with faults is kept."""
    with workers() as pool:
        for run, first in enumerate(range(0, states, STATES_OF_A_RUN)):
            folder = Path(tempfile.mkdtemp(prefix="headwater-power-")).resolve()
            began = time.monotonic()
            (folder / "root").mkdir()
            workload.run(folder / "folder", folder / "root", folder / "records")
            found = _cut(pool, folder, range(first, min(first + STATES_OF_A_RUN, states)))
            faults = [state for state in found if state.faults]
            print(
                f"run {run + 1}: {len(found)} power cuts in {time.monotonic() - began:.0f} s, {len(faults)} with faults"
            )
            if faults:
                print("\n".join(map(str, faults)), f"\nthe record is kept: POWER_RECORD={folder}")
                return 1
            shutil.rmtree(folder)
    return 0


def _cut(pool: ProcessPoolExecutor, folder: Path, seeds: range) -> list[State]:
    """Each seed on one of the two kinds of disks; every fortieth with a second cut, every 250th on a whole server."""
    root, records, scratch = folder / "root", folder / "records", folder / "scratch"
    scratch.mkdir()
    found: list[State] = []
    for place, kind in enumerate(Kind):
        found += check_all(pool, records, root, scratch, kind, seeds[place::2])
        found += check_all(pool, records, root, scratch, kind, seeds[place::40], SECOND_CUTS)
        cuts = cutter(records, root, root.stat().st_ino, scratch)
        found += [cuts.whole(kind, seed) for seed in seeds[place::250]]
    return found


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
