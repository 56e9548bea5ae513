"""`storage/frames/_pick.c` is compiled where a C compiler is there, and missed by nothing where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from headwater.core.build import BUILD
from tests.interop.install import unavailable

from .environments import PURE, ROOT, built_wheel, pip

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TESTS = (
    "tests/storage/frames/test_random_access.py",
    "tests/storage/frames/test_frame.py",
    "tests/storage/read/test_reader.py",
)
"""Of what takes events out of frames."""
ASK = "from headwater.core.build import BUILD; print(BUILD)"
RUN_S_MAX = 200


@pytest.fixture(params=["with _pick", "pure Python"])
def build(request: pytest.FixtureRequest) -> str:
    """What `headwater --version` says of it."""
    return str(request.param)


def test_a_build_asks_for_nothing_but_hatchling() -> None:
    assert PROJECT["build-system"]["requires"] == ["hatchling"]
    assert not PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"].get("dependencies")


def test_events_are_taken_out_of_frames_alike_by_both_builds(build: str, tmp_path: Path) -> None:
    wheel = built_wheel(tmp_path / "dist", **(PURE if build == "pure Python" else {}))
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path / "package")
    variables = os.environ | {"PYTHONPATH": str(tmp_path / "package"), "PYTEST_ADDOPTS": "-p no:cacheprovider -q"}
    variables.pop("PYTEST_XDIST_WORKER", None)
    said = subprocess.run([sys.executable, "-c", ASK], env=variables, cwd=ROOT, capture_output=True, text=True)
    assert said.stdout.strip() == build, said.stderr
    command = [sys.executable, "-m", "pytest", *TESTS]
    done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("compiler", "why"),
    [
        ("/nowhere/cc", "the C compiler /nowhere/cc cannot be run (No such file or directory)"),
        ("false", "false ended with 1"),
    ],
)
def test_without_a_compiler_the_build_succeeds_and_says_what_it_lacks(compiler: str, why: str, tmp_path: Path) -> None:
    said = pip("wheel", "--verbose", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT), CC=compiler)
    assert f"headwater is built as pure Python, without src/headwater/storage/frames/_pick.c: {why}" in said
    [wheel] = tmp_path.glob("headwater-*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")


def test_an_editable_install_has_it_beside_its_source() -> None:
    source = ROOT / "src" / "headwater" / "storage" / "frames" / "_pick.c"
    module = source.with_name(f"_pick{sysconfig.get_config_var('EXT_SUFFIX')}")
    if not module.exists():
        unavailable("`make setup` found no C compiler, or this environment was made by something else")
    assert module.stat().st_mtime >= source.stat().st_mtime, "it is older than its source: `make setup` is due"
    assert BUILD == "with _pick"
