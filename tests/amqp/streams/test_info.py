"""The information message of a log."""

from __future__ import annotations

import pytest

from headwater.amqp.filters import format_offset
from headwater.amqp.protocol.message import decode_message
from headwater.amqp.protocol.types import Symbol, Timestamp, ULong
from headwater.amqp.streams.info import information, information_message
from headwater.core import Event, LogSettings
from headwater.core.local import LocalLog
from headwater.storage import Engine
from headwater.storage.memory import MemoryLog


@pytest.fixture(params=["memory", "disk"])
def log(request, tmp_path):
    settings = LogSettings(partitions=3)
    if request.param == "memory":
        yield MemoryLog("orders", settings)
        return
    with Engine(tmp_path) as engine:
        yield engine.create("orders", settings)


def offsets(log: LocalLog) -> list[tuple[object, object, object]]:
    return [
        (each["partition"], each["earliest-offset"], each["latest-offset"]) for each in information(log)["partitions"]
    ]


def test_empty_log_has_partitions_without_offsets(log):
    assert offsets(log) == [("0", None, None), ("1", None, None), ("2", None, None)]
    found = information(log)
    assert (found["head-offset"], found["first-retained-offset"], found["event-count"]) == (None, None, 0)


def test_each_partition_has_its_own_bounds(log):
    for partition in (0, 2, 2, 0, 2):
        log.append([Event("t")], partition=partition)
    assert offsets(log) == [
        ("0", format_offset(1), format_offset(4)), ("1", None, None), ("2", format_offset(2), format_offset(5)),
    ]  # fmt: skip
    events = list(log.read())
    partitions = information(log)["partitions"]
    assert [each["event-count"] for each in partitions] == [2, 0, 3]
    assert partitions[2]["earliest-timestamp"] == events[1].recorded_at
    assert partitions[2]["latest-timestamp"] == events[4].recorded_at
    log.trim(4)
    assert offsets(log)[0] == ("0", format_offset(4), format_offset(4))
    assert offsets(log)[2] == ("2", format_offset(5), format_offset(5))
    assert information(log)["first-retained-offset"] == format_offset(4)
    log.trim(6)
    assert offsets(log) == [("0", None, None), ("1", None, None), ("2", None, None)]
    assert information(log)["head-offset"] == format_offset(5)


def test_log_with_one_partition_has_its_main_partition():
    log = MemoryLog("orders")
    log.append([Event("t"), Event("t")])
    assert offsets(log) == [("0", format_offset(1), format_offset(2))]


def test_partition_whose_first_event_comes_late_is_found(log):
    log.append([Event("t")] * 3000, partition=0)
    log.append([Event("t")], partition=1)
    log.append([Event("t")] * 3000, partition=0)
    assert offsets(log)[1] == ("1", format_offset(3001), format_offset(3001))


def test_message_is_a_map_in_an_amqp_value(log):
    log.append([Event("t")], partition=1)
    found = decode_message(information_message(log)).body
    assert found == information(log)
    entry = found["partitions"][1]
    assert type(entry["partition"]) is type(entry["earliest-offset"]) is type(entry["latest-offset"]) is Symbol
    assert type(entry["latest-timestamp"]) is Timestamp
    assert type(entry["event-count"]) is ULong
    assert {type(key) for key in found} == {type(key) for key in entry} == {str}
    assert (found["log"], found["partition-count"]) == ("orders", 3)
    assert found["incarnation"] == log.info().incarnation
    assert found["created-at"] == log.info().created_at
