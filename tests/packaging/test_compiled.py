"""Hot modules may be compiled: all that are named, and fit for it; the default install needs nothing of that."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from headwater.core import AppendCondition, Encoding, Event, Query, SequencedEvent
from headwater.core.build import IS_COMPILED
from headwater.core.event import NO_ATTRIBUTES

from .environments import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOOK = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
GLOBS = [glob for group in HOOK["modules"].values() for glob in group]
ONLY_FOR_COMPILING = ("mypy", "mypyc", "mypy_extensions", "librt", "setuptools", "hatchling")
TAKES_ALL = {"all", "any", "dict", "frozenset", "fromiter", "join", "list", "max", "min", "set", "sorted", "sum",
             "tuple", "next"}  # fmt: skip
"""What asks for every value before it answers, so that a list does as well; of `next` the compiler makes a loop."""


def compiled_paths() -> list[str]:
    source = ROOT / "src"
    paths = {path.relative_to(source).as_posix() for glob in GLOBS for path in source.glob(glob)}
    return sorted(paths - set(HOOK["interpreted"]))


def name_of(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def test_the_default_build_and_install_name_no_compiler() -> None:
    assert HOOK["enable-by-default"] is False
    assert PROJECT["build-system"]["requires"] == ["hatchling"]
    assert not [each for each in PROJECT["project"]["dependencies"] if each.startswith(ONLY_FOR_COMPILING)]


def test_the_server_needs_nothing_that_only_compiling_needs() -> None:
    program = f"import sys\nfor name in {ONLY_FOR_COMPILING!r}: sys.modules[name] = None\nimport headwater.server.app"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_all_that_the_build_names_is_there() -> None:
    for path in [*GLOBS, *HOOK["interpreted"], *HOOK["native"]]:
        assert list((ROOT / "src").glob(path)), path


@pytest.mark.parametrize("path", compiled_paths())
def test_all_modules_are_compiled_or_none(path: str) -> None:
    assert str(importlib.import_module(name_of(path)).__file__).endswith(".py") is not IS_COMPILED


@pytest.mark.parametrize("path", HOOK["native"])
def test_what_is_written_in_c_is_there_with_them(path: str) -> None:
    assert (find_spec(name_of(path.removesuffix(".c"))) is not None) is IS_COMPILED


@pytest.mark.parametrize("path", compiled_paths())
def test_no_generator_expression_is_lazy_where_the_compiler_makes_a_list_of_it(path: str) -> None:
    tree = ast.parse((ROOT / "src" / path).read_text())
    lazy = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.GeneratorExp)} - set(_taken_whole(tree))
    assert not lazy, f"{path}, lines {sorted(lazy)}: use a function that yields"


def _taken_whole(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in TAKES_ALL:
                yield from (argument.lineno for argument in node.args if isinstance(argument, ast.GeneratorExp))


@pytest.mark.parametrize(
    "value",
    [
        Event("A", b"x", ("order:17",), attributes={}),
        SequencedEvent(1, 2, 0, "A", b"x", (), "id", "", dict(NO_ATTRIBUTES), "", b"", Encoding.DATA),
        Query.where(types=["A"], tags=["order:17"]),
        AppendCondition(Query.all(), 7),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_goes_to_other_processes_is_pickled_the_same_by_both_builds(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    paths = {f"{type(each).__module__.replace('.', '/')}.py" for each in (value, *vars_of(value))}
    assert paths.isdisjoint(compiled_paths())


def vars_of(value: object) -> Iterator[object]:
    slots = getattr(type(value), "__slots__", ())
    return (getattr(value, name) for name in slots)
