"""The suite's own rules: how tests are ordered, which of the night's run by day, and that no skip is silent."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from tests import night, nightly, seconds

ROOT = Path(__file__).parents[1]
SKIPPING = """
import pytest
from tests.skips import Skips
@pytest.mark.skipif(True, reason={reason!r})
def test_skipped(): raise AssertionError
def test_run(): pass
if __name__ == "__main__":
    options = ["-q", "-c", __file__ + ".ini", "-p", "no:cacheprovider"]
    raise SystemExit(pytest.main([__file__, *options], plugins=[Skips()]))
"""


class Item:
    """As much of a test as its order takes."""

    def __init__(self, file: int, number: int) -> None:
        self.path, self.nodeid = Path(f"test_{file}.py"), f"test_{file}.py::{number}"


def files(*counts: int) -> list[list[pytest.Item]]:
    return [[cast(Any, Item(file, number)) for number in range(count)] for file, count in enumerate(counts)]


def test_each_worker_begins_with_slow_files_of_about_the_same_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    given = files(3, 2, 4, 1, 7)
    monkeypatch.setattr(seconds, "SECONDS", {"test_1.py::0": 60.0, "test_3.py::0": 50.0, "test_4.py::6": 20.0})
    order = seconds.spread(given, 2)
    assert sorted(item.nodeid for item in order) == sorted(item.nodeid for file in given for item in file)
    first, second = order[:8], order[8:]
    assert (first[0].path.name, second[0].path.name) == ("test_1.py", "test_3.py")
    assert sum(seconds.takes([item]) for item in second) == 70


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_no_test_is_lost_or_doubled_by_any_order(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(7)
    for _ in range(50):
        given = files(*(random.randint(1, 9) for _ in range(random.randint(1, 12))))
        every = [item.nodeid for file in given for item in file]
        slow = random.sample(every, k=random.randint(0, len(every)))
        monkeypatch.setattr(seconds, "SECONDS", {nodeid: random.uniform(1, 90) for nodeid in slow})
        assert sorted(item.nodeid for item in seconds.spread(given, workers)) == sorted(every)
        assert sorted(item.nodeid for item in seconds.shuffled(given, random)) == sorted(every)


def test_a_slice_of_the_night_is_that_of_its_seed_and_every_test_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    nodeids = [f"test_{n}" for n in range(40)]
    monkeypatch.setattr(night, "SECONDS", {nodeid: 10.0 for nodeid in nodeids})
    seen: set[str] = set()
    for seed in range(60):
        monkeypatch.setattr(night, "seed", lambda seed=seed: str(seed))
        chosen = night.sliced(nodeids, 45.0)
        assert len(chosen) == 4 and chosen == night.sliced(nodeids[::-1], 45.0)
        seen |= chosen
    assert seen == set(nodeids)


@pytest.mark.parametrize(
    ("reason", "in_ci", "code", "said"),
    [
        ("SQLite has one writer at a time", "true", 0, ""),
        ("no such program", "true", 1, "skipped, and not for a reason in tests/skips.py"),
        ("no such program", "", 0, "left out on this machine"),
    ],
)
def test_a_skip_without_a_known_reason_fails_in_ci_and_is_named_elsewhere(
    reason: str, in_ci: str, code: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "test_skipping.py"
    file.write_text(SKIPPING.format(reason=reason), encoding="utf-8")
    file.with_suffix(".py.ini").write_text("[pytest]\n", encoding="utf-8")
    variables = {"CI": in_ci, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, str(file)], env=variables, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
    assert (f"1  {reason}" in done.stdout) is bool(said) and said in done.stdout


def test_the_night_holds_every_folder_of_tests_and_every_file_of_spark_once() -> None:
    steps = list(itertools.chain(*nightly.PARTS.values()))
    assert len({step.name for step in steps}) == len(steps)
    whole = [step.command for step in steps if step.command[0] != "env"]  # others run a part of it in another way
    given = [argument for command in whole for argument in command if argument.startswith("tests/")]
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "tests").glob("*/**/test_*.py")}
    rooms = {f"tests/{folder.parts[1]}" for folder in folders} - {"tests/spark"}
    spark = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "spark").rglob("test_*.py")}
    assert sorted(given) == sorted(rooms | spark)
