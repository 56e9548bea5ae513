"""Documents and errors say how to install Headwater in a form that works: it is on no package index."""

from __future__ import annotations

import re

import pytest

from headwater import __version__
from headwater.formats.installing import how_to_install

from .documents import DOCUMENTS, ROOT, name_of

SOURCES = sorted(
    file for room in ("src", "benchmarks", "demo", "examples", "deploy") for file in (ROOT / room).rglob("*.py")
)
START = ROOT / "docs" / "start.md"
BARE = re.compile(r"pip3? install (?:-\S+ )*['\"`]?headwater(?![\w-])|(?<!\.whl)['\"`]headwater\[[\w,]+\]")
"""The name without a path before it or a wheel's version behind it: pip would ask an index for it."""
WARNINGS = ("`pip install headwater` is not ours", "Do not run `pip install headwater`: that name is not ours")
"""Where a document may say it."""


@pytest.mark.parametrize(
    ("text", "is_bare"),
    [
        ("pip install headwater", True),
        ("pip install --upgrade headwater", True),
        ("`pip install 'headwater[spark]'`", True),
        ("with `headwater[spark]`", True),
        ("pip install headwater-*.whl", False),
        ('pip install "$(echo ./headwater-0.2.0.dev0-*.whl)[spark]"', False),
        ("pip install '.[spark]'", False),
    ],
)
def test_what_counts_as_the_bare_name(text, is_bare):
    assert bool(BARE.search(text)) == is_bare


@pytest.mark.parametrize("file", [*DOCUMENTS, *SOURCES], ids=name_of)
def test_nobody_is_told_to_install_by_the_bare_name(file):
    text = file.read_text(encoding="utf-8")
    for warning in WARNINGS:
        text = text.replace(warning, "")
    assert BARE.findall(text) == [], "link to docs/start.md#install, or use how_to_install"


def test_the_first_screen_warns_of_the_bare_name() -> None:
    screen, _, _ = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")
    assert "Headwater is not on PyPI; `pip install headwater` is not ours" in screen


@pytest.mark.parametrize("extra", ["spark", "postgres", "mysql", "oidc"])
def test_the_page_and_the_errors_give_the_same_commands(extra):
    commands = re.findall(r"`(pip install [^`]+)`", how_to_install(extra))
    assert len(commands) == 2
    assert all(f"`{command}`" in START.read_text(encoding="utf-8") for command in commands)
    assert __version__ in commands[1]
