"""Documents and errors say how to install Headwater in a form that works: it is on no package index."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from headwater import __version__
from headwater.formats.installing import how_to_install

from .documents import DOCUMENTS, ROOT, check_none, line_of, name_of, text_of

FILES = sorted(
    file for room in ("src", "benchmarks", "demo", "examples", "deploy") for file in (ROOT / room).rglob("*.py")
)
EXTRAS = ("spark", "postgres", "mysql", "oidc")
"""Those that errors ask for."""
START = ROOT / "docs" / "start.md"
BARE = re.compile(r"pip3? install (?:-\S+ )*['\"`]?headwater(?![\w-])|(?<!\.whl)['\"`]headwater\[[\w,]+\]")
"""The name without a path before it or a wheel's version behind it: pip would ask an index for it."""
WARNINGS = ("`pip install headwater` is not ours", "Do not run `pip install headwater`: that name is not ours")
"""Where a document may say it."""


def bare_names(text: str) -> Iterator[tuple[int, str]]:
    """Where a text says to install by the bare name, each with its line."""
    for warning in WARNINGS:
        text = text.replace(warning, "")
    return ((line_of(text, found.start()), found[0]) for found in BARE.finditer(text))


def test_what_counts_as_the_bare_name() -> None:
    bare = [
        "pip install headwater",
        "pip install --upgrade headwater",
        "`pip install 'headwater[spark]'`",
        "with `headwater[spark]`",
    ]
    others = [
        "pip install headwater-*.whl",
        'pip install "$(echo ./headwater-0.2.0-*.whl)[spark]"',
        "pip install '.[spark]'",
        WARNINGS[0],
    ]
    assert [text for text in bare + others if list(bare_names(text))] == bare


def test_nothing_says_to_install_by_the_bare_name() -> None:
    check_none(
        (
            f"{name_of(file)}:{line}: {said}"
            for file in [*DOCUMENTS, *FILES]
            for line, said in bare_names(text_of(file))
        ),
        "link to docs/start.md#install, or use how_to_install",
    )


def test_the_first_screen_warns_of_the_bare_name() -> None:
    screen, _, _ = text_of(ROOT / "README.md").partition("\n## ")
    assert "Headwater is not on PyPI; `pip install headwater` is not ours" in screen


def test_the_page_and_the_errors_give_the_same_commands() -> None:
    commands = {extra: re.findall(r"`(pip install [^`]+)`", how_to_install(extra)) for extra in EXTRAS}
    page = text_of(START)
    check_none(
        f"{name_of(START)} has no `{command}` with [{extra}]"
        for extra, given in commands.items()
        for command in given
        if f"`{command.replace(f'[{extra}]', '[spark]')}`" not in page
    )
    assert {extra: len(given) for extra, given in commands.items()} == dict.fromkeys(EXTRAS, 2)
    check_none(f"{given[1]} is not of {__version__}" for given in commands.values() if __version__ not in given[1])


def test_the_page_has_a_row_for_each_extra_of_users() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = re.findall(r"^\| `(\w+)` \|", text_of(START), re.MULTILINE)
    assert sorted(rows) == sorted(set(project["optional-dependencies"]) - {"bench", "demo", "dev", "site"})
