"""The C files of `speedups/` are compiled where a C compiler is there, and missed by nothing where it is not."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from .environments import ROOT, pip

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_a_build_asks_for_nothing_but_hatchling() -> None:
    assert PROJECT["build-system"]["requires"] == ["hatchling>=1.28"]
    assert not PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"].get("dependencies")


@pytest.mark.parametrize(
    ("compiler", "why"),
    [
        ("/nowhere/cc", "the C compiler /nowhere/cc cannot be run (No such file or directory)"),
        ("false", "false ended with 1"),
        ("cc -nostdinc", "cc ended with 1: "),
    ],
)
def test_without_a_compiler_or_headers_the_build_succeeds_and_says_why(compiler: str, why: str, tmp_path: Path) -> None:
    said = pip("wheel", "--verbose", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT), CC=compiler)
    assert f"headwater is built as pure Python, without src/headwater/speedups/*.c: {why}" in said
    [wheel] = tmp_path.glob("headwater-*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
