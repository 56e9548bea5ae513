"""A process uses the extension if it is there and of the C files beside it, and the twins if it is told to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater import speedups
from headwater.speedups.sources import HERE, digest, sources
from tests.interop.install import unavailable

ROOT = Path(__file__).parents[2]
ASK = "from headwater.speedups import BUILD; print(BUILD)"
TESTS = (
    "tests/storage/frames/test_random_access.py",
    "tests/storage/frames/test_frame.py",
    "tests/storage/read/test_reader.py",
    "tests/core/message/test_validity.py",
    "tests/amqp/messages/test_plain.py",
    "tests/amqp/protocol/test_runs.py",
)
"""Of what has a twin."""
LINES_MAX, COLUMNS_MAX = 1000, 110
"""Of C and headers together: so much can be read through by one person."""


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What a Python of this environment does, with these variables instead of those of this process."""
    others = {name: value for name, value in os.environ.items() if name not in (speedups.VARIABLE, "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, *arguments], env=others | variables, cwd=ROOT, capture_output=True, text=True, timeout=200
    )


@pytest.fixture
def built() -> Path:
    """The library that an editable install has beside the C files."""
    library = next(HERE.glob("_native.*.so"), None)
    if library is None:
        unavailable("`make setup` found no C compiler, or this environment was made by something else")
    return library


@pytest.mark.parametrize(("value", "build"), [("", "with speedups"), ("0", "with speedups"), ("1", "pure Python")])
def test_a_variable_chooses_the_twins(built: Path, value: str, build: str) -> None:
    done = python("-c", ASK, HEADWATER_NO_EXTENSIONS=value)
    assert done.stdout.strip() == build, done.stderr


def test_an_editable_install_uses_the_library_of_the_files_beside_it(built: Path) -> None:
    done = python("-c", "from headwater.speedups import _native; print(_native.DIGEST)")
    assert done.stdout.strip() == digest(sources()), done.stderr


def copied(built: Path, tmp_path: Path) -> Path:
    """The package `speedups` alone, in another place."""
    package = tmp_path / "headwater"
    shutil.copytree(HERE, package / "speedups", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    return package / "speedups"


def test_a_library_of_other_files_is_refused_with_the_command_that_compiles_them(built: Path, tmp_path: Path) -> None:
    place = copied(built, tmp_path)
    with (place / "frames.c").open("a") as file:
        file.write("\n")
    done = python("-c", ASK, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and "StaleLibrary" in done.stderr and "run `make setup`" in done.stderr
    done = python("-c", ASK, PYTHONPATH=str(tmp_path), HEADWATER_NO_EXTENSIONS="1")
    assert done.stdout.strip() == "pure Python", done.stderr


def test_where_there_are_no_c_files_nothing_is_compared(built: Path, tmp_path: Path) -> None:
    for file in sources(copied(built, tmp_path)):
        file.unlink()
    done = python("-c", ASK, PYTHONPATH=str(tmp_path))
    assert done.stdout.strip() == "with speedups", done.stderr


def test_without_a_library_it_is_pure_python(built: Path, tmp_path: Path) -> None:
    (copied(built, tmp_path) / built.name).unlink()
    done = python("-c", ASK, PYTHONPATH=str(tmp_path))
    assert done.stdout.strip() == "pure Python", done.stderr


def test_a_library_that_cannot_be_loaded_is_an_error(built: Path, tmp_path: Path) -> None:
    (copied(built, tmp_path) / built.name).write_bytes(b"no library")
    done = python("-c", ASK, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and "ImportError" in done.stderr


def test_what_has_a_twin_passes_its_tests_without_the_extension() -> None:
    quiet = {"PYTEST_ADDOPTS": "-p no:cacheprovider -q", "HEADWATER_NO_EXTENSIONS": "1"}
    done = python("-m", "pytest", *TESTS, **quiet)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr


def test_the_c_files_stay_short() -> None:
    lines = [line for file in sources() for line in file.read_text().splitlines()]
    assert len(lines) <= LINES_MAX and max(map(len, lines)) <= COLUMNS_MAX


def test_each_function_has_a_type_and_no_other_is_named() -> None:
    stub = re.findall(r"^def (\w+)", (HERE / "_native.pyi").read_text(), re.M)
    tables = [name for file in sources() for name in re.findall(r"ENTRY\((\w+)\),", file.read_text(), re.M)]
    assert sorted(stub) == sorted(tables)
