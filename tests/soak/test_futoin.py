"""A few seconds of the soak, and that it would notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from .futoin import KILLS_MIN, Soak


@pytest.mark.timeout(120)
def test_acknowledged_ids_are_received_ids_in_order_whatever_is_killed(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seconds=4)
    soak.run()
    assert soak.kills >= KILLS_MIN
    assert len(soak.acknowledged) > 20


def test_a_lost_an_unknown_or_a_misplaced_event_would_be_noticed(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seconds=0)
    soak.acknowledged = {"a": 1, "b": 2}
    for received, problem in (
        ([(1, "a")], "never pushed"),
        ([(1, "a"), (2, "b"), (3, "c")], "never acknowledged"),
        ([(2, "b"), (1, "a")], "first pushed after"),
        ([(1, "a"), (1, "b")], "changed"),
    ):
        soak.received = received
        with pytest.raises(AssertionError, match=problem):
            soak.check()
    soak.received = [(1, "a"), (1, "a"), (2, "b")]
    soak.check()
