"""Run schedules: `python -m tests.homes 50000`, or one of them again: `python -m tests.homes --seed 123`.

With `--broken NAME` a rule is broken on purpose; `--kind forgets` has homes with an asynchronous standby only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from .simulator import Result, run

CHUNK = 200


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.homes", description="Simulate servers of a shared home.")
    parser.add_argument("schedules", type=int, nargs="?", default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this schedule alone")
    parser.add_argument("--broken", action="append", default=[], help="rules to break, see mutants.py")
    parser.add_argument("--kind", choices=["", "forgets", "silent", "witness", "weakened"], default="")
    asked = parser.parse_args()
    seeds = (
        range(asked.first, asked.first + asked.schedules) if asked.seed is None else range(asked.seed, asked.seed + 1)
    )
    return _report(_results(seeds, frozenset(asked.broken), asked.kind), len(seeds))


def _results(seeds: range, broken: frozenset[str], kind: str) -> Iterator[Result]:
    if len(seeds) <= CHUNK:
        yield from map(run, seeds, repeat(broken), repeat(kind))
        return
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(run, seeds, repeat(broken), repeat(kind), chunksize=CHUNK)


def _report(results: Iterator[Result], schedules: int) -> int:
    counts: Counter[str] = Counter()
    failed, longest, overlap = 0, 0.0, 0.0
    for result in results:
        counts.update(result.counts)
        counts["schedules in which the home forgot something"] += result.forgot
        longest, overlap = max(longest, result.live_after), max(overlap, result.overlap_s)
        failed += bool(result.findings)
        for rule, what in result.findings.items():
            print(f"seed {result.seed}: {rule}: {what}", flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:>10} {name}")
    print(f"after the last fault every log took an append within {longest:.1f} s")
    print(f"coordinators of two servers overlapped by at most {overlap:.2f} s")
    print(f"{failed} of {schedules} schedules failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
