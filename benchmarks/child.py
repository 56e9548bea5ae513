"""Work that needs a process of its own: to be killed, to be opened afresh, to have its memory weighed.

Run as `python -m benchmarks.child VERB NAME DIRECTORY TOTAL FRESH`; prints one JSON object per line on standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .bench import BATCH, FILL_IN_FLIGHT, OPENERS
from .measure import anonymous_bytes
from .workload import Workload


def command(verb: str, name: str, directory: Path, workload: Workload, fresh: int) -> list[str]:
    """The command line of a child; `fresh` events of the workload are the child's."""
    start = workload.reserve(fresh)
    arguments = [verb, name, str(directory), str(workload.total), str(start)]
    return [sys.executable, "-m", "benchmarks.child", *arguments]


def run(verb: str, name: str, directory: Path, workload: Workload, fresh: int = 0) -> dict[str, float]:
    """Run a child to its end; what it printed last."""
    line = command(verb, name, directory, workload, fresh)
    output = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout
    answer: dict[str, float] = json.loads(output.splitlines()[-1])
    return answer


def append_until_killed(name: str, directory: Path, workload: Workload) -> None:
    """Append for ever, in batches of 100 with some in flight, and print what is acknowledged."""
    store = OPENERS[name](directory)
    while True:
        batches = [workload.fresh(100) for _ in range(FILL_IN_FLIGHT)]
        _say(acknowledged=store.append_all(batches, FILL_IN_FLIGHT))


def open_store(name: str, directory: Path, workload: Workload) -> None:
    """Open the store; print how long that took until the first answers, and what the head is."""
    began = time.perf_counter()
    store = OPENERS[name](directory)
    head = store.head()
    matches = len(store.read_tag("account:0"))
    seconds = time.perf_counter() - began
    _say(seconds=seconds, head=head, matches=matches)
    store.close()


def weigh(name: str, directory: Path, workload: Workload) -> None:
    """Open the store, append a tenth more, read a thousand tags; print how much memory the process took for that."""
    batches = [workload.fresh(BATCH) for _ in range(workload.total // (10 * BATCH))]
    before = anonymous_bytes(os.getpid())
    store = OPENERS[name](directory)
    head = store.append_all(batches, FILL_IN_FLIGHT)
    for number in workload.account_numbers(1000):
        store.read_tag(f"account:{number}")
    _say(bytes=anonymous_bytes(os.getpid()) - before, head=head)
    store.close()


VERBS: dict[str, Callable[[str, Path, Workload], None]] = {
    "append-until-killed": append_until_killed,
    "open": open_store,
    "weigh": weigh,
}


def _say(**answer: float) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    """See the module."""
    verb, name, directory, total, start = sys.argv[1:]
    VERBS[verb](name, Path(directory), Workload(int(total), fresh_from=int(start)))


if __name__ == "__main__":
    main()
