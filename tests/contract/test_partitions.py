"""Partitions: where an event goes, and that a partition keeps the log's numbers."""

from __future__ import annotations

from collections import Counter

import google_crc32c
import pytest

from headwater.core import Event, EventLog, Query

from ..builders import event, numbers
from .conftest import LogFactory

COUNT = 5


def by_key(key: str, count: int = COUNT) -> int:
    return int(google_crc32c.value(key.encode())) % count


def partitions_of(log: EventLog) -> list[int]:
    return [each.partition for each in log.read()]


def test_the_hash_is_the_castagnoli_one() -> None:
    """So that other producers can compute it: RFC 3720, B.4, and the usual check value."""
    assert google_crc32c.value(b"123456789") == 0xE3069283


def test_a_log_of_one_partition_has_partition_zero(log: EventLog) -> None:
    log.append([event(group_key="a"), event(), event(group_key="b")])
    assert partitions_of(log) == [0, 0, 0]
    assert numbers(log.read(partition=0)) == [1, 2, 3]


def test_a_named_partition_wins_over_the_group_key(log_factory: LogFactory) -> None:
    log = log_factory(partitions=COUNT)
    for partition in range(COUNT):
        log.append([event(group_key="same"), event()], partition=partition)
    assert partitions_of(log) == [partition for partition in range(COUNT) for _ in range(2)]


def test_a_group_key_goes_to_its_crc32c_modulo_the_count(log_factory: LogFactory) -> None:
    log = log_factory(partitions=COUNT)
    keys = [f"key {number}" for number in range(40)] + ["žluť", "馬", "0"]
    log.append([event(group_key=key) for key in keys])
    assert partitions_of(log) == [by_key(key) for key in keys]
    assert len(set(partitions_of(log))) == COUNT


def test_calls_without_key_take_turns(log_factory: LogFactory) -> None:
    log = log_factory(partitions=COUNT)
    for _ in range(2 * COUNT):
        log.append([event(), event(), event()])
    stored = partitions_of(log)
    calls = [set(stored[start : start + 3]) for start in range(0, len(stored), 3)]
    assert all(len(call) == 1 for call in calls)
    assert Counter(stored) == dict.fromkeys(range(COUNT), 6)


def test_one_call_may_mix_keyed_and_keyless_events(log_factory: LogFactory) -> None:
    log = log_factory(partitions=COUNT)
    log.append([event(group_key="a"), event(), event(group_key="b"), event()])
    first, keyless, third, other = partitions_of(log)
    assert (first, third) == (by_key("a"), by_key("b"))
    assert keyless == other


@pytest.mark.parametrize(
    ("partition_by", "keyed"),
    [
        ("source", Event("A", source="urn:7")),
        ("subject", Event("A", attributes={"subject": "urn:7"})),
        ("tag:device", Event("A", tags=("area:north", "device:urn:7"))),
    ],
)
def test_a_log_may_be_partitioned_by_what_its_events_say(
    log_factory: LogFactory, partition_by: str, keyed: Event
) -> None:
    log = log_factory(partitions=COUNT, partition_by=partition_by)
    for _ in range(3):
        log.append([event(), keyed])
    expected = by_key("urn:7")
    assert [each.partition for each in log.read() if each.event[:3] == keyed[:3] and each.source == keyed.source
            and each.attributes == keyed.attributes] == [expected] * 3  # fmt: skip
    log.append([keyed._replace(group_key="other")])
    assert next(log.read(backwards=True)).partition == by_key("other")
    log.append([keyed], partition=(expected + 1) % COUNT)
    assert next(log.read(backwards=True)).partition == (expected + 1) % COUNT


def test_the_tag_that_partitions_may_also_be_there_without_value(log_factory: LogFactory) -> None:
    log = log_factory(partitions=COUNT, partition_by="tag:device")
    for _ in range(COUNT):
        log.append([event("A", "device", "device:7")])
    assert set(partitions_of(log)) == {by_key("7")}


def test_of_two_values_the_first_in_order_partitions(log_factory: LogFactory) -> None:
    log = log_factory(partitions=COUNT, partition_by="tag:device")
    log.append([event("A", "device:9", "device:7")])
    assert partitions_of(log) == [by_key("7")]


def test_a_partition_is_read_under_the_logs_numbers(log_factory: LogFactory) -> None:
    log = log_factory(partitions=3)
    log.append([event("A")], partition=2)
    log.append([event("B"), event("C")], partition=0)
    log.append([event("D")], partition=2)
    assert numbers(log.read(partition=0)) == [2, 3]
    assert numbers(log.read(partition=1)) == []
    assert numbers(log.read(partition=2)) == [1, 4]
    assert numbers(log.read(partition=2, backwards=True, limit=1)) == [4]
    assert numbers(log.read(partition=2, from_=2)) == [4]
    assert numbers(log.read(Query.where(types=["B", "D"]), partition=2)) == [4]
    assert log.read(partition=1).head == 4


def test_one_append_spans_partitions_and_stays_contiguous(log_factory: LogFactory) -> None:
    log = log_factory(partitions=COUNT)
    result = log.append([event(group_key=f"key {number}") for number in range(20)])
    assert (result.first, result.last) == (1, 20)
    assert sum(log.info().partition_events) == 20
    assert sorted(number for partition in range(COUNT) for number in numbers(log.read(partition=partition))) == list(
        range(1, 21)
    )
