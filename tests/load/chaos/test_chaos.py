"""A short chaos, and that its judges would notice. `make chaos` takes ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..place import Place
from .chaos import Chaos, Once, Seats
from .faults import FIRST

SECONDS = 30.0


@pytest.mark.timeout(600)
def test_what_was_acknowledged_is_there_once_in_one_order_whatever_fails(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, SECONDS)
    assert chaos.run() == []
    assert chaos.happened.total() >= min(2, len(FIRST))
    rows = {row.name: row.events for row in chaos.rows()}
    assert all(count for name, count in rows.items() if not name.startswith("once: ")), rows
    assert rows["once: known"] and rows["once: refused"], rows


def test_a_seat_with_two_winners_and_a_loser_that_is_there_would_be_noticed() -> None:
    seats = Seats()
    seats.told(0, "0:a", 1)
    seats.told(0, "0:b", None)
    assert seats.faults({1: "0:a"}) == []
    assert seats.faults({1: "0:b"}) == [
        "0:b was told that its condition failed, and is there",
        "0:a was told number 1, where 0:b is",
    ]
    assert seats.faults({1: "0:a", 2: "0:b"})[0] == "seat 0 has two winners: 0:a and 0:b (event 2)"


def test_a_batch_that_was_refused_and_is_there_or_in_part_would_be_noticed() -> None:
    once = Once(Place("http://127.0.0.1:1", "", "", "", ""), [])
    once.told, once.refused, once.unknown = {0: 3}, {1}, {2}
    whole = {1: "0:0", 2: "0:1", 3: "0:2"}
    assert once.faults(whole) == []
    assert once.faults(whole | {4: "2:0", 5: "2:1", 6: "2:2"}) == []
    assert once.faults(whole | {4: "1:0", 5: "1:1", 6: "1:2"}) == ["batch 1 was refused, and is there"]
    assert once.faults(whole | {4: "2:0", 5: "2:1"}) == ["batch 2 is not there as it was sent: [(0, 4), (1, 5)]"]
    assert once.faults({1: "0:0", 2: "0:1", 4: "0:2"}) == [
        "batch 0 was told number 3, and is there as [(0, 1), (1, 2), (2, 4)]"
    ]
