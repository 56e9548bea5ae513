"""The acts that need no year of flights, on a real server with its data on disk."""

import os
from pathlib import Path

import pytest
from demo.acts import clock, crash, decide, messages, push, results, spark, start
from demo.flights import ARRIVED, DEPARTED, Flight
from demo.server_process import ServerFailed, ServerProcess
from demo.stage import Stage

from headwater import decisions
from headwater.core import Event
from headwater.storage.memory import MemoryLog


def test_a_short_performance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(decide, "ROUNDS", 5)
    monkeypatch.setattr(messages, "BURST", 100)
    monkeypatch.setattr(push, "LIVE_EVENTS", 3)
    monkeypatch.setattr(crash, "ROUNDS", 2)
    monkeypatch.setattr(clock, "TURNS", 1)
    monkeypatch.setattr(crash, "APPEND_S", 0.2)
    monkeypatch.setattr(crash, "APPENDS_MIN", 10)
    monkeypatch.setattr(spark, "KEPT", 10)
    monkeypatch.setattr(spark, "PAGE", tmp_path / "flights.html")
    with Stage() as stage:
        start.play(stage)
        tags = (f"tail:{decide.TAIL}",)
        stage.log().append([Event(type, b"{}", tags) for type in (DEPARTED, DEPARTED, ARRIVED)])
        decide.play(stage)
        messages.play(stage)
        push.play(stage)
        crash.play(stage)
        clock.play(stage)
        spark.play(stage)
        results.play(stage)
        pid = stage.server.pid
    told = " ".join(capsys.readouterr().out.split())
    assert "hold 1 departures of aircraft that had not arrived" in told
    assert "refused by the log" in told
    assert "never both, never none" in told
    assert "one number everywhere" in told
    assert "each at its place" in told
    assert "acknowledged events are there" in told
    assert "the slow one got every change, in order" in told
    assert "none lost, none twice" in told
    assert "a decision can start there" in told
    assert (tmp_path / "flights.html").stat().st_size > 10_000
    assert not stage.directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_does_not_start_is_told_with_its_words(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "no/log")
    with pytest.raises(ServerFailed, match=r"the server did not start: .*no/log"):
        server.start()


def test_an_aircraft_departs_once() -> None:
    log = MemoryLog()
    with pytest.raises(decide.InTheAir, match="since event 1"):
        decisions.decide(log, decide.departure("N1", meanwhile=lambda: decisions.decide(log, decide.departure("N1"))))
    with pytest.raises(decide.InTheAir, match="since event 1"):
        decisions.decide(log, decide.departure("N1"))
    assert decisions.decide(log, decide.departure("N2")).last == 2
    decisions.decide(log, decide.arrival("N1"))
    assert decisions.decide(log, decide.departure("N1")).last == 4


def test_the_tables_own_movements_are_read() -> None:
    log = MemoryLog()
    flight = Flight("UA1", "UA", "N1", "JFK", "BOS", "2013-01-01", 100, 105, 200)
    log.append([flight.event(DEPARTED, 105)])
    with pytest.raises(decide.InTheAir, match="since event 1"):
        decisions.decide(log, decide.departure("N1"))
    log.append([flight.event(ARRIVED, 200)])
    assert decisions.decide(log, decide.departure("N1")).last == 3


def test_a_lost_event_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="acknowledged as event 7, and is None"):
        crash._check({"1-a-1-0": 7}, {})
    with pytest.raises(AssertionError, match="out of order"):
        crash._check({}, {"1-a-2-0": 1, "1-a-1-0": 2})
    with pytest.raises(AssertionError, match="in half"):
        crash._check({}, {"1-a-1-0": 1})


def test_a_departure_that_was_not_pushed_would_be_noticed() -> None:
    push._check([1, 2, 3], [1, 2, 2, 3])
    for received in ([1, 3], [1, 3, 2], [1, 2, 3, 4]):
        with pytest.raises(AssertionError, match="departures were received first"):
            push._check([1, 2, 3], received)
