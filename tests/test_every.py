"""A test of many cases fails with all that fail."""

from __future__ import annotations

import inspect

import pytest

from .every import every


def test_all_cases_that_fail_are_listed_with_their_lines() -> None:
    @every("number, limit", [(1, 2), (5, 2), (2, 2), (7, 0)])
    def checked(number: int, limit: int) -> None:
        assert number <= limit

    with pytest.raises(pytest.fail.Exception) as failed:
        checked()
    line = inspect.getsourcelines(checked)[1] + 2
    head, *failures = str(failed.value).split("\n[")
    assert head == "2 of 4 cases fail"
    assert [each.partition("\n")[0] for each in failures] == [
        f"5-2] line {line}: assert 5 <= 2",
        f"7-0] line {line}: assert 7 <= 0",
    ]


def test_what_should_have_been_raised_and_what_should_not_are_listed() -> None:
    @every("divisor", [1, 0, 2, "x"], ids=str)
    def checked(divisor: int) -> None:
        with pytest.raises(ZeroDivisionError):
            assert 1 / divisor

    with pytest.raises(pytest.fail.Exception) as failed:
        checked()
    text = str(failed.value)
    assert text.startswith("3 of 4 cases fail\n[1] line ") and "DID NOT RAISE" in text and "\n[2] line " in text
    assert "\n[x] Traceback" in text and "TypeError" in text


def test_fixtures_are_given_to_each_case_and_decorators_multiply() -> None:
    seen = []

    @every("one", [1, 2])
    @every("other", "ab")
    def checked(fixture: str, one: int, other: str) -> None:
        seen.append((fixture, one, other))

    assert list(inspect.signature(checked).parameters) == ["fixture"]
    checked(fixture="f")
    assert seen == [("f", 1, "a"), ("f", 1, "b"), ("f", 2, "a"), ("f", 2, "b")]


def test_no_cases_and_arguments_that_a_test_does_not_take_are_errors() -> None:
    with pytest.raises(AssertionError, match="there are no cases"):
        every("number", [])
    with pytest.raises(AssertionError, match="does not take other"):
        every("other", [1])(lambda number: None)
