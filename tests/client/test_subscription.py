import threading
import time

import pytest
from tests.client.served_memory import ServedMemory
from tests.waiting import eventually

from headwater.client import RemoteLog, connect
from headwater.core import Event, LogSettings, Query, errors


def numbers(events) -> list[int]:
    return [event.sequence_number for event in events]


def test_it_catches_up_and_follows(log: RemoteLog) -> None:
    log.append([Event("A")] * 1500)
    with log.subscribe() as subscription:
        assert numbers(subscription.poll()) == list(range(1, 1001))
        assert numbers(subscription.poll()) == list(range(1001, 1501))
        assert subscription.poll(0.05) == ()
        log.append([Event("A"), Event("B")])
        assert numbers(subscription.poll(5)) == [1501, 1502]
        assert subscription.cursor == 1502


def test_a_poll_without_patience_sees_what_is_durable(log: RemoteLog) -> None:
    with log.subscribe() as subscription:
        assert list(subscription.poll(0.05)) == []
        for number in range(1, 20):
            log.append([Event("A")])
            assert numbers(subscription.poll()) == [number]


def test_the_cursor_passes_what_does_not_match(log: RemoteLog) -> None:
    log.append([Event("A"), Event("B"), Event("A")])
    with log.subscribe(Query.where(types=["B"]), after=0) as subscription:
        assert numbers(subscription.poll()) == [2]
        assert subscription.cursor == 3
        assert list(subscription.poll(0.05)) == []
        log.append([Event("A")])
        assert list(subscription.poll()) == []
        assert subscription.cursor == 4


def test_it_follows_one_partition(served: ServedMemory) -> None:
    with connect(served.url) as server:
        log = server.create("wide", LogSettings(partitions=2))
        log.append([Event("A")], partition=1)
        with log.subscribe(partition=1) as subscription:
            assert numbers(subscription.poll()) == [1]
            assert list(subscription.poll(0.05)) == []
            log.append([Event("A")], partition=0)
            log.append([Event("A")], partition=1)
            assert numbers(subscription.poll(5)) == [3]


def test_closing_it_ends_an_iteration_in_another_thread(log: RemoteLog) -> None:
    subscription = log.subscribe()
    seen: list[int] = []

    def iterate() -> None:
        seen.extend(numbers(subscription))

    thread = threading.Thread(target=iterate)
    thread.start()
    log.append([Event("A")])
    eventually(lambda: seen or subscription.cursor)
    time.sleep(0.1)  # so that it waits on the stream
    subscription.close()
    thread.join(5)
    assert not thread.is_alive()
    assert seen == [1]


def test_closing_it_ends_an_iteration_that_waits_for_its_server(served: ServedMemory) -> None:
    waiting = threading.Event()
    with connect(served.url, retry_s=600, on_waiting=lambda _: waiting.set()) as server:
        log = server.create("orders")
        log.append([Event("A")])
        subscription = log.subscribe()
        assert numbers(subscription.poll(5)) == [1]
        served.stop()
        thread = threading.Thread(target=lambda: list(subscription), daemon=True)
        thread.start()
        assert waiting.wait(20)
        subscription.close()
        thread.join(10)
        served.start()
        assert not thread.is_alive()
        assert subscription.cursor == 1


def test_it_goes_on_at_its_cursor_when_the_server_comes_back(served: ServedMemory) -> None:
    with connect(served.url, retry_s=20) as server:
        log = server.create("orders")
        log.append([Event("A")])
        seen: list[int] = []
        subscription = log.subscribe()

        def iterate() -> None:
            for event in subscription:
                seen.append(event.sequence_number)
                if event.sequence_number == 3:
                    break

        thread = threading.Thread(target=iterate)
        thread.start()
        eventually(lambda: seen == [1], lambda: seen)
        served.stop()
        served.store.open("orders").append([Event("while away")])
        served.start()
        log.append([Event("B")])
        thread.join(20)
        assert seen == [1, 2, 3]
        subscription.close()


def test_the_deletion_of_its_log_ends_it(served: ServedMemory) -> None:
    with connect(served.url) as server:
        subscription = server.create("orders").subscribe()
        assert list(subscription.poll(0.05)) == []
        server.delete("orders")
        assert list(subscription) == []


def test_a_position_that_cannot_be_is_refused_at_once(log: RemoteLog) -> None:
    log.append([Event("A")] * 3)
    log.trim(3)
    with pytest.raises(errors.PositionTrimmed):
        log.subscribe(after=1)
    with pytest.raises(errors.InvalidPosition):
        log.subscribe(after=-1)
    assert numbers(log.subscribe().poll()) == [3]


def test_a_trim_that_overtakes_it_is_told_not_skipped(log: RemoteLog) -> None:
    log.append([Event("A")])
    with log.subscribe() as subscription:
        assert numbers(subscription.poll()) == [1]
        log.append([Event("A")] * 3)
        log.trim(4)
        with pytest.raises(errors.PositionTrimmed):
            subscription.poll()


def test_a_stream_of_another_log_is_not_followed_however_often_it_is_asked(
    log: RemoteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(answer: object) -> None:
        raise errors.PositionOfOtherIncarnation(0, "another", 1)

    with log.subscribe() as subscription:
        monkeypatch.setattr(subscription._follower, "begin", begin)
        for _ in range(2):
            with pytest.raises(errors.PositionOfOtherIncarnation):
                subscription.poll(5)
