"""The blocking client is the asyncio client without `async` and `await`, where it is not written by hand."""

from __future__ import annotations

import re

import pytest
from tests.client import unasync


@pytest.mark.parametrize("name", unasync.MODULES)
def test_a_module_is_what_is_made_of_its_source(name: str) -> None:
    remedy = "python -m tests.client.unasync"
    assert (unasync.CLIENT / "sync" / f"{name}.py").read_text(encoding="utf-8") == unasync.blocking(name), remedy


@pytest.mark.parametrize("name", unasync.MODULES)
def test_nothing_of_asyncio_is_left_in_it(name: str) -> None:
    text = unasync.blocking(name).partition("\n")[2]
    assert not re.findall(r"\basync\b|\bawait\b|[Aa]sync[A-Z]|asyncio|__a[a-z]+__|\btasks?\b|event loop", text)


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in unasync.RULES])
def test_every_rule_is_needed(pattern: str) -> None:
    sources = [(unasync.CLIENT / "aio" / f"{name}.py").read_text(encoding="utf-8") for name in unasync.MODULES]
    assert any(re.search(pattern, source, re.MULTILINE) for source in sources)
