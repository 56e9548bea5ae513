"""Registering and polling (FTN18, 2.2.1 and 3.3.1): what acknowledges, where pages start, what filters mean."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.core import Event
from headwater.core.errors import LogNotFound

from ...volatile import VolatileStore
from ..conftest import LOG


def test_a_new_consumer_starts_at_the_oldest_event_that_is_kept(peer: Any) -> None:
    peer.add("A", "B", "C")
    peer.log.trim(2)
    peer.register()
    assert peer.acknowledged() == 0
    assert peer.polled() == [2, 3]


def test_last_id_acknowledges(peer: Any) -> None:
    peer.add("A", "B", "C")
    peer.register()
    assert peer.polled(last_id="2") == [3]
    assert peer.acknowledged() == 2
    assert peer.polled() == [3]


def test_a_page_starts_after_the_given_last_id_and_what_is_stored_never_moves_back(peer: Any) -> None:
    peer.add("A", "B", "C", "D")
    peer.register()
    assert peer.polled(last_id="3") == [4]
    assert peer.polled(last_id="1") == [2, 3, 4]
    assert peer.acknowledged() == 3
    assert peer.polled() == [4]


def test_a_last_id_beyond_the_last_event_is_an_invalid_request(peer: Any) -> None:
    peer.add("A", "B")
    peer.register()
    for component in ("C", "LIVE"):
        reply = peer.poll(component, last_id="999999")
        assert reply == {"e": "InvalidRequest", "edesc": "last_id 999999 is beyond the last event, 2"}
    assert peer.acknowledged() == 0
    peer.add("C")
    assert peer.polled() == [1, 2, 3]


def test_repeated_registration_keeps_the_position(peer: Any) -> None:
    peer.add("A", "B")
    peer.register()
    peer.poll(last_id="1")
    peer.register()
    assert peer.polled() == [2]


def test_want_is_of_each_call(peer: Any) -> None:
    peer.add("A", "B", "A", "C")
    peer.register()
    assert peer.polled(want=["A"]) == [1, 3]
    assert peer.polled(want=["B", "C"]) == [2, 4]
    assert peer.polled(want=None) == [1, 2, 3, 4]


def test_want_nothing_gets_nothing(peer: Any) -> None:
    peer.add("A")
    peer.register()
    assert peer.polled(want=[]) == []
    assert peer.acknowledged() == 1


def test_what_is_filtered_out_counts_as_delivered(peer: Any) -> None:
    peer.add("A", "A", "B", "A")
    peer.register()
    assert peer.polled(want=["B"]) == [3]
    assert peer.acknowledged() == 0, "a page with events is acknowledged by the next last_id"
    assert peer.polled(want=["B"], last_id="3") == []
    assert peer.acknowledged() == 4
    assert peer.polled() == [], "so that wanting more later brings nothing back"


def test_a_filtered_poll_looks_through_the_whole_log(peer: Any) -> None:
    peer.log.append([Event("NOISE", b"1")] * 5000)
    peer.add("SIGNAL")
    peer.register()
    assert peer.polled(want=["SIGNAL"]) == [5001]


def test_live_polls_store_nothing(peer: Any) -> None:
    peer.add("A", "B")
    assert peer.polled("LIVE") == [1, 2]
    assert peer.polled("LIVE", last_id="1") == [2]
    assert peer.polled("LIVE") == [1, 2]
    assert peer.log.consumers() == []


def test_a_registered_consumer_holds_trimming_back(peer: Any) -> None:
    peer.add("A", "B", "C")
    peer.register()
    assert peer.log.trim(4) == 1
    peer.poll(last_id="2")
    assert peer.log.trim(4) == 3


def test_an_unregistered_consumer_is_told_so_at_its_next_poll(peer: Any) -> None:
    peer.register()
    peer.log.unregister_consumer("anybody", "C")
    assert peer.poll()["e"] == "NotRegistered"


def test_a_last_id_that_was_trimmed_goes_on_at_the_first_event_that_is_kept(peer: Any) -> None:
    peer.add("A", "B", "C", "D")
    peer.log.trim(4)
    assert peer.polled("LIVE", last_id="1") == [4]


def test_a_poll_tells_that_its_consumer_is_alive(peer: Any) -> None:
    peer.register()
    before = peer.log.consumer("anybody", "C").seen_at
    deadline = threading.Event()
    while peer.log.consumer("anybody", "C").seen_at == before:
        peer.poll()
        deadline.wait(0.02)
    assert peer.acknowledged() == 0


def test_the_time_of_an_event_is_when_the_log_took_it(peer: Any) -> None:
    peer.add("A")
    (stored,) = peer.log.read()
    ts = peer.poll("LIVE")["r"][0]["ts"]
    assert datetime.strptime(ts, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp() == stored.recorded_at // 1000


def test_a_deleted_log_is_not_there_any_more(peer: Any) -> None:
    peer.add("A")
    peer.store.delete("orders")
    assert peer.poll("LIVE")["e"] == "InvalidRequest"
    with pytest.raises(LogNotFound):
        peer.store.open("orders")
    peer.store.create("orders")
    assert peer.add("B") == ["2"]


def test_32_adders_and_one_reliable_consumer_lose_nothing_and_repeat_nothing(peer: Any) -> None:
    """In threads of their own, beside a consumer that polls: ids come in order, and each of them once."""
    each, adders = 50, 32
    peer.register()

    def add(name: int) -> None:
        for turn in range(each):
            peer.log.append([Event("ADDED", b'"%d-%d"' % (name, turn))])

    received: list[Any] = []
    with ThreadPoolExecutor(adders) as pool:
        for name in range(adders):
            pool.submit(add, name)
        last_id = None
        while len(received) < each * adders:
            page = peer.poll(last_id=last_id)["r"]
            received += page
            last_id = page[-1]["id"] if page else last_id
    assert [int(event["id"]) for event in received] == list(range(1, each * adders + 1))
    assert len({event["data"] for event in received}) == each * adders


def test_what_a_poll_acknowledges_is_durable_when_it_is_answered(peer_of: Any) -> None:
    store = VolatileStore()
    store.create(LOG)
    peer = peer_of(store=store)
    peer.add("A", "B", "C")
    peer.register()
    assert peer.polled(last_id="2") == [3]
    assert b'"acknowledged": 2' in store.volatile.kept_values("consumer")[0]
