"""What hostile peers may make a server hold has a ceiling: a load of each protocol by day, all of them by night."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.night import night

from .memory import DAILY, LOADS, Prepared


@pytest.mark.timeout(600)
def test_a_load_of_each_protocol_stays_within_the_budget_and_gives_back_what_it_took(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    faults = {outcome.name: outcome.faults for outcome in prepared.run(DAILY) if outcome.faults}
    assert faults == {} and prepared.faults == [], prepared.faults


@night
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LOADS)
def test_each_hostile_load_stays_within_the_budget_and_gives_back_what_it_took(tmp_path: Path, name: str) -> None:
    prepared = Prepared(tmp_path)
    [outcome] = prepared.run([name])
    assert outcome.faults == () and prepared.faults == [], outcome.row()
