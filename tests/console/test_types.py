"""TypeScript's compiler reads the console's JavaScript: names, properties, arguments and comments of types fit.

It is the one that the client of the OpenAPI documents is made with; `make interop` installs it. Nothing is compiled.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.console import pages
from tests.interop.install import unavailable
from tests.interop.runtimes import OpenapiTypescript

PROJECT = Path(__file__).parent / "tsconfig.json"
STATIC = Path(pages.__file__).parent / "static"
FOUND = re.compile(r"^(?P<path>[^(\n]+)\(\d+,\d+\): error .*$", re.MULTILINE)
MISTAKEN = f"""
import {{ get, h, surveyNever }} from "{STATIC}/core.js";
h("p", {{}}, "text").textContnet = "";
get("/logs", "an ending", "more");
"""
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """What the compiler finds, by file: in the console, and in `mistaken.js`."""
    runtime = OpenapiTypescript()
    if reason := runtime.missing():
        unavailable(reason)
    project = tmp_path_factory.mktemp("types")
    (project / "mistaken.js").write_text(MISTAKEN)
    (project / "tsconfig.json").write_text(json.dumps({"extends": str(PROJECT), "include": [f"{STATIC}/*.js", "*.js"]}))
    command = [runtime.program("tsc"), "--pretty", "false", "--project", str(project)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False).stdout
    by_file: dict[str, list[str]] = {}
    for each in FOUND.finditer(said):
        by_file.setdefault(Path(each["path"]).name, []).append(each[0])
    assert all(FOUND.match(line) or line.startswith(" ") for line in said.splitlines()), said
    return by_file


def test_the_compiler_finds_nothing(found: Mapping[str, list[str]]) -> None:
    read = {path.name for path in STATIC.glob("*.js")}
    assert read == {name for name in pages.FILES if name.endswith(".js")}
    assert {name: told for name, told in found.items() if name in read} == {}


def test_what_is_mistaken_is_found(found: Mapping[str, list[str]]) -> None:
    told = found["mistaken.js"]
    assert len(told) == 3
    assert "surveyNever" in told[0] and "textContnet" in told[1] and "arguments" in told[2]
