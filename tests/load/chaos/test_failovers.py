"""What was acknowledged survives the loss of both primaries, in the databases that the guide recommends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.homes.patroni import PatroniDatabase
from tests.homes.standby_pair import StandbyPair
from tests.interop.install import bring
from tests.interop.runtimes import Patroni
from tests.night import IS_NIGHT, night
from tests.seeds import draw, seed

from .failovers import Database, Failovers

TIMES = 20 if IS_NIGHT else 1
TIMES_OF_PATRONI = 3


def judge(database: Database, folder: Path, times: int) -> None:
    run = Failovers(folder, database, times, int.from_bytes(draw(seed(), "failovers")[:4]))
    assert run.run() == []
    assert len(run.pauses) == times
    assert all(row.events for row in run.rows())


@pytest.mark.timeout(1500 if IS_NIGHT else 300)
def test_nothing_is_lost_or_doubled_when_a_standby_that_was_waited_for_is_promoted(tmp_path: Path) -> None:
    judge(StandbyPair(), tmp_path, TIMES)


@night
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_when_patroni_promotes_a_standby(tmp_path: Path) -> None:
    bring(Patroni())
    judge(PatroniDatabase(), tmp_path, TIMES_OF_PATRONI)
