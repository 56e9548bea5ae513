"""The demo of three servers in short, and what its last act would notice."""

from __future__ import annotations

import os

import pytest
from demo.flights import Flight, Observation, Year
from demo.replicas.acts import begin, kill, order, results
from demo.replicas.couriers import Amqp, Dcb, couriers_for
from demo.replicas.stage import ReplicaStage

from headwater.core import Event, SequencedEvent
from headwater.storage.memory import MemoryLog

ORIGINS = ("EWR", "JFK", "LGA")
FLIGHTS = [
    Flight(f"UA{number}", "UA", f"N{number}", ORIGINS[number % 3], "BOS", "2013-01-01", minute, minute + 5, minute + 60)
    for number, minute in enumerate(range(1000, 1180))
]
EVENTS = list(Year(FLIGHTS, [Observation("JFK", 1000 + number, {"temp": "39"}) for number in range(40)]))


def test_a_short_performance_of_three_servers(capsys: pytest.CaptureFixture[str]) -> None:
    with ReplicaStage(lease_ms=1500, events=EVENTS) as stage:
        begin.play(stage)
        kill.play(stage)
        order.play(stage)
        results.play(stage)
        pids = [machine.pid for machine in stage.machines]
        database = stage.database
        assert database is not None and database.standby is not None
        assert (database.name, database.other) == ("db_2", "db_1")
        folders = [database.primary.folder, database.standby.folder]
    told = " ".join(capsys.readouterr().out.split())
    assert "a is the primary; b says: this server is a replica" in told
    assert "a and db_1 are gone; " in told and "is asked for the newest departure" in told
    assert "db_2 is promoted" in told and "db_1 is back, empty" in told
    assert "is the primary, " in told and "nobody could append for " in told
    assert told.count(": 400 events, SHA-256 ") == 3
    assert "all 400 are there once" in told
    assert not any(each.exists() for each in (stage.directory, *folders))
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def stored(*ids: str) -> list[SequencedEvent]:
    log = MemoryLog()
    log.append([Event("E", b"", id=id, source=str(place)) for place, id in enumerate(ids)])
    return list(log.read())


def test_what_is_not_there_once_at_its_number_and_in_order_would_be_noticed() -> None:
    events = EVENTS[:4]
    ids = [event.id for event in events]
    courier = Dcb((), events)
    courier.told = {id: number for number, id in enumerate(ids, 1)}
    order.check(ids, [courier], stored(*ids))
    for found, problem in (
        ([*ids, ids[0]], "1 events are there twice"),
        (ids[:3], "1 events are missing"),
        ([*ids, "another"], "1 events are missing, or were never sent"),
        (["another", *ids[1:]], "2 events are missing"),
        ([ids[1], ids[0], *ids[2:]], "was acknowledged as event 1, and is 2"),
    ):
        with pytest.raises(AssertionError, match=problem):
            order.check(ids, [courier], stored(*found))
    silent = Amqp((), events)
    silent.told = dict.fromkeys(ids)
    with pytest.raises(AssertionError, match="by AMQP are out of order"):
        order.check(ids, [silent], stored(ids[1], ids[0], *ids[2:]))
    assert order.digest(stored("a", "b")) != order.digest(stored("b", "a"))


def test_the_pause_is_the_longest_time_without_an_answer_that_ended_after_the_kill() -> None:
    assert kill.longest_pause([1.0, 9.0, 10.0, 12.5, 13.0], since=11.0) == 2.5
    assert kill.longest_pause([1.0, 9.0], since=9.5) == 0.0


def test_each_airport_has_its_courier_and_the_weather_its_own() -> None:
    couriers = couriers_for((), EVENTS)
    assert [courier.protocol for courier in couriers] == [
        "DCB over HTTP", "AMQP", "CloudEvents over HTTP", "FutoIn over HTTP",
    ]  # fmt: skip
    assert [len(courier.events) for courier in couriers] == [120, 120, 120, 40]
