"""How long tests take, so that the slow ones start first; and what a run took.

`tests/seconds.json` has the tests of a second and more, as two quiet cores ran them; `pytest --write-seconds` brings it
up to date with what was run. Nothing is proved by it: a test that is not in it is taken to be quick.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Final

import pytest

FILE: Final = Path(__file__).with_suffix(".json")
SECONDS: Final[dict[str, float]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
"""By the id of a test."""
SECONDS_MIN: Final = 1.0
"""Quicker tests are not in the file."""
SLOWEST: Final = 10
"""So many tests are named at the end of a run."""
TOLD_FROM: Final = 100
"""A run of fewer tests ends without a table."""


class Seconds:
    """The plugin that orders tests and says where the time went."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._taken: Counter[str] = Counter()
        """Seconds by test, what comes before and after it included."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Tell a worker of xdist how tests are handed out."""
        node.workerinput["dist"] = self._config.getoption("dist")  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        """Put slow files first, or with `--shuffle SEED` all in a random order; a file's tests stay together."""
        answer = yield  # what does not run is left out now
        files: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
        for item in items:
            files[item.path].append(item)
        worker = getattr(self._config, "workerinput", {"workercount": 1, "dist": "no"})
        if (seed := self._config.getoption("shuffle")) is not None:
            items[:] = shuffled(list(files.values()), Random(seed))
        elif worker["dist"] == "worksteal":
            items[:] = spread(list(files.values()), worker["workercount"])
        elif worker["dist"] != "no":
            items[:] = [item for file in sorted(files.values(), key=by_itself) for item in file]
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a set-up, a call or an end."""
        self._taken[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which folders and which tests took long."""
        if len(self._taken) < TOLD_FROM:
            return
        folders: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for nodeid, seconds in self._taken.items():
            folder = "/".join(nodeid.split("/")[:2]).partition("::")[0]
            folders[folder] += seconds
            counts[folder] += 1
        write = terminalreporter.write_line
        terminalreporter.section("minutes of workers by folder", sep="-")
        for folder, seconds in folders.most_common():
            write(f"{seconds / 60:6.2f}  {counts[folder]:6,}  {folder}")
        write(f"{folders.total() / 60:6.2f}  {counts.total():6,}  in all")
        terminalreporter.section(f"the {SLOWEST} slowest tests, in seconds", sep="-")
        for nodeid, seconds in self._taken.most_common(SLOWEST):
            write(f"{seconds:6.1f}  {nodeid}")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """With `--write-seconds`, write what was measured."""
        if not self._config.getoption("write_seconds") or hasattr(self._config, "workerinput") or exitstatus > 1:
            return
        root = FILE.parents[1]
        known = {nodeid: seconds for nodeid, seconds in SECONDS.items() if (root / nodeid.partition("::")[0]).exists()}
        known.update((nodeid, round(seconds, 1)) for nodeid, seconds in self._taken.items())
        slow = {nodeid: seconds for nodeid, seconds in sorted(known.items()) if seconds >= SECONDS_MIN}
        FILE.write_text(json.dumps(slow, indent=0) + "\n", encoding="utf-8")


def takes(file: Iterable[pytest.Item]) -> float:
    """How long the tests of a file take, as far as they are slow."""
    return sum(SECONDS.get(item.nodeid, 0.0) for item in file)


def by_itself(file: Sequence[pytest.Item]) -> tuple[bool, float]:
    """What files that go to one worker each are ordered by: the slowest first, and those last that say `RUNS_LAST`."""
    return getattr(getattr(file[0], "module", None), "RUNS_LAST", False), -takes(file)


def shuffled(files: list[list[pytest.Item]], random: Random) -> list[pytest.Item]:
    """All tests: files in a random order, and the tests of each."""
    random.shuffle(files)
    for file in files:
        random.shuffle(file)
    return [item for file in files for item in file]


def spread(files: Sequence[list[pytest.Item]], workers: int) -> list[pytest.Item]:
    """All tests in as many equal shares as there are workers; each begins with slow files, of about the same seconds.

    xdist's worksteal gives each worker such a share, and later one that has nothing left the end of another's.
    """
    count, slow = sum(map(len, files)), [file for file in files if takes(file)]
    quick = [item for file in files if not takes(file) for item in file]
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    taken = [0.0] * workers
    for file in sorted(slow, key=takes, reverse=True):
        least = taken.index(min(taken))
        shares[least] += file
        taken[least] += takes(file)
    sizes = [(count + place) // workers for place in range(workers)]
    for share, size in zip(shares, sizes, strict=True):
        quick += share[size:]
        del share[size:]
    for share, size in zip(shares, sizes, strict=True):
        wanted = size - len(share)
        share += quick[:wanted]
        del quick[:wanted]
    return [item for share in shares for item in share]
