import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.client.served_memory import CuttingProxy, ServedMemory

from headwater.client import RemoteLog, Server, ServerUnreachable, UnexpectedAnswer, connect
from headwater.core import AppendCondition, ConditionFailure, Event, LogSettings, Query, errors
from headwater.core.log import PAGE_EVENTS


def test_what_was_appended_is_read_back(log: RemoteLog) -> None:
    events = [
        Event("A", b"text", ("a:1", "b"), id="1", source="shop", attributes={"time": "2024-01-01T00:00:00Z"}),
        Event("B", b"\xff\x00", id="2", group_key="g"),
    ]
    assert log.append(events) == (1, 2, False)
    reading = log.read()
    assert reading.head == 2
    assert [event.event for event in reading] == events


def test_an_event_without_id_gets_one_from_the_client(log: RemoteLog) -> None:
    log.append([Event("A")])
    (event,) = log.read()
    assert len(event.id) == 36
    assert event.id[14] == "7"


def test_reads_are_bounded_as_asked(server: Server) -> None:
    log = server.create("wide", LogSettings(partitions=2))
    for number in range(1, 7):
        log.append([Event("odd" if number % 2 else "even", b"%d" % number)], partition=number % 2)

    def numbers(query: Query = Query.all(), **bounds: int | bool) -> list[int]:  # noqa: B008
        return [event.sequence_number for event in log.read(query, **bounds)]  # type: ignore[arg-type]

    assert numbers(Query.where(types=["odd"])) == [1, 3, 5]
    assert numbers(from_=3) == [3, 4, 5, 6]
    assert numbers(after=3, limit=2) == [4, 5]
    assert numbers(backwards=True, limit=2) == [6, 5]
    assert numbers(backwards=True, after=3) == [2, 1]
    assert numbers(partition=0) == [2, 4, 6]


def test_a_failed_condition_tells_the_conflict(log: RemoteLog) -> None:
    log.append([Event("A", tags=("a:1",))])
    with pytest.raises(errors.AppendConditionFailed) as caught:
        log.append([Event("A")], AppendCondition(Query.where(tags=["a:1"])))
    assert (caught.value.reason, caught.value.conflict) == (ConditionFailure.NO_MATCH_EXPECTED, 1)


def test_a_condition_may_need_a_match(log: RemoteLog) -> None:
    log.append([Event("A", tags=("a:1",))])
    log.append([Event("any type \u00e4")], AppendCondition(Query.where(tags=["a:1"]), 1, requires_match=True))
    with pytest.raises(errors.AppendConditionFailed) as caught:
        log.append([Event("B")], AppendCondition(Query.where(tags=["a:2"]), 1, requires_match=True))
    assert (caught.value.reason, caught.value.conflict) == (ConditionFailure.NO_MATCH_FOUND, None)


def test_errors_are_the_cores_own(server: Server, log: RemoteLog) -> None:
    with pytest.raises(errors.InvalidEvent, match=r"events\[0\]\.tags\[0\]"):
        log.append([Event("A", tags=("a\n",))])
    with pytest.raises(errors.TooLarge, match="1048577 bytes given, at most 1048576"):
        log.append([Event("A", bytes(1024 * 1024 + 1))])
    with pytest.raises(errors.InvalidPosition, match=r"partition: .*got 7"):
        log.append([Event("A")], partition=7)
    with pytest.raises(errors.InvalidPosition, match="not both"):
        log.read(from_=1, after=1)
    with pytest.raises(errors.InvalidQuery, match="at least one item"):
        log.read(Query(()))
    with pytest.raises(errors.LogNotFound, match="'nowhere'"):
        server.log("nowhere").head()
    with pytest.raises(errors.InvalidLogName):
        server.log("no/where")


def test_logs_are_created_changed_and_deleted(server: Server) -> None:
    settings = LogSettings(partitions=3)
    assert server.create("a", settings).info().settings == settings
    server.create("a", settings)
    with pytest.raises(errors.LogExists):
        server.create("a", LogSettings(partitions=2))
    assert server.change("a", LogSettings(partitions=3, keeps_history=False)).settings.keeps_history is False
    with pytest.raises(errors.InvalidSettings, match="partitions: cannot change after creation: expected 3, got 2"):
        server.change("a", LogSettings(partitions=2))
    assert server.logs() == ["a"]
    server.delete("a")
    assert server.logs() == []


def test_consumers_hold_trimming_back(log: RemoteLog) -> None:
    log.append([Event("A")] * 3)
    consumer = log.register_consumer("me/here", "a b", after=1)
    assert (consumer.acknowledged, consumer.epoch) == (1, 1)
    assert log.trim(3) == 2
    assert log.acknowledge("me/here", "a b", 2, epoch=1).acknowledged == 2
    assert log.register_consumer("me/here", "a b").epoch == 2
    with pytest.raises(errors.ConsumerFenced):
        log.acknowledge("me/here", "a b", 3, epoch=1)
    assert log.reset_consumer("me/here", "a b", 3).acknowledged == 3
    assert [consumer.owner for consumer in log.consumers()] == ["me/here"]
    log.unregister_consumer("me/here", "a b")
    with pytest.raises(errors.ConsumerNotFound):
        log.unregister_consumer("me/here", "a b")
    assert log.trim(3) == 3
    with pytest.raises(errors.PositionTrimmed):
        log.read(after=1)


