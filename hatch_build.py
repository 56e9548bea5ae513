"""The part of the build that is left out by default: some modules as machine code, compiled from the same source.

hatchling loads this only where HATCH_BUILD_HOOK_ENABLE_CUSTOM=1; which modules, is said in pyproject.toml. All is made
in a copy, so that no machine code is left beside the source, where it would be imported in its stead.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LENIENT = ("--ignore-missing-imports", "--follow-imports=silent")
"""`make types` checks the types, and strictly; here the libraries that the rest of the package imports are missing."""
OPTIMIZATION = "3"
"""A message of AMQP takes a tenth less than with 1; the build a quarter more."""
NATIVE = {"extra_compile_args": ["-O3", "-Wall", "-Wextra", "-Werror=implicit-function-declaration"]}


class CompiledModules(BuildHookInterface):
    """Compiles `modules` (lists of globs) without `interpreted`; the source stays in the wheel, for tracebacks and
    readers."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put what came out into the wheel."""
        if version == "editable":
            raise ValueError(
                "an editable install is interpreted: leave out -e, or unset HATCH_BUILD_HOOK_ENABLE_CUSTOM"
            )
        self._work = tempfile.TemporaryDirectory(prefix="headwater-compiled-")
        work = Path(self._work.name)
        source, library = work / "src", work / "lib"
        shutil.copytree(Path(self.root) / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        built = compiled(source, self._modules(source), self.config["native"], library)
        build_data["force_include"].update({str(each): str(each.relative_to(library)) for each in built})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is there: the copy is of no more use."""
        self._work.cleanup()

    def _modules(self, source: Path) -> dict[str, list[str]]:
        interpreted = set(self.config["interpreted"])
        return {
            group: sorted(
                {path.relative_to(source).as_posix() for glob in globs for path in source.glob(glob)} - interpreted
            )
            for group, globs in self.config["modules"].items()
        }


def compiled(source: Path, groups: Mapping[str, Sequence[str]], native: Sequence[str], library: Path) -> list[Path]:
    """Extension modules of these groups of modules of a source tree, and of these files in C, made below `library`."""
    from setuptools import Distribution, Extension  # before mypyc, to which it brings distutils
    from setuptools.command.build_ext import build_ext

    from mypyc.build import mypycify  # isort: skip

    modules = [module for group in groups.values() for module in group]
    with contextlib.chdir(source):  # no pyproject.toml is here, which setuptools and mypy would read
        extensions = mypycify(
            [*LENIENT, *modules],
            separate=[(list(group), f"headwater_{name}") for name, group in groups.items()],
            opt_level=OPTIMIZATION,
            debug_level="0",
        )
        for path in {path for extension in extensions for path in extension.sources}:
            Path(path).write_text(stored_first(Path(path).read_text()))
        extensions += [Extension(path.removesuffix(".c").replace("/", "."), [path], **NATIVE) for path in native]
        command = build_ext(Distribution({"name": "headwater", "ext_modules": extensions}))
        command.build_lib, command.build_temp = str(library), str(library.with_name("temp"))
        command.parallel = os.cpu_count()
        command.ensure_finalized()
        command.run()
    return [Path(output) for output in command.get_outputs()]


def stored_first(text: str) -> str:
    """C from mypyc in which an attribute has its new value before the old one is let go. Raises ValueError where not.

    mypyc lets go first. What is let go may take others along, and one of them the interpreter's lock: a mapped file
    does, while it is unmapped. Another thread that reads the attribute then gets an object that ends this moment.
    """
    text = _STORE.sub(r"Py_XSETREF(\g<attribute>, \g<value>);", text)
    text = _STORE_TUPLE.sub(_tuple_stored, text)
    if (found := _LET_GO.search(text)) is not None:
        raise ValueError(f"mypyc writes attributes in another form than it did: {text[found.start() :][:200]}")
    return text


def _tuple_stored(found: re.Match[str]) -> str:
    attribute = found["attribute"]
    let_go = found["let_go"].replace(f"CPy_DECREF({attribute}.", "CPy_XDECREF(old.")
    return f"{{ __typeof__({attribute}) old = {attribute}; {attribute} = {found['value']};\n{let_go}}}"


_ATTRIBUTE = r"(?:\(\(\w+ \*\)\w+\)|self)->\w+"
_LET_GO = re.compile(rf"CPy_X?DECREF\({_ATTRIBUTE}")
_STORE = re.compile(
    rf"(?:if \((?P<asked>{_ATTRIBUTE}) != NULL\) {{\n\s*)?"
    rf"CPy_DECREF\((?P<attribute>{_ATTRIBUTE})\);\n(?(asked)\s*}}\n)\s*(?P=attribute) = (?P<value>\w+);"
)
_STORE_TUPLE = re.compile(
    rf"if \([^\n]*\) {{\n(?P<let_go>(?:\s*CPy_DECREF\((?P<attribute>{_ATTRIBUTE})\.f\d+\);\n)+)\s*}}\n"
    rf"\s*(?P=attribute) = (?P<value>\w+);"
)
