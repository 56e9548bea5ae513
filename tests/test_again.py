"""A test that fails alone fails; one that passes alone is told; what says that something was lost is asked once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.again import AGAIN_MAX, JUDGES, main

FEW = ["tests/amqp/test_a.py::test_b", "tests/http/test_c.py::test_d[e]"]
MANY = [f"tests/amqp/test_a.py::test_{number}" for number in range(AGAIN_MAX + 1)]


@pytest.mark.parametrize(
    ("codes", "failed", "code"),
    [
        ([0], [], 0),
        ([1, 0], FEW, 0),
        ([1, 1], FEW, 1),
        ([1, 2], FEW, 2),
        ([1], MANY, 1),
        ([1], [], 1),
        ([2], FEW, 2),
        ([3], FEW, 3),
        ([5], [], 5),
        *[([1], [FEW[0], f"{each}test_x.py::test_y"], 1) for each in JUDGES],
    ],
)
def test_few_that_failed_are_run_once_more_alone(codes: list[int], failed: Sequence[str], code: int) -> None:
    asked: list[Sequence[str]] = []
    told: list[str] = []
    left = list(codes)

    def run(arguments: Sequence[str]) -> int:
        asked.append(arguments)
        return left.pop(0)

    assert main(["-n", "2"], run, lambda: failed, told.append) == code
    assert asked == [["-n", "2"], sorted(failed)][: len(codes)]
    assert left == []
    assert bool(told) is (len(codes) == 2)
    assert any("to be mended" in each for each in told) is (codes == [1, 0])
