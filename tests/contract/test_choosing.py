"""What runs by day: a seed always chooses the same tests, another one others; no kind and no file goes without."""

from __future__ import annotations

import itertools
import math
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ..seeds import VARIABLE, WITHOUT_GIT, commit, seed
from .choosing import WHOLE, Candidate, chosen
from .kinds import KINDS

ROOT = Path(__file__).parents[2]
FILE = "tests/contract/test_trim.py"
"""One whose tests run on all kinds."""
FILES = {f"tests/contract/test_{letter}.py": 1 + 3 * index for index, letter in enumerate("abcdef")}
"""How many tests each has: every other one is a function of its own, all others are one with many parameters."""
CANDIDATES = [
    Candidate(f"{file}::test_{number}[{kind}]" if number % 2 else f"{file}::test_of_many[{kind}-{number}]", kind)
    for file, count in FILES.items()
    for number in range(count)
    for kind in KINDS
]
SEEDS = [f"{number:040x}" for number in range(400)]


def test_seed_chooses_the_same_tests_in_any_order() -> None:
    for each in SEEDS[:9]:
        assert chosen(CANDIDATES, each) == chosen(reversed(CANDIDATES), each)


def test_each_test_is_chosen_by_some_seed_and_few_by_all() -> None:
    choices = [chosen(CANDIDATES, each) for each in SEEDS]
    assert set.union(*choices) == {each.name for each in CANDIDATES}
    by_all = set.intersection(*choices)
    alone = {each.name for each in CANDIDATES if FILES[each.file] == 1}
    assert by_all == alone | {each.name for each in CANDIDATES if each.kind in WHOLE}


def test_each_kind_runs_each_file_and_at_least_a_quarter_of_it() -> None:
    for each in SEEDS[:9]:
        names = chosen(CANDIDATES, each)
        found = Counter((candidate.file, candidate.kind) for candidate in CANDIDATES if candidate.name in names)
        for (file, count), kind in itertools.product(FILES.items(), KINDS):
            assert found[file, kind] == (count if kind in WHOLE else max(1, math.ceil(count / 4))), (file, kind)


def test_function_runs_once_before_another_runs_again() -> None:
    several = [Candidate(f"a.py::test_many[replica-{number}]", "replica") for number in range(10)]
    others = [Candidate(f"a.py::test_{letter}[replica]", "replica") for letter in "abc"]
    for each in SEEDS:
        functions = [name.partition("[")[0] for name in chosen([*several, *others], each)]
        assert len(functions) == 4 == len(set(functions))


def test_single_test_runs_on_the_kind_that_was_asked_for() -> None:
    for candidate in CANDIDATES:
        assert chosen([candidate], SEEDS[0]) == {candidate.name}


def test_day_runs_what_its_seed_chooses_and_says_which_it_is() -> None:
    given = {name: value for name, value in os.environ.items() if name not in ("NIGHT", "PYTEST_ADDOPTS")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", "-p", "no:xdist", FILE],
        capture_output=True, text=True, check=False, cwd=ROOT, env=given | {VARIABLE: "11aa"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    day = {f"{FILE}::{name}" for name in re.findall(r"<Function (.*)>$", done.stdout, re.MULTILINE)}
    on_memory = {name for name in day if "[memory" in name}
    night = {Candidate(name.replace("[memory", f"[{kind}"), kind) for name in on_memory for kind in KINDS}
    assert day == chosen(night, "11aa")
    assert "SEED=11aa" in done.stdout
    assert f"collected {len(night)} items / {len(night) - len(day)} deselected" in done.stdout


def test_seed_is_that_of_the_environment_or_the_id_of_the_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, "7")
    assert seed.__wrapped__() == "7"
    monkeypatch.delenv(VARIABLE)
    assert seed.__wrapped__() == (commit(ROOT) or WITHOUT_GIT)
    assert commit(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(ROOT) is None
