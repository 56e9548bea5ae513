"""`python -m tests.nightly [PART ...]`: everything at full length, in parts of half an hour at most.

Without a part all are run that have not passed on this commit. What has passed is kept in `.nightly/`, step by step, so
that a run which was broken off goes on where it was; a part that is named is run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.seeds import WITHOUT_GIT, commit

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".nightly"
COMMIT = (commit(ROOT) or WITHOUT_GIT)[:12]
PYTEST = (sys.executable, "-m", "pytest", "-n", "2")
SPREAD = ("--dist", "worksteal")
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")


class Step(NamedTuple):
    """One command of a part."""

    name: str
    command: tuple[str, ...]


def rooms(*names: str) -> Step:
    """The tests of these folders, at full length."""
    return Step(" ".join(names), (*PYTEST, *SPREAD, *(f"tests/{name}" for name in names)))


def program(name: str, *arguments: str) -> Step:
    """A program of the tests, at full length."""
    kind = [each for each in arguments if each.isalpha()]
    return Step(" ".join((name, *kind)), (sys.executable, "-m", f"tests.{name}", *arguments))


def without_extension(*names: str) -> Step:
    """The same by the twins in Python."""
    step = rooms(*names)
    return Step(f"{step.name}, without the extension", ("env", "HEADWATER_NO_EXTENSIONS=1", *step.command))


HERE = Path(__file__).parent
APART = (
    "interop",
    "packaging",
    "benchmarks",
    "spark",
    "contract",
    "matrix",
    "homes",
    "console",
    "server",
    "load",
    "power",
)
REST = sorted(
    path.name for path in HERE.iterdir() if any(path.rglob("test_*.py")) and path.is_dir() and path.name not in APART
)
SPARK = sorted(path.relative_to(HERE / "spark").as_posix() for path in (HERE / "spark").rglob("test_*.py"))
HALVES = SPARK[::2], SPARK[1::2]
PARTS: Final[dict[int, tuple[Step, ...]]] = {
    1: (rooms("contract", "matrix", "homes", "server"),),
    2: (rooms("console", *REST),),
    3: (
        Step("spark, one half", (*PYTEST, *BY_FILE, *(f"tests/spark/{name}" for name in HALVES[0]))),
        without_extension("core", "storage", "amqp"),
    ),
    4: (
        Step("spark, the other half", (*PYTEST, *BY_FILE, *(f"tests/spark/{name}" for name in HALVES[1]))),
        program("speedups.sanitized", "300"),
    ),
    5: (
        Step("clients", (sys.executable, "-m", "tests.interop.install")),
        rooms("interop", "packaging", "benchmarks", "power"),
    ),
    6: (program("load", "soak", "600"), program("load", "chaos", "600"), program("load", "street", "60")),
    7: (program("power", "5000"), program("homes", "50000")),
    8: (rooms("load"),),
}
"""Each of half an hour at most on two cores."""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("parts", nargs="*", type=int, metavar="PART", help=f"1 to {len(PARTS)}")
    named = parser.parse_args().parts
    if unknown := [part for part in named if part not in PARTS]:
        parser.error(f"part {unknown[0]} given, 1 to {len(PARTS)} are there")
    failed = [part for part in named or PARTS if not passes(part, again=bool(named))]
    if failed:
        print(f"nightly: failed in part {', '.join(map(str, failed))} on {COMMIT}")
    return 1 if failed else 0


def passes(part: int, *, again: bool) -> bool:
    """Whether all steps of a part pass, or have passed on this commit."""
    KEPT.mkdir(exist_ok=True)
    kept = KEPT / f"{COMMIT}.json"
    passed: dict[str, float] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    is_passed = True
    for step in PARTS[part]:
        if step.name in passed and not again:
            print(f"nightly: part {part}, {step.name}: passed on {COMMIT} before, in {passed[step.name] / 60:.1f} min")
            continue
        began = time.monotonic()
        code = subprocess.run(step.command, cwd=ROOT, env=os.environ | {"NIGHT": "1"}).returncode
        took = time.monotonic() - began
        print(f"nightly: part {part}, {step.name}: {'failed' if code else 'passed'} on {COMMIT} in {took / 60:.1f} min")
        if code:
            passed.pop(step.name, None)
            is_passed = False
        else:
            passed[step.name] = round(took, 1)
        kept.write_text(json.dumps(passed, indent=1), encoding="utf-8")
    return is_passed


if __name__ == "__main__":
    sys.exit(main())
