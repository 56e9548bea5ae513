"""Some damaged files for the extension and its twins; by night `sanitized` tries many more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.seeds import seed

from .needing import needs_native

CASES = 600


@needs_native
def test_the_extension_and_its_twins_agree_on_damaged_files() -> None:
    from .fuzz import check

    left: Iterator[bool] = iter([True] * CASES)
    assert check(lambda: next(left, False), seed()) == CASES


@needs_native
def test_a_disagreement_is_told_with_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    from . import fuzz

    monkeypatch.setattr(fuzz, "pick_any", lambda *_: 0)
    with pytest.raises(fuzz.Disagreement, match=r"case \d+ of seed s: walk answers"):
        fuzz.check(lambda: True, "s")