def test_an_append_whose_answer_was_lost_is_stored_once(cutting: Callable, server: Server, log: RemoteLog) -> None:
    with connect(cutting(0, 0, 20).url, retry_s=10) as lossy:  # the second one sees whether TLS is spoken
        result = lossy.log("orders").append([Event("A"), Event("B")])
    assert result == (1, 2, True)
    assert log.head() == 2


def test_a_read_goes_on_where_its_connection_broke(cutting: Callable, log: RemoteLog) -> None:
    log.append([Event("A", b"x" * 1000) for _ in range(2000)])
    with connect(cutting(500_000, 700_000).url, retry_s=10) as lossy:
        reading = lossy.log("orders").read(limit=1900)
        next(reading)
        log.append([Event("later")])
        assert [event.sequence_number for event in reading] == list(range(2, 1901))
        backwards = lossy.log("orders").read(backwards=True)
        assert [event.sequence_number for event in backwards] == list(range(2001, 0, -1))


def test_a_read_that_failed_goes_on_when_it_is_asked_again(cutting: Callable, log: RemoteLog) -> None:
    log.append([Event("A", b"x" * 1000) for _ in range(2000)])
    seen: list[int] = []
    with connect(cutting(1_500_000).url, retry_s=0) as lossy:
        reading = lossy.log("orders").read()
        with pytest.raises(ServerUnreachable):
            for event in reading:
                seen.append(event.sequence_number)
        assert 0 < len(seen) < 2000
        assert seen + [event.sequence_number for event in reading] == list(range(1, 2001))


def test_a_read_that_is_closed_in_the_middle_of_a_page_ends(log: RemoteLog) -> None:
    log.append([Event("A", b"x" * 1000) for _ in range(5000)])
    reading = log.read()
    next(reading)
    while not reading._read._parser._size:
        assert reading._stream is not None
        reading._read.receive_data(reading._stream.read())
    reading.close()
    assert len(list(reading)) < PAGE_EVENTS, "those of its first page"


def test_closing_a_read_ends_an_iteration_that_waits_for_its_server(served: ServedMemory, log: RemoteLog) -> None:
    log.append([Event("A", b"x" * 1000) for _ in range(5000)])
    waiting, proxy = threading.Event(), CuttingProxy(served.port, [500_000])
    with connect(proxy.url, retry_s=600, on_waiting=lambda _: waiting.set()) as lossy:
        reading = lossy.log("orders").read()
        proxy.close()
        thread = threading.Thread(target=lambda: list(reading), daemon=True)
        thread.start()
        assert waiting.wait(20)
        reading.close()
        thread.join(10)
        assert not thread.is_alive()
        assert list(reading) == []


@pytest.mark.parametrize("bounds", [{}, {"from_": 100}, {"after": 100}, {"limit": 3}, {"from_": 2}])
def test_a_backwards_read_that_connects_again_stays_below_its_head(
    cutting: Callable, log: RemoteLog, bounds: dict[str, int]
) -> None:
    log.append([Event("A", b"x" * 1000)] * 5)
    expected = [event.sequence_number for event in log.read(backwards=True, **bounds)]
    with connect(cutting(700).url, retry_s=10) as lossy:
        reading = lossy.log("orders").read(backwards=True, **bounds)
        log.append([Event("B")] * 20)
        assert [event.sequence_number for event in reading] == expected
    assert reading.head == 5


def test_without_retries_the_loss_of_the_server_is_told(cutting: Callable) -> None:
    proxy = cutting(0, 0)
    told = f"no answer from {proxy.url}: the server closed the connection"
    with connect(proxy.url, retry_s=0) as lossy, pytest.raises(ServerUnreachable, match=told):
        lossy.logs()


def test_a_server_that_is_not_there_is_unreachable() -> None:
    with connect("http://127.0.0.1:1", retry_s=0.1) as server, pytest.raises(ServerUnreachable, match="refused"):
        server.logs()


def test_a_closed_client_says_so(server: Server) -> None:
    server.close()
    with pytest.raises(ServerUnreachable, match="this client was closed"):
        server.logs()


def test_threads_share_a_server(log: RemoteLog) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: log.append([Event("A", b"%d" % number)]), range(64)))
    assert sorted(result.first for result in results) == list(range(1, 65))


def test_a_reading_left_in_the_middle_costs_nothing_else(log: RemoteLog) -> None:
    log.append([Event("A", b"x" * 10_000) for _ in range(500)])
    for _ in range(3):
        assert next(log.read()).sequence_number == 1
        assert log.head() == 500


def test_another_server_is_an_unexpected_answer() -> None:
    def answer(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\noops")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with connect(url, retry_s=0) as server, pytest.raises(UnexpectedAnswer, match="unexpected answer 404: oops"):
            server.logs()
        thread.join()


def test_one_connection_carries_one_request_after_another(log: RemoteLog) -> None:
    log.append([Event("A")])
    (idle,) = log._transport.targets.current.idle
    log.head()
    list(log.read())
    with pytest.raises(errors.InvalidPosition):
        log.trim(9)
    assert list(log._transport.targets.current.idle) == [idle]
