"""A short soak, and that it would notice. `make soak` takes ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .ledger import Book
from .operators import Trimmer
from .place import Place
from .readers import FutoinTrimmed
from .soak import KILLS_MIN, Bounds, Soak, Stretch, Vitals
from .writers import Filler

SECONDS = 12.0


@pytest.mark.timeout(300)
def test_what_any_protocol_acknowledged_is_there_once_in_order_for_all_whatever_is_killed(tmp_path: Path) -> None:
    soak = Soak(tmp_path, SECONDS)
    faults = soak.run()
    assert faults == []
    rows = {row.name: row for row in soak.rows()}
    assert len(rows) == len(soak.writers) + len(soak.readers)
    assert all(row.events for row in rows.values()), rows
    assert soak.server.ends.total() >= KILLS_MIN
    assert soak.trimmer.trims and soak.manager.answers and soak.listener.heard


def test_a_trim_past_what_is_acknowledged_and_one_that_is_forgotten_would_be_noticed() -> None:
    place, book = Place("", "", "", "", ""), Book()
    holder = FutoinTrimmed(place, book)
    trimmer = Trimmer(place, Filler(place, book), holder)
    holder.acknowledged = 5
    trimmer.check(6)
    with pytest.raises(AssertionError, match="trimmed below 7, acknowledged is 5"):
        trimmer.check(7)
    holder.acknowledged = 9
    with pytest.raises(AssertionError, match="event 6 had been trimmed"):
        trimmer.check(6)


def test_growth_would_be_noticed_and_what_comes_and_goes_would_not() -> None:
    def faults(*rss_mib: float) -> list[str]:
        samples = [Vitals(at, "server", mib, 10, 5, at * 1000) for at, mib in enumerate(rss_mib)]
        return Stretch.of(samples).faults(Bounds(5, 100, 0, 0))

    assert faults(50, 90, 50, 90, 50, 90) == []
    assert faults(50, 60, 70, 80, 90, 100) == [
        "server process: rss_mib went from 50.0 to 90.0 over 4,000 events, 9.0 more are allowed"
    ]
