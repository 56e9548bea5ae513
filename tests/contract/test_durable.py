"""What a durable log brings back when it is opened again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headwater.core import AppendResult, ConditionFailure, LogSettings, Query
from headwater.core.errors import AppendConditionFailed, ConditionNeedsTrimmedEvents

from ..builders import event, fill, numbers, refusal, unless
from .conftest import ManualClock
from .kinds import Bench

pytestmark = pytest.mark.on(durable=True)


def test_everything_is_there_again(bench: Bench, clock: ManualClock) -> None:
    log = bench.create("orders", LogSettings(partitions=3, id_horizon=100))
    for number in range(20):
        log.append([event("A", f"x:{number}", id=str(number), group_key=str(number))])
        clock.now += 1
    log.register_consumer("spark", "archiver", after=7)
    log.trim(5)
    before = (list(log.read()), log.info(), log.consumers())
    for _ in range(2):
        bench.reopen()
        log = bench.log("orders")
        assert (list(log.read()), log.info(), log.consumers()) == before
    assert log.append([event("A", "x:9", id="9", group_key="9")]) == AppendResult(10, 10, True)
    with refusal(AppendConditionFailed(ConditionFailure.NO_MATCH_EXPECTED, 3, 0)):
        log.append([event()], unless(tags=["x:2"]))


def test_time_does_not_go_back_over_a_restart(bench: Bench, clock: ManualClock) -> None:
    fill(bench.create("orders"), 1)
    before = clock.now
    clock.now -= 60_000
    bench.reopen()
    fill(bench.log("orders"), 1)
    assert [each.recorded_at for each in bench.log("orders").read()] == [before, before]


def test_numbers_go_on_above_a_log_deleted_before_the_restart(bench: Bench) -> None:
    fill(bench.create("orders"), 4)
    bench.store.delete("orders")
    bench.reopen()
    assert bench.create("orders").append([event()]) == AppendResult(5, 5)


@pytest.mark.parametrize("keeps_history", [True, False])
def test_a_log_trimmed_within_a_frame_is_opened_without_its_index(
    bench: Bench, tmp_path: Path, keeps_history: bool
) -> None:
    """Its index begins with a whole frame, some of whose events are trimmed."""
    log = bench.create("orders", LogSettings(keeps_history=keeps_history))
    log.append([event(f"T{number % 7}", f"n:{number}", id=str(number)) for number in range(1, 6001)])
    log.trim(1500)
    for _ in range(3):
        bench.close()
        for index in tmp_path.glob("logs/*/idx"):
            shutil.rmtree(index)
        bench.reopen()
        log = bench.log("orders")
        assert numbers(log.read()) == list(range(1500, 6001))
        assert numbers(log.read(Query.where(types=["T3"]))) == [n for n in range(1500, 6001) if n % 7 == 3]
        if keeps_history:
            with refusal(AppendConditionFailed(ConditionFailure.NO_MATCH_EXPECTED, 9, 0)):
                log.append([event()], unless(tags=["n:9"]))
        else:
            with refusal(ConditionNeedsTrimmedEvents(0, 1500)):
                log.append([event()], unless(tags=["n:9"]))
        again = event("T0", "n:5999", id="5999")
        assert log.append([again]) == AppendResult(5999, 5999, True)
    assert log.append([event("T1", "n:1", id="1")]) == AppendResult(6001, 6001, False)
