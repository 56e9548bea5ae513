"""The benchmarks of Spark run, small and without other servers, and check their answers."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.spark import questions
from benchmarks.spark.__main__ import QUESTIONS

from tests.night import IS_NIGHT

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """This process's, with the package and the benchmarks on the path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def test_every_question_that_there_is_can_be_asked() -> None:
    """Its module is imported, as a change elsewhere may keep it from that."""
    there = {path.stem for path in Path(questions.__file__).parent.glob("*.py")} - {"__init__"}
    assert there == set(QUESTIONS)
    modules = [importlib.import_module(f"{questions.__name__}.{name}") for name in QUESTIONS]
    assert [module.__name__ for module in modules if not (module.TITLE and callable(module.cases))] == []


@pytest.mark.timeout(600)
def test_every_question_is_answered(tmp_path: Path) -> None:
    """By day one of them, which reads."""
    only = "" if IS_NIGHT else f" --only {QUESTIONS[0]}"
    sizes = f"--events 2000 --rounds 1 --cold --live-s 1 --without-peers{only}"
    options = f"{sizes} --json result.json --directory ."
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark", *options.split()],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr or done.stdout
    answers = json.loads((tmp_path / "result.json").read_text())["questions"]
    assert [answer["question"] for answer in answers] == list(QUESTIONS if IS_NIGHT else QUESTIONS[:1])
    for answer in answers:
        for case in answer["cases"]:
            assert case["samples"], case["case"]
            for contender, samples in case["samples"].items():
                assert len(samples) == 1 and samples[0]["value"] > 0, (case["case"], contender)
    assert not list(tmp_path.glob("spark-*")), "everything that was made for the run is gone"
