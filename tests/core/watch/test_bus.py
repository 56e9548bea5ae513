"""The bus: who is told, in which order, with what; and what it costs if nobody is."""

from __future__ import annotations

import threading

import pytest

from headwater.core import Bus, Notification, NotificationType
from headwater.core.watch.bus import TEXT_CHARS_MAX

from ..listened import is_listened_to

CREATED, DELETED, SEALED = NotificationType.LOG_CREATED, NotificationType.LOG_DELETED, NotificationType.SEGMENT_SEALED


@pytest.fixture
def bus() -> Bus:
    return Bus(clock=lambda: 1_700_000_000_123)


def test_a_listener_gets_all_attributes_with_type_and_time_first(bus: Bus) -> None:
    told: list[Notification] = []
    bus.subscribe(told.append)
    bus.emit(CREATED, log="orders", partitions=4)
    assert told == [
        Notification(
            CREATED,
            1_700_000_000_123,
            {"eventType": "io.headwater.log.created", "time": 1_700_000_000_123, "log": "orders", "partitions": 4},
        )
    ]
    assert list(told[0].attributes) == ["eventType", "time", "log", "partitions"]
    assert type(told[0].attributes["eventType"]) is str


def test_an_attribute_without_a_value_is_left_out(bus: Bus) -> None:
    told: list[Notification] = []
    bus.subscribe(told.append)
    bus.emit(NotificationType.LINK_ATTACHED, log=None, link="", partition=0)
    assert list(told[0].attributes) == ["eventType", "time", "link", "partition"]


def test_a_text_is_cut_where_it_is_too_long(bus: Bus) -> None:
    told: list[Notification] = []
    bus.subscribe(told.append)
    bus.emit(NotificationType.LINK_ATTACHED, link="x" * 100_000, address="y" * TEXT_CHARS_MAX)
    assert told[0].attributes["link"] == "x" * (TEXT_CHARS_MAX - 1) + "…"
    assert told[0].attributes["address"] == "y" * TEXT_CHARS_MAX


def test_every_text_can_be_written_as_utf_8(bus: Bus) -> None:
    told: list[Notification] = []
    bus.subscribe(told.append)
    bus.emit(NotificationType.AUTHENTICATION_FAILED, reason="wrong", user="\udcffzoë", peer="")
    bus.emit(NotificationType.DISK_LOW, path="/data/" + "\udce9" * TEXT_CHARS_MAX)
    assert told[0].attributes["user"] == "?zoë"
    assert str(told[1].attributes["path"]).encode().startswith(b"/data/???")


def test_a_notification_is_built_once_for_all_listeners(bus: Bus) -> None:
    told: list[Notification] = []
    for _ in range(3):
        bus.subscribe(lambda notification: told.append(notification))
    bus.emit(CREATED, log="orders")
    assert len(told) == 3 and told[0] is told[1] is told[2]


def test_a_listener_hears_only_of_its_types(bus: Bus) -> None:
    some: list[Notification] = []
    every: list[Notification] = []
    bus.subscribe(some.append, [CREATED, SEALED])
    bus.subscribe(every.append)
    for type in (CREATED, DELETED, SEALED):
        bus.emit(type, log="orders")
    assert [notification.type for notification in some] == [CREATED, SEALED]
    assert [notification.type for notification in every] == [CREATED, DELETED, SEALED]


def test_attributes_are_asked_for_while_somebody_listens_to_their_type(bus: Bus) -> None:
    assert not any(is_listened_to(bus, type) for type in NotificationType)
    stop_one = bus.subscribe(lambda _: None, [CREATED])
    stop_other = bus.subscribe(lambda _: None, [CREATED, DELETED])
    assert is_listened_to(bus, CREATED) and is_listened_to(bus, DELETED) and not is_listened_to(bus, SEALED)
    stop_other()
    assert is_listened_to(bus, CREATED) and not is_listened_to(bus, DELETED)
    stop_one()
    stop_one()
    assert not any(is_listened_to(bus, type) for type in NotificationType)


def test_who_has_stopped_hears_nothing_more_and_others_go_on(bus: Bus) -> None:
    first: list[Notification] = []
    second: list[Notification] = []
    stop = bus.subscribe(first.append)
    bus.subscribe(second.append)
    stop()
    bus.emit(CREATED, log="orders")
    assert not first and len(second) == 1


def test_one_listener_may_subscribe_twice_and_stop_once(bus: Bus) -> None:
    told: list[Notification] = []
    listener = told.append
    bus.subscribe(listener, [CREATED])
    stop = bus.subscribe(listener, [CREATED])
    stop()
    bus.emit(CREATED, log="orders")
    assert len(told) == 1


def test_with_nobody_listening_nothing_is_built_and_the_count_moves() -> None:
    def clock() -> int:
        raise AssertionError("the time was asked for")

    bus = Bus(clock)
    bus.emit(CREATED, log="orders")
    bus.emit(CREATED, log="orders")
    bus.emit(DELETED, log="orders")
    assert bus.counts == {CREATED: 2, DELETED: 1}


def test_attributes_that_take_work_are_built_once_and_only_for_somebody(bus: Bus) -> None:
    built: list[int] = []

    def build() -> dict[str, str]:
        built.append(1)
        return {"log": "orders"}

    bus.emit_built(CREATED, build)
    assert not built and bus.counts == {CREATED: 1}
    told: list[Notification] = []
    for _ in range(2):
        bus.subscribe(told.append, [CREATED])
    bus.emit_built(CREATED, build)
    bus.emit_built(DELETED, build)
    assert built == [1] and [notification.attributes["log"] for notification in told] == ["orders", "orders"]


def test_what_a_listener_raises_reaches_neither_the_emitter_nor_the_others(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Notification) -> None:
        raise RuntimeError("broken listener")

    told: list[Notification] = []
    bus.subscribe(broken)
    bus.subscribe(told.append)
    bus.emit(CREATED, log="orders")
    assert len(told) == 1 and "broken listener" in caplog.text


def test_a_listener_may_stop_itself_while_it_is_told(bus: Bus) -> None:
    told: list[Notification] = []

    def once(notification: Notification) -> None:
        told.append(notification)
        stop()

    stop = bus.subscribe(once)
    bus.emit(CREATED, log="orders")
    bus.emit(CREATED, log="orders")
    assert len(told) == 1


def test_emits_of_many_threads_are_all_counted_and_told_while_listeners_come_and_go(bus: Bus) -> None:
    told: list[Notification] = []
    bus.subscribe(told.append)
    begin = threading.Barrier(5)

    def emit() -> None:
        begin.wait()
        for number in range(2000):
            bus.emit(CREATED, log=str(number))

    def come_and_go() -> None:
        begin.wait()
        for _ in range(500):
            bus.subscribe(lambda _: None, [CREATED])()

    threads = [threading.Thread(target=emit) for _ in range(4)] + [threading.Thread(target=come_and_go)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bus.counts == {CREATED: 8000} and len(told) == 8000


def test_every_type_is_named_under_the_projects_domain() -> None:
    assert all(type.value.startswith("io.headwater.") for type in NotificationType)
    assert len({type.value for type in NotificationType}) == len(NotificationType)
