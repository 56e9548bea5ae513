"""The benchmarks of Spark run, small and without other servers, and check their answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """This process's, with the package and the benchmarks on the path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


@pytest.mark.timeout(600)
def test_every_question_is_answered(tmp_path: Path) -> None:
    sizes = "--events 2000 --rounds 1 --cold --live-s 1 --without-peers"
    options = f"{sizes} --json result.json --markdown result.md --directory ."
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
    assert [answer["question"] for answer in answers] == [
        "read",
        "write",
        "importing",
        "exporting",
        "archive",
        "micro_batch",
        "partitions",
        "memory",
    ]
    for answer in answers:
        for case in answer["cases"]:
            assert case["samples"], case["case"]
            for contender, samples in case["samples"].items():
                assert len(samples) == 1 and samples[0]["value"] > 0, (case["case"], contender)
    assert "aggregate over all columns" in (tmp_path / "result.md").read_text()
    assert not list(tmp_path.glob("spark-*")), "everything that was made for the run is gone"
