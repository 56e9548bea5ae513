"""What comes again and again is remembered, what is long is not."""

from __future__ import annotations

import pytest

from headwater.core.bounded_cache import CHARS_MAX, remembered, size_of


@pytest.mark.parametrize(
    ("argument", "times"),
    [
        ("x" * 100, 1),
        (("a", ("b", "c")), 1),
        (None, 1),
        ("x" * CHARS_MAX, 2),  # with itself as an argument it is one more
        (b"x" * CHARS_MAX, 2),
        (("x" * 1000, ("x" * 1000, "x" * 1000)), 2),
        (("",) * CHARS_MAX, 2),
    ],
)
def test_only_short_arguments_are_remembered(argument: object, times: int) -> None:
    asked = []

    @remembered(10)
    def answer(given: object) -> int:
        """What it does."""
        asked.append(given)
        return len(asked)

    assert answer(argument) == 1
    assert answer(argument) == times
    assert answer.__doc__ == "What it does."


def test_the_newest_are_remembered() -> None:
    asked = []

    @remembered(2)
    def answer(given: str) -> None:
        asked.append(given)

    for each in "abcba":
        answer(each)
    assert asked == ["a", "b", "c", "a"]


def test_a_size_is_looked_for_no_further_than_is_asked() -> None:
    class Untouchable(tuple[object, ...]):
        def __len__(self) -> int:
            raise AssertionError("it was looked at")

    assert size_of(("x" * 10, Untouchable()), 5) > 5
