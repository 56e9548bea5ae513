"""The engine may be compiled, and the default install needs nothing of that."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .compiled import IS_COMPILED

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOOK = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
ONLY_FOR_COMPILING = ("mypy", "mypyc", "mypy_extensions", "librt", "setuptools", "hatchling")


def compiled_modules() -> list[str]:
    source = ROOT / "src"
    paths = {path.relative_to(source).as_posix() for glob in HOOK["modules"] for path in source.glob(glob)}
    return sorted(path.removesuffix(".py").replace("/", ".") for path in paths - set(HOOK["interpreted"]))


def test_the_default_build_and_install_name_no_compiler() -> None:
    assert HOOK["enable-by-default"] is False
    assert PROJECT["build-system"]["requires"] == ["hatchling"]
    assert not [each for each in PROJECT["project"]["dependencies"] if each.startswith(ONLY_FOR_COMPILING)]


def test_the_server_needs_nothing_that_only_compiling_needs() -> None:
    program = f"import sys\nfor name in {ONLY_FOR_COMPILING!r}: sys.modules[name] = None\nimport headwater.server.app"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_all_that_the_build_names_is_there() -> None:
    for path in [*HOOK["modules"], *HOOK["interpreted"]]:
        assert list((ROOT / "src").glob(path)), path


@pytest.mark.parametrize("name", compiled_modules())
def test_all_modules_are_compiled_or_none(name: str) -> None:
    assert str(importlib.import_module(name).__file__).endswith(".py") is not IS_COMPILED
