"""C takes the same out of transfers and messages that are alike as Python does."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.speedups import IS_NATIVE
from tests.seeds import seed
from tests.speedups.needing import needs_native
from tests.speedups.runs import fuzz_alike, fuzz_transfers

if IS_NATIVE:
    from headwater.speedups._native import alike, transfers

pytestmark = needs_native
ROUNDS = 500


def test_transfers_are_taken_as_in_python() -> None:
    assert fuzz_transfers(transfers, seed(), ROUNDS) > ROUNDS


def test_messages_are_taken_as_in_python() -> None:
    assert fuzz_alike(alike, seed(), ROUNDS) > ROUNDS // 4


WHOLE: tuple[Any, ...] = (bytes(64), 0, 8, 4, 20, 64, 1)


@pytest.mark.parametrize("given", [
    (), (*WHOLE[:6],), (bytearray(64), *WHOLE[1:]), (bytes(64), 65, *WHOLE[2:]), (bytes(64), -1, *WHOLE[2:]),
    (*WHOLE[:2], 3, *WHOLE[3:]), (*WHOLE[:2], 15, *WHOLE[3:]), (*WHOLE[:3], 7, *WHOLE[4:]), (*WHOLE[:6], "1"),
    (*WHOLE[:2], 1 << 70, *WHOLE[3:]), (*WHOLE[:3], (1 << 63) - 1, *WHOLE[4:]),
])  # fmt: skip
def test_transfers_whose_places_do_not_fit_are_left_to_python(given: tuple[Any, ...]) -> None:
    assert transfers(*given) is None


ALIKE: tuple[Any, ...] = ([b"head-id-tail\x01x"], 0, b"head", b"tail", 8, 13, 1, 0, b"", 99)


@pytest.mark.parametrize("place, value", [
    (0, (b"",)), (0, [b"head-id-tail\x01x", "text"]), (1, -1), (2, "head"), (2, b"head-id-t"), (3, b"tail+1"), (4, 13),
    (4, 1 << 70), (5, 1), (6, 2), (6, 0), (7, 14), (8, None), (9, -1),
])  # fmt: skip
def test_messages_whose_places_do_not_fit_are_left_to_python_with_nothing_appended(place: int, value: Any) -> None:
    data, envelopes = [b"before"], [b"before"]
    given = list(ALIKE)
    assert alike(*given, [], []) == (1, 14)
    given[place] = value
    assert alike(*given, data, envelopes) is None
    assert data == envelopes == [b"before"]
