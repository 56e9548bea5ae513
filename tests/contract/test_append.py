"""Appends: atomic, contiguous, and what was given comes back."""

from __future__ import annotations

import threading

import pytest

from headwater.core import NO_ATTRIBUTES, AppendResult, Encoding, Event, EventLog
from headwater.core.errors import InvalidEvent, TooLarge
from headwater.core.limits import APPEND_EVENTS_MAX

from ..builders import event, fill, numbers, refusal, unless
from .conftest import LogFactory, ManualClock


def test_a_new_log_is_empty(log: EventLog) -> None:
    info = log.info()
    assert (log.head(), list(log.read()), log.read().head) == (0, [], 0)
    assert (info.head, info.first_retained, info.events) == (0, 1, 0)


def test_the_first_event_has_number_one(log: EventLog) -> None:
    assert log.append([event()]) == AppendResult(1, 1, False)
    assert log.head() == 1


def test_events_of_one_call_are_contiguous_and_in_order(log: EventLog) -> None:
    log.append([event("A")])
    assert log.append([event("B"), event("C"), event("D")]) == AppendResult(2, 4)
    assert [(each.sequence_number, each.type) for each in log.read()] == [(1, "A"), (2, "B"), (3, "C"), (4, "D")]


def test_the_name_is_the_one_given(log_factory: LogFactory) -> None:
    assert log_factory("a.b-c_9").name == "a.b-c_9"


def test_every_field_comes_back(log: EventLog, clock: ManualClock) -> None:
    given = Event(
        type="OrderPlaced",
        data=bytes(range(256)),
        tags=("order:17", "customer:4", "urgent"),
        id="7f3c",
        source="https://example.org/orders?x=1",
        attributes={"subject": "order 17", "time": "2013-01-01T05:15:00Z", "datacontenttype": "application/json"},
        group_key="customer 4",
        envelope=b"\x00\x53\x73\xc0\x01\x00\x00\x53\x75\xb0\x00\x00\x01\x00",
        encoding=Encoding.DATA,
    )
    log.append([given])
    (stored,) = log.read()
    assert stored.event == given._replace(tags=("customer:4", "order:17", "urgent"))
    assert (stored.sequence_number, stored.recorded_at, stored.partition) == (1, clock.now, 0)
    assert isinstance(stored.encoding, Encoding)


def test_a_bare_event_gets_an_id_and_nothing_else(log: EventLog) -> None:
    log.append([event("A")])
    (stored,) = log.read()
    assert stored.event == Event("A", id=stored.id)
    assert stored.attributes == NO_ATTRIBUTES


def test_a_whole_amqp_message_comes_back_as_it_was(log: EventLog) -> None:
    message = b"\x00\x53\x77\xa1\x05hello"
    log.append([Event("amqp.message", message, encoding=Encoding.AMQP)])
    (stored,) = log.read()
    assert (stored.data, stored.encoding, stored.envelope) == (message, Encoding.AMQP, b"")


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xfe not text", "žluťoučký 馬 🐎".encode(), b"{}"])
def test_a_payload_is_opaque(log: EventLog, data: bytes) -> None:
    log.append([event("A", data=data)])
    assert [each.data for each in log.read()] == [data]


def test_a_payload_of_the_largest_size_is_taken_and_one_byte_more_is_not(log: EventLog) -> None:
    largest = bytes(1024) * 1024
    log.append([event("A", data=largest)])
    with refusal(TooLarge(1024 * 1024 + 1, 1024 * 1024, "bytes", "events[1].data")):
        log.append([event("B"), event("A", data=largest + b"x")])
    assert [len(each.data) for each in log.read()] == [1024 * 1024]


def test_data_and_envelope_share_one_limit(log_factory: LogFactory) -> None:
    log = log_factory(event_bytes_max=1024)
    log.append([event("A", data=bytes(1000), envelope=b"\0Ss\xc0\x0b\x01\xa1\x0812345678\0Su\xb0\0\0\x03\xe8")])
    with refusal(TooLarge(1025, 1024, "bytes", "events[0].data")):
        log.append([event("A", data=bytes(1000), envelope=b"\0Ss\xc0\x0c\x01\xa1\x09123456789\0Su\xb0\0\0\x03\xe8")])


def test_texts_of_any_script_come_back(log: EventLog) -> None:
    given = Event(
        type="Objednávka přijata 🐎",
        tags=("customer:Žofie 馬", "customer:\U0001f40e"),
        id="číslo 1",
        source="urn:馬",
        attributes={"subject": "šťáva \U0001f9c3"},
        group_key="Žofie",
    )
    log.append([given])
    (stored,) = log.read()
    assert stored.event == given._replace(tags=tuple(sorted(given.tags)))


