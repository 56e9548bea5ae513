"""Pyright, as editors have it, reads the examples in its strict mode: nothing is unknown, and nothing is cast.

`make interop` installs it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .install import unavailable
from .runtimes import HERE, Pyright

ROOT = HERE.parents[1]
pytestmark = pytest.mark.timeout(180)


def test_it_finds_nothing_in_the_examples(tmp_path: Path) -> None:
    runtime = Pyright()
    if reason := runtime.missing():
        unavailable(reason)
    settings = tmp_path / "pyrightconfig.json"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    settings.write_text(json.dumps({"include": ["examples"], "typeCheckingMode": "strict", "pythonVersion": "3.11"}))
    command = [*runtime.command(), "--outputjson", "--pythonpath", sys.executable, "--project", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    said = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] == len(list((ROOT / "examples").glob("*.py"))), done.stdout
    assert said["generalDiagnostics"] == [], done.stdout


def test_the_examples_say_nothing_that_a_checker_must_believe() -> None:
    said = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py"))
    assert re.findall(r"\bcast\(|type: ignore|pyright: ", said) == []
