"""The page of the Python API says what the modules say, and leaves nothing out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import python_api
from .documents import check_none, name_of

_NAME = re.compile(r"^### `(\w+)`$", re.MULTILINE)
_ELSEWHERE = re.compile(r"\| See (?:EventLog|LogStore|LocalLog|StateStore)\b")
_EMPTY = re.compile(r"^.*\| +\|$", re.MULTILINE)


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
    if differing := set(_NAME.findall(section)) ^ set(public):
        yield f"on the page or public, but not both: {sorted(differing)}"
    yield from (f"does not say so here: {found[0]}" for found in _ELSEWHERE.finditer(section))
    yield from (f"a member without a docstring: {found[0]}" for found in _EMPTY.finditer(section.replace("| | |", "")))


def test_all_that_a_section_lacks_is_found() -> None:
    section = "### `A`\n\n| | |\n| --- | --- |\n| `.a` | See EventLog. |\n| `.b` |  |\n"
    assert list(_faults(section, ["A", "B"])) == [
        "on the page or public, but not both: ['B']",
        "does not say so here: | See EventLog",
        "a member without a docstring: | `.b` |  |",
    ]