def test_tags_are_sorted_and_distinct(log: EventLog) -> None:
    log.append([event("A", "b:2", "a", "b:10", "a", "B:1")])
    assert [each.tags for each in log.read()] == [("B:1", "a", "b:10", "b:2")]


def test_a_call_with_one_bad_event_appends_nothing(log: EventLog) -> None:
    problem = "a type must have 1 to 200 characters, got 0"
    with refusal(InvalidEvent(problem, "events[1].type")):
        log.append([event("A"), event(""), event("C")])
    assert (log.head(), list(log.read())) == (0, [])
    assert log.append([event("D")]) == AppendResult(1, 1)


def test_a_call_with_a_failed_condition_appends_nothing_and_uses_no_number(log: EventLog) -> None:
    log.append([event("A", "x:1")])
    with pytest.raises(Exception, match="append condition failed"):
        log.append([event("B"), event("C")], unless(tags=["x:1"]))
    assert log.append([event("D")]) == AppendResult(2, 2)
    assert [each.type for each in log.read()] == ["A", "D"]


def test_an_append_needs_an_event(log: EventLog) -> None:
    with refusal(InvalidEvent("an append needs at least one event", "events")):
        log.append([])


def test_the_largest_count_is_taken_in_one_call(log: EventLog) -> None:
    assert log.append([event("A")] * 1000) == AppendResult(1, 1000)
    with refusal(TooLarge(APPEND_EVENTS_MAX + 1, APPEND_EVENTS_MAX, "events", "events")):
        log.append([event("A")] * (APPEND_EVENTS_MAX + 1))
    assert log.append([event("A")] * APPEND_EVENTS_MAX) == AppendResult(1001, 1000 + APPEND_EVENTS_MAX)
    assert log.info().events == 1000 + APPEND_EVENTS_MAX


def test_recorded_at_follows_the_clock_and_never_goes_back(log: EventLog, clock: ManualClock) -> None:
    times = []
    for step in (0, 5, -1000, 3, 2000):
        clock.now += step
        log.append([event("A"), event("B")])
        times.append(clock.now)
    start = times[0]
    expected = [start, start + 5, start + 5, start + 5, times[-1]]
    assert [each.recorded_at for each in log.read()] == [time for time in expected for _ in range(2)]


def test_changing_what_was_appended_does_not_change_the_log(log: EventLog) -> None:
    attributes = {"subject": "before"}
    log.append([event("A", attributes=attributes)])
    attributes["subject"] = "after"
    assert [each.attributes for each in log.read()] == [{"subject": "before"}]


def test_the_producers_part_can_be_appended_elsewhere(log_factory: LogFactory) -> None:
    log, other = log_factory("one"), log_factory("two")
    log.append([event("A", "x:1", data=b"1", id="i", source="s", attributes={"subject": "t"}, group_key="g")])
    other.append([each.event for each in log.read()])
    assert [each.event for each in other.read()] == [each.event for each in log.read()]


def test_logs_do_not_share_numbers(log_factory: LogFactory) -> None:
    log, other = log_factory("one"), log_factory("two")
    fill(log, 3)
    assert other.append([event()]) == AppendResult(1, 1)
    assert (numbers(log.read()), numbers(other.read())) == ([1, 2, 3], [1])


def test_calls_from_many_threads_stay_whole(log: EventLog) -> None:
    """Each call's events are contiguous, in order, and at the place that the result names."""
    results: dict[tuple[int, int], AppendResult] = {}

    def write(writer: int) -> None:
        for call in range(10):
            size = 1 + (writer + call) % 4
            events = [event(f"w{writer}", f"call:{call}", data=b"%d" % place) for place in range(size)]
            results[writer, call] = log.append(events)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = {each.sequence_number: each for each in log.read()}
    assert sorted(stored) == list(range(1, log.head() + 1))
    for (writer, call), (first, last, was_stored) in results.items():
        assert not was_stored
        assert last - first + 1 == 1 + (writer + call) % 4
        for place, number in enumerate(range(first, last + 1)):
            found = stored[number]
            assert (found.type, found.tags, found.data) == (f"w{writer}", (f"call:{call}",), b"%d" % place)
    assert sum(last - first + 1 for first, last, _ in results.values()) == log.head()


def test_info_counts_what_is_there(log_factory: LogFactory) -> None:
    log = log_factory("orders", partitions=3)
    for partition in (0, 2, 2):
        log.append([event(), event()], partition=partition)
    info = log.info()
    assert (info.name, info.head, info.first_retained, info.events) == ("orders", 6, 1, 6)
    assert info.partition_events == (2, 0, 4)
    assert info.settings.partitions == 3
