"""The page of the Python API says what the modules say, and leaves nothing out."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

from . import python_api
from .documents import ROOT, check_none, name_of, text_of
from .test_words import OF_USERS

WORDS_MAX = 8_000
_NAME = re.compile(r"^### `(\w+)`$", re.MULTILINE)
_CONSTANTS = re.compile(r"^Constants: (.*)\.$", re.MULTILINE)
_ELSEWHERE = re.compile(r": See (?:EventLog|LogStore|LocalLog|StateStore)\b")
_EMPTY = re.compile(r"^- `(?:async )?\.[^`]*`$", re.MULTILINE)
_IMPORT = re.compile(r"^from (headwater[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def test_the_page_is_current():
    remedy = "make pages"
    assert python_api.PAGE.read_text(encoding="utf-8") == python_api.page(), remedy


def test_it_tells_nothing_that_differs_from_run_to_run():
    assert not re.search(r" at 0x|ForwardRef|<function|<class", python_api.page())


def test_what_programs_import_is_there() -> None:
    page = python_api.page()
    names = ("AsyncLog", "Engine", "connect", "BulkClient", "Client", "session", "LogNotFound")
    check_none(f"{name_of(python_api.PAGE)}: {name} is not there" for name in names if f"### `{name}`\n" not in page)


def test_everything_public_says_what_it_is() -> None:
    page = python_api.page()
    check_none(
        f"{part.module}: {fault}"
        for part in python_api.PARTS
        for fault in _faults(page.partition(f"## {part.module}\n")[2].partition("\n## ")[0], python_api.public(part))
    )


def _faults(section: str, public: list[str]) -> Iterator[str]:
    """What is wrong with the section of a part that has these names."""
    if differing := _names(section) ^ set(public):
        yield f"on the page or public, but not both: {sorted(differing)}"
    yield from (f"does not say so here: {found[0]}" for found in _ELSEWHERE.finditer(section))
    yield from (f"a member without a docstring: {found[0]}" for found in _EMPTY.finditer(section))


def _names(section: str) -> set[str]:
    constants = _CONSTANTS.search(section)
    return {*_NAME.findall(section), *(re.findall(r"`(\w+)`", constants[1]) if constants else ())}


def test_all_that_a_section_lacks_is_found() -> None:
    section = "Constants: `C`, `D`.\n\n### `A`\n\n- `field: int`\n- `.a`: See EventLog.\n- `async .b()`\n"
    assert list(_faults(section, ["A", "B", "C", "D"])) == [
        "on the page or public, but not both: ['B']",
        "does not say so here: : See EventLog",
        "a member without a docstring: - `async .b()`",
    ]


def test_it_is_short_enough_to_read() -> None:
    assert len(python_api.page().split()) <= WORDS_MAX


def test_names_that_documents_and_examples_import_are_there() -> None:
    known = {(part.module, name) for part in python_api.PARTS for name in python_api.public(part)}
    known |= {tuple(part.module.rsplit(".", 1)) for part in python_api.PARTS}
    files = [*OF_USERS, ROOT / "README.md", *(ROOT / "examples").glob("*.py")]
    check_none(
        f"{name_of(file)}: {module}.{name} is not on the page"
        for file in files
        for module, names in _IMPORT.findall(text_of(file))
        for name in (each.partition(" as ")[0].strip() for each in names.split(","))
        if (module, name) not in known
    )


def test_members_that_are_chosen_are_those_of_a_class_of_the_page() -> None:
    kinds: dict[str, set[str]] = {}
    for part in python_api.PARTS:
        for name in python_api.public(part):
            found = getattr(importlib.import_module(part.module), name)
            kinds.setdefault(name, set()).update(dir(found))
    chosen = {name: set(members.split()) for name, members in python_api.CALLED.items()}
    check_none(f"{name}: {members - kinds[name]}" for name, members in chosen.items() if not members <= kinds[name])
    assert kinds.keys() >= python_api.SERVERS | python_api.GIVEN
