"""The page of the Python API says what the modules say, and leaves nothing out."""

from __future__ import annotations

import re

import pytest

from . import python_api


def test_the_page_is_current():
    remedy = "make pages"
    assert python_api.PAGE.read_text(encoding="utf-8") == python_api.page(), remedy


def test_it_tells_nothing_that_differs_from_run_to_run():
    assert not re.search(r" at 0x|ForwardRef|<function|<class", python_api.page())


@pytest.mark.parametrize("name", ["AsyncLog", "Engine", "connect", "BulkClient", "Client", "session", "LogNotFound"])
def test_what_programs_import_is_there(name):
    assert f"### `{name}`\n" in python_api.page()


@pytest.mark.parametrize("part", python_api.PARTS, ids=lambda part: part.module)
def test_everything_public_says_what_it_is(part):
    page = python_api.page().partition(f"## {part.module}\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^### `(\w+)`$", page, re.MULTILINE)) == set(python_api.public(part))
    assert not re.search(r"\| See (EventLog|LogStore|LocalLog|StateStore)\b", page), "it says so here"
    assert not re.search(r"\| +\|$", page.replace("| | |", ""), re.MULTILINE), "a member without a docstring"
