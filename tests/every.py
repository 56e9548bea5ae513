"""One test for all cases of a kind, where an item for each would cost more than the case."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from types import TracebackType
from typing import Any

import pytest

Test = Callable[..., None]


NAME_CHARS_MAX = 100
"""Of a value that names its case."""


def brief(value: Any) -> str:
    """A value as it is written, cut where that is long."""
    text = repr(value)
    return text if len(text) <= NAME_CHARS_MAX else f"{text[:NAME_CHARS_MAX]}... ({len(text)} characters)"


def every(
    names: str | Sequence[str], cases: Iterable[Any], ids: Callable[[Any], str] = brief
) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but the cases are one test, which runs all and fails with all that fail.

    For cases that take no fixture of their own: what other fixtures made is the same for all of them.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [_values(case, len(arguments)) for case in cases]
    assert rows, "there are no cases"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in arguments]
        assert len(others) == len(signature.parameters) - len(arguments), f"{test.__name__} does not take {names}"

        @wraps(test)
        def run(**fixtures: Any) -> None:
            failures = []
            for values in rows:
                try:
                    test(**fixtures, **dict(zip(arguments, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    name = "-".join(map(ids, values))
                    failures.append(f"[{name}] {_shown(error, inspect.getfile(test))}")
            if failures:
                pytest.fail("\n".join([f"{len(failures)} of {len(rows)} cases fail", *failures]), pytrace=False)

        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


def _values(case: Any, count: int) -> Sequence[Any]:
    """The values of a case."""
    assert not isinstance(case, type(pytest.param())), "marks and ids of cases are for parametrize"
    return case if count > 1 else (case,)


def _shown(error: BaseException, file: str) -> str:
    """The line of the test that failed and why; the whole traceback where it is not an assertion of it."""
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return f"line {_line(error.__traceback__, file)}: {error or type(error).__name__}"
    return "".join(traceback.format_exception(error))


def _line(trace: TracebackType | None, file: str) -> int:
    """The last line of a file in a traceback."""
    return [line for frame, line in traceback.walk_tb(trace) if frame.f_code.co_filename == file][-1]
