"""Termini that outlive their links: positions over detaches, lost connections and restarts of the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.amqp.client import Client, Receiver
from headwater.amqp.filters import format_offset
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError, LinkFault
from headwater.amqp.protocol.events import LinkDetached
from headwater.amqp.protocol.message import decode_message
from headwater.amqp.protocol.performatives import Accepted, Modified, Rejected, Released, Target
from headwater.amqp.protocol.types import Described, Symbol
from headwater.amqp.settings import AmqpSettings
from headwater.amqp.streams.followers import Following
from headwater.core.local import LocalLog
from headwater.core.state import kinds_of_log
from headwater.core.store import LogStore
from headwater.storage import Engine
from headwater.storage.memory import MemoryStore

from ..waiting import eventually
from .asking import DURABLE, EARLIEST, after, annotation, drained, numbers, put, sql
from .management.test_lags import DURABLE_LINK
from .management.test_peers import found, one
from .served import Served

LINK_DETACH = {"expiry_policy": Symbol("link-detach")}
SESSION_END = {"expiry_policy": Symbol("session-end")}
CONNECTION_CLOSE = {"expiry_policy": Symbol("connection-close")}


@pytest.fixture
def log(served: Served) -> LocalLog:
    log = served.log("orders")
    put(log, *range(1, 21))
    return log


@pytest.fixture(params=["the link", "the session", "the connection", "no word"])
def ended(request: pytest.FixtureRequest) -> Any:
    """How a receiver goes away, without closing its link."""

    def end(client: Client, receiver: Receiver) -> None:
        client.flush()
        if request.param == "the link":
            receiver.close(is_closed=False)
            client.close()
        elif request.param == "the session":
            client.session.end()
            client.close()
        elif request.param == "the connection":
            client.close()
        else:
            client.drop()

    return end


def subscribe(client: Client, source: dict[str, Any], name: str = "subscription", **fields: Any) -> Receiver:
    return client.receiver("orders", credit=0, name=name, filter=EARLIEST, source=source, **fields)


def remembered(served: Served) -> list[str]:
    """The names of the links of the log that are remembered."""

    async def names() -> list[str]:
        return sorted(each.link for each in served.container.nodes._nodes["orders"].positions.durable())

    return served.run(names)


def forgotten(served: Served) -> bool:
    """Whether nothing is remembered of any receiver of the log."""
    return not remembered(served)


def test_durable_receiver_goes_on_where_it_was_left(served: Served, log: LocalLog, ended: Any) -> None:
    with served.client(container_id="shop") as first:
        receiver = subscribe(first, DURABLE)
        answered = receiver.link.remote.source
        assert (answered.durable, answered.expiry_policy) == (2, "never")
        receiver.link.grant(5)
        for delivery in receiver.take(5):
            delivery.settle()
        ended(first, receiver)
    with served.client(container_id="shop") as second:
        assert numbers(drained(second, subscribe(second, DURABLE), 3)) == [6, 7, 8]


def test_what_was_sent_and_not_settled_comes_again(served: Served, log: LocalLog, ended: Any) -> None:
    with served.client(container_id="shop") as first:
        receiver = subscribe(first, DURABLE)
        receiver.link.grant(6)
        deliveries = receiver.take(6)
        for place in (0, 1, 3):
            deliveries[place].settle()
        ended(first, receiver)
    with served.client(container_id="shop") as second:
        assert numbers(drained(second, subscribe(second, DURABLE), 4)) == [3, 5, 6, 7]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Accepted(), [2, 3]),
        (Rejected(), [2, 3]),
        (Modified(undeliverable_here=True), [2, 3]),
        (Released(), [1, 2]),
        (Modified(delivery_failed=True), [1, 2]),
    ],
    ids=str,
)
def test_only_final_outcomes_move_the_position(served: Served, log: LocalLog, state: Any, expected: list[int]) -> None:
    with served.client(container_id="shop") as first:
        receiver = subscribe(first, DURABLE)
        receiver.link.grant(1)
        receiver.take(1)[0].settle(state)
        receiver.close(is_closed=False)
        assert numbers(drained(first, subscribe(first, DURABLE), 2)) == expected


def test_what_is_sent_settled_moves_the_position(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as first:
        receiver = subscribe(first, DURABLE, snd_settle_mode=1)
        receiver.link.grant(4)
        assert numbers(receiver.take(4)) == [1, 2, 3, 4]
    with served.client(container_id="shop") as second:
        assert numbers(drained(second, subscribe(second, DURABLE), 2)) == [5, 6]


def test_a_closed_link_is_forgotten(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as client:
        receiver = subscribe(client, DURABLE)
        assert len(drained(client, receiver, 5)) == 5
        receiver.close()
        assert forgotten(served)
        assert numbers(drained(client, subscribe(client, DURABLE), 2)) == [1, 2]


def test_others_have_their_own_position(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as shop, served.client(container_id="office") as office:
        drained(shop, subscribe(shop, DURABLE, snd_settle_mode=1), 5)
        assert numbers(drained(shop, subscribe(shop, DURABLE, "another"), 1)) == [1]
        assert numbers(drained(office, subscribe(office, DURABLE), 1)) == [1]


# Over a restart


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with Engine(tmp_path) as store:
        put(store.create("orders"), *range(1, 21))
    yield tmp_path


def serve_once(directory: Path, source: dict[str, Any], take: int, **fields: Any) -> list[int]:
    """Start a server, receive so many and accept them, drop the connection and stop."""
    with Engine(directory) as store, Served(store=store) as served:
        with served.client(container_id="shop") as client:
            receiver = subscribe(client, source, **fields)
            deliveries = drained(client, receiver, take)
            for delivery in deliveries:
                delivery.settle()
            client.close()
        return numbers(deliveries)


@pytest.mark.parametrize("durable", [1, 2])
def test_a_durable_terminus_outlives_the_server(directory: Path, durable: int) -> None:
    source = {**DURABLE, "durable": durable}
    assert serve_once(directory, source, 4) == [1, 2, 3, 4]
    assert serve_once(directory, source, 4) == [5, 6, 7, 8]
    assert serve_once(directory, source, 4, name="another") == [1, 2, 3, 4]


def test_one_that_is_not_durable_does_not(directory: Path) -> None:
    assert serve_once(directory, {"expiry_policy": Symbol("never")}, 4) == [1, 2, 3, 4]
    assert serve_once(directory, {"expiry_policy": Symbol("never")}, 4) == [1, 2, 3, 4]


def test_a_restart_ends_connections_and_not_what_outlives_them(directory: Path) -> None:
    closing = {"durable": 2, **CONNECTION_CLOSE}
    lasting = {**closing, "timeout": 3600}
    assert serve_once(directory, closing, 4) == [1, 2, 3, 4]
    assert serve_once(directory, closing, 4) == [1, 2, 3, 4]
    assert serve_once(directory, lasting, 4, name="lasting") == [1, 2, 3, 4]
    assert serve_once(directory, lasting, 4, name="lasting") == [5, 6, 7, 8]


def test_a_position_is_stored_while_the_server_runs(directory: Path) -> None:
    """So that what a crash loses is what happened in the last moment."""
    with Engine(directory) as store, Served(store=store) as served, served.client(container_id="shop") as client:
        receiver = subscribe(client, DURABLE)
        for delivery in drained(client, receiver, 7):
            delivery.settle()
        kind = f"reader/{store.open('orders').info().incarnation}"

        def is_stored() -> bool:
            return any(b'"after": 7' in entry.value for _, entry in store.state.items(kind))

        client.wait(is_stored)


# Expiry


@pytest.mark.parametrize(
    ("source", "survives_link", "survives_session", "survives_connection"),
    [
        (LINK_DETACH, False, False, False),
        (SESSION_END, True, False, False),
        (CONNECTION_CLOSE, True, True, False),
        (DURABLE, True, True, True),
    ],
    ids=["link-detach", "session-end", "connection-close", "never"],
)
def test_a_terminus_expires_with_what_its_policy_names(
    served: Served,
    log: LocalLog,
    source: dict[str, Any],
    survives_link: bool,
    survives_session: bool,
    survives_connection: bool,
) -> None:
    def position(client: Client) -> int:
        receiver = subscribe(client, source)
        (delivery,) = drained(client, receiver, 1)
        delivery.settle()
        receiver.close(is_closed=False)
        return numbers([delivery])[0]

    with served.client(container_id="shop") as client:
        assert position(client) == 1
        assert position(client) == (2 if survives_link else 1)
        client.session.end()
        client.session = client.engine.begin()
        client.wait(lambda: client.session.remote is not None)
        assert (position(client) > 1) == survives_session
    with served.client(container_id="shop") as client:
        assert (position(client) > 1) == survives_connection


def test_a_timeout_gives_time_to_come_back(served: Served, log: LocalLog) -> None:
    source = {**LINK_DETACH, "timeout": 3600}
    with served.client(container_id="shop") as client:
        drained(client, subscribe(client, source, snd_settle_mode=1), 3)
    with served.client(container_id="shop") as client:
        receiver = subscribe(client, source)
        assert receiver.link.remote.source.timeout == 3600
        assert numbers(drained(client, receiver, 1)) == [4]


def test_a_terminus_whose_time_has_come_is_forgotten(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as client:
        subscribe(client, {**LINK_DETACH, "timeout": 1}).close(is_closed=False)
        client.wait(lambda: client.pump(0.1) or forgotten(served))


def test_an_abandoned_subscription_is_forgotten_after_the_time_that_is_set() -> None:
    with Served(settings=AmqpSettings(abandoned_ms=1000)) as served, served.client(container_id="shop") as client:
        put(served.log("orders"), 1, 2)
        kept = subscribe(client, DURABLE, "kept")
        subscribe(client, DURABLE, "abandoned").close(is_closed=False)
        assert remembered(served) == ["abandoned", "kept"]
        client.wait(lambda: client.pump(0.1) or remembered(served) == ["kept"])
        assert numbers(drained(client, kept)) == [1, 2]
        assert numbers(drained(client, subscribe(client, DURABLE, "abandoned"))) == [1, 2]


HOUR_MS = 3_600_000


class Clock:
    """The wall clock, which a test sets forward."""

    def __init__(self) -> None:
        self.ahead_ms, self._time_ns = 0, time.time_ns

    def __call__(self) -> int:
        return self._time_ns() + self.ahead_ms * 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time_ns", clock)
    return clock


@contextmanager
def a_run(store: LogStore) -> Iterator[tuple[Served, Client]]:
    """One run of a server that forgets subscriptions after two hours, and a client of it."""
    settings = AmqpSettings(abandoned_ms=2 * HOUR_MS)
    with Served(store=store, settings=settings) as served, served.client(container_id="shop") as client:
        yield served, client


def test_the_time_in_which_no_server_runs_does_not_count_for_abandoned_subscriptions(
    directory: Path, clock: Clock
) -> None:
    """No client could have come back in that time."""
    with Engine(directory) as store, a_run(store) as (served, client):
        subscribe(client, DURABLE, "left").close(is_closed=False)
        clock.ahead_ms += HOUR_MS
        for delivery in drained(client, subscribe(client, DURABLE, "attached"), 3):
            delivery.settle()
    for _ in range(2):  # two stops, each much longer than the age
        clock.ahead_ms += 100 * HOUR_MS
        with Engine(directory) as store, a_run(store) as (served, client):
            assert [one(client, DURABLE_LINK, linkName=name)["position"] for name in ("attached", "left")] == [3, 0]
    with Engine(directory) as store, a_run(store) as (served, client):
        client.receiver("orders").close()
        assert remembered(served) == ["attached", "left"]
        clock.ahead_ms += HOUR_MS
        eventually(lambda: remembered(served) == ["attached"], lambda: remembered(served))
        assert numbers(drained(client, subscribe(client, DURABLE, "attached"), 2)) == [4, 5]


def test_a_subscription_that_was_attached_at_a_crash_is_detached_since_the_next_start(clock: Clock) -> None:
    """Whoever looks at it does not renew that, and it is forgotten where nobody uses its log, too."""
    store = MemoryStore()
    put(store.create("orders"), 1)
    kind = kinds_of_log(store.incarnation_of("orders"))[1]
    with a_run(store) as (served, client):
        subscribe(client, DURABLE)
        eventually(lambda: list(store.state.items(kind)))
        ((key, entry),) = store.state.items(kind)
    store.state.put(kind, key, entry.value)
    clock.ahead_ms += HOUR_MS
    began = clock() // 1_000_000
    with a_run(store) as (served, client):
        following = Following(served.container.nodes)
        since = one(client, DURABLE_LINK)["detachedAt"]
        assert began <= since <= clock() // 1_000_000
        clock.ahead_ms += HOUR_MS
        assert one(client, DURABLE_LINK)["detachedAt"] == since and len(served.run(following.followers)) == 1
        clock.ahead_ms += HOUR_MS
        assert found(client, DURABLE_LINK) == [] and served.run(following.followers) == []
        assert served.container.nodes.all == []


def test_a_policy_that_is_none_is_refused(served: Served, log: LocalLog, client: Client) -> None:
    with pytest.raises(AmqpError) as refused:
        subscribe(client, {"expiry_policy": Symbol("whenever")})
    assert refused.value.condition == conditions.INVALID_FIELD


# Stealing, trimming, limits


def test_a_link_of_the_same_name_takes_over(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as first, served.client(container_id="shop") as second:
        old = subscribe(first, DURABLE)
        for delivery in drained(first, old, 5)[:3]:
            delivery.settle()
        drained(first, first.receiver("orders", credit=0))  # the outcomes have arrived
        new = subscribe(second, DURABLE)
        with pytest.raises(AmqpError) as stolen:
            old.take(1)
        assert stolen.value.condition == conditions.LINK_STOLEN
        assert numbers(drained(second, new, 4)) == [4, 5, 6, 7]
        first.close()
        new.link.grant(2)
        assert numbers(new.take(2)) == [8, 9]


def test_a_link_of_the_same_name_of_another_container_does_not(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as first, served.client(container_id="office") as second:
        old, new = subscribe(first, DURABLE), subscribe(second, DURABLE)
        assert numbers(drained(first, old, 2)) == numbers(drained(second, new, 2)) == [1, 2]


def test_a_durable_link_holds_no_trimming_back(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as client:
        drained(client, subscribe(client, DURABLE, snd_settle_mode=1), 3)
    assert log.trim(11) == 11
    with served.client(container_id="shop") as client:
        first, second = drained(client, subscribe(client, DURABLE), 2)
    assert numbers([first, second]) == [11, 12]
    gap = "x-opt-headwater-first-retained-offset"
    assert (annotation(first, gap), annotation(second, gap)) == (format_offset(11), None)


def test_a_given_back_event_that_was_trimmed_is_passed_over(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as client:
        receiver = subscribe(client, DURABLE)
        deliveries = drained(client, receiver, 12)
        log.trim(11)
        for delivery in deliveries:
            delivery.settle(Released())
        assert numbers(drained(client, receiver, 3)) == [11, 12, 13]


def test_only_so_many_termini_are_remembered() -> None:
    with Served(settings=AmqpSettings(termini_max=3)) as served, served.client() as client:
        put(served.log("orders"), 1)
        receivers = [subscribe(client, DURABLE, f"link {number}") for number in range(3)]
        with pytest.raises(AmqpError) as refused:
            subscribe(client, DURABLE, "one too many")
        assert refused.value.condition == conditions.RESOURCE_LIMIT_EXCEEDED
        assert numbers(drained(client, subscribe(client, {}, "not durable"))) == [1]
        receivers[0].close()
        assert numbers(drained(client, subscribe(client, DURABLE, "one more"))) == [1]


def test_a_recovered_link_may_say_what_it_had_settled(served: Served, log: LocalLog) -> None:
    """The outcomes did not arrive before the connection was lost (2.6.13)."""
    with served.client(container_id="shop") as first:
        tags = [delivery.received.tag for delivery in drained(first, subscribe(first, DURABLE), 4)]
        first.drop()
    with served.client(container_id="shop") as second:
        unsettled = {tags[0]: Accepted(), tags[1]: None, tags[2]: Accepted()}
        receiver = subscribe(second, DURABLE, unsettled=unsettled)
        assert numbers(drained(second, receiver, 3)) == [2, 4, 5]


def test_positions_go_with_their_log(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as client:
        drained(client, subscribe(client, DURABLE, snd_settle_mode=1), 20)
        served.store.delete("orders")
        put(served.log("orders"), 100, 101)
        assert numbers(drained(client, subscribe(client, DURABLE), 2)) == [100, 101]


# Another subscription under the same name


def selector(text: str) -> dict[str, Any]:
    return {"jms-selector": Described(Symbol("apache.org:selector-filter:string"), text)}


def left(
    served: Served, filter: dict[str, Any], take: int, *, name: str = "mine", address: str = "orders"
) -> list[int]:
    """What a durable subscription gets, before it goes away."""
    with served.client(container_id="shop") as client:
        receiver = client.receiver(address, credit=0, name=name, filter=filter, source=DURABLE)
        deliveries = drained(client, receiver, take)
        for delivery in deliveries:
            delivery.settle()
        receiver.close(is_closed=False)
        return numbers(deliveries)


def test_another_selector_is_another_subscription(served: Served, log: LocalLog) -> None:
    """As JMS has it: it begins where a new one does."""
    at = "orders/$earliest"
    assert left(served, selector("JMSType = 'T'"), 5, address=at) == [1, 2, 3, 4, 5]
    assert left(served, selector("JMSType = 'T'"), 2, address=at) == [6, 7]
    assert left(served, selector("JMSType <> 'U'"), 2, address=at) == [1, 2]
    assert left(served, {}, 2, address=at) == [1, 2]
    assert left(served, selector("JMSType <> 'U'"), 2) == [], "it begins now, as a new one does without a position"
    put(log, 21)
    assert left(served, selector("JMSType <> 'U'"), 2) == [21]


def test_another_position_in_the_filter_is_the_same_subscription(served: Served, log: LocalLog) -> None:
    only = selector("JMSType = 'T'")
    assert left(served, {**EARLIEST, **only}, 3) == [1, 2, 3]
    assert left(served, {**after(10), **only}, 3) == [4, 5, 6]
    assert left(served, only, 3) == [7, 8, 9]


def test_an_invalid_selector_replaces_nothing(served: Served, log: LocalLog) -> None:
    assert left(served, EARLIEST, 3) == [1, 2, 3]
    served.log("others")
    for address in ("orders", "others"):
        with pytest.raises(AmqpError) as refused:
            left(served, selector("1 +"), 3, address=address)
        assert refused.value.condition == conditions.INVALID_FIELD
    assert left(served, EARLIEST, 3) == [4, 5, 6]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_subscription_in_another_log_replaces_the_old_one(directory: Path, is_restarted: bool) -> None:
    with Engine(directory) as store:
        put(store.create("others"), *range(101, 111))

    def got(*asked: tuple[str, str]) -> list[list[int]]:
        with Engine(directory) as store, Served(store=store) as served:
            return [left(served, EARLIEST, 2, address=log, name=name) for log, name in asked]

    asked = [("orders", "mine"), ("orders", "another"), ("others", "mine"), ("orders", "another"), ("orders", "mine")]
    expected = [[1, 2], [1, 2], [101, 102], [3, 4], [1, 2]]
    assert [each for pair in asked for each in got(pair)] == expected if is_restarted else got(*asked) == expected


# Without naming its source


def attached_again(client: Client, name: str = "subscription", **fields: Any) -> Any:
    """An attach without a source, and its answer."""
    link = client.session.attach_receiver(name, target=Target(address="here"), **fields)
    client.wait(lambda: link.remote is not None)
    assert link.remote is not None
    return link


@pytest.fixture
def filtered(directory: Path) -> Path:
    """A directory of a log, with a durable subscription to its even numbers, of which two were accepted."""
    with Engine(directory) as store, Served(store=store) as served, served.client(container_id="shop") as client:
        log = store.open("orders")
        put(log, *range(21, 31), type="Even")
        evens = {**EARLIEST, **sql("[cloudEvents:type] = 'Even'")}
        receiver = client.receiver("orders", credit=0, name="subscription", filter=evens, source=DURABLE)
        for delivery in drained(client, receiver, 2):
            delivery.settle()
        receiver.close(is_closed=False)
    return directory


def test_an_attach_without_a_source_finds_the_one_of_its_link(filtered: Path) -> None:
    """After a restart too, and with its filters (2.6.3)."""
    with Engine(filtered) as store, Served(store=store) as served, served.client(container_id="shop") as client:
        link = attached_again(client)
        source = link.remote.source
        assert (source.address, source.durable, source.expiry_policy) == ("orders", 2, "never")
        assert set(source.filter) == {"begin", "only"}
        link.grant(10, drain=True)
        client.wait(lambda: link.credit == 0)
        assert [int(decode_message(each.payload).body[0]) for each in link.take()] == list(range(23, 31))


def test_to_look_for_the_source_of_a_link_opens_no_other_log(filtered: Path) -> None:
    with Engine(filtered) as store:
        for number in range(10):
            store.create(f"other-{number}")
    with (
        Engine(filtered, maintains=False) as store,
        Served(store=store) as served,
        served.client(container_id="shop") as client,
    ):
        assert attached_again(client, "unknown").remote.source is None
        assert store.opened() == []
        assert attached_again(client).remote.source is not None
        assert [log.name for log in store.opened()] == ["orders"]


def test_a_subscription_ends_without_naming_its_source(filtered: Path) -> None:
    """As `Session.unsubscribe` of JMS does it: attach without a source, then close."""
    with Engine(filtered) as store, Served(store=store) as served, served.client(container_id="shop") as client:
        link = attached_again(client)
        assert link.remote.source is not None
        link.detach()
        client.wait(lambda: link.is_over)
        assert forgotten(served)
        assert attached_again(client).remote.source is None


@pytest.mark.parametrize("capabilities", [("shared",), ("topic", "shared", "global")])
def test_a_shared_subscription_is_refused_and_not_remembered(
    served: Served, log: LocalLog, capabilities: tuple[str, ...]
) -> None:
    """As `Session.createSharedDurableConsumer` of JMS asks for it, and then unsubscribes."""
    with served.client(container_id="shop") as client:
        detached = []
        deal = client._deal
        client._deal = lambda events: (detached.extend(events), deal(events))  # type: ignore[method-assign]
        with pytest.raises(LinkFault, match="event-streams-consumer-group") as refused:
            subscribe(client, {**DURABLE, "capabilities": tuple(map(Symbol, capabilities))})
        assert refused.value.condition == conditions.NOT_IMPLEMENTED
        assert [each.is_closed for each in detached if isinstance(each, LinkDetached)] == [True]
        assert attached_again(client).remote.source is None, "it is remembered"


def test_the_answer_has_the_capabilities_that_are_served(served: Served, log: LocalLog, client: Client) -> None:
    asked = tuple(map(Symbol, ("topic", "global", "queue", "x")))
    for address in ("orders", "orders/$info"):
        receiver = client.receiver(address, credit=0, source={"capabilities": asked})
        assert receiver.link.remote is not None and receiver.link.remote.source is not None
        served_there = ("topic", "queue") if address == "orders" else ()
        assert tuple(receiver.link.remote.source.capabilities) == served_there


@pytest.mark.parametrize("who", ["another link", "another container", "nobody's"])
def test_nobody_finds_the_source_of_somebody_else(served: Served, log: LocalLog, who: str) -> None:
    with served.client(container_id="shop") as client:
        if who != "nobody's":
            subscribe(client, DURABLE).close(is_closed=False)
        name = "another" if who == "another link" else "subscription"
        with served.client(container_id="office" if who == "another container" else "shop") as other:
            link = other.session.attach_receiver(name, target=Target(address="here"))
            detached = []
            deal = other._deal
            other._deal = lambda events: (detached.extend(events), deal(events))  # type: ignore[method-assign]
            other.wait(lambda: link.is_over)
            assert link.remote.source is None
            assert [each.error.condition for each in detached if isinstance(each, LinkDetached)] == [
                conditions.NOT_FOUND
            ]


def test_a_source_of_unsettled_state_tells_what_is_unsettled(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as client:
        receiver = subscribe(client, DURABLE)
        receiver.link.grant(5)
        deliveries = receiver.take(5)
        for place in (0, 2):
            deliveries[place].settle()
        receiver.close(is_closed=False)
        again = attached_again(client, unsettled={})
        assert again.remote.unsettled == {number.to_bytes(8, "big"): None for number in (2, 4, 5)}
        assert not again.remote.incomplete_unsettled
        again.detach(is_closed=False)
        client.wait(lambda: again.is_over)
        configuration = subscribe(client, {**DURABLE, "durable": 1})
        assert configuration.link.remote.unsettled is None


def test_after_a_restart_the_unsettled_are_not_known_one_by_one(filtered: Path) -> None:
    with Engine(filtered) as store, Served(store=store) as served, served.client(container_id="shop") as client:
        link = attached_again(client, unsettled={})
        assert link.remote.unsettled is None and link.remote.incomplete_unsettled


def test_who_says_nothing_of_the_unsettled_gets_them_as_new_ones(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as client:
        receiver = subscribe(client, DURABLE)
        receiver.link.grant(3)
        receiver.take(3)
        receiver.close(is_closed=False)
        again = attached_again(client)
        assert again.remote.unsettled is None and not again.remote.incomplete_unsettled
        again.grant(5, drain=True)
        client.wait(lambda: again.credit == 0)
        got = [(int.from_bytes(each.tag), bool(each.whole and each.whole.resume)) for each in again.take()]
        assert got == [(number, False) for number in range(1, 6)]


def test_what_both_sides_have_unsettled_is_resumed(served: Served, log: LocalLog) -> None:
    with served.client(container_id="shop") as client:
        receiver = subscribe(client, DURABLE)
        receiver.link.grant(3)
        receiver.take(3)
        receiver.close(is_closed=False)
        unsettled = {(2).to_bytes(8, "big"): None, (99).to_bytes(8, "big"): None}
        again = attached_again(client, unsettled=unsettled)
        again.grant(5, drain=True)
        client.wait(lambda: again.credit == 0)
        got = [(int.from_bytes(each.tag), bool(each.whole and each.whole.resume)) for each in again.take()]
        assert got == [(1, False), (2, True), (3, False), (4, False), (5, False)]


@pytest.mark.parametrize("source", [{"durable": 1, "expiry_policy": Symbol("never")}, CONNECTION_CLOSE, SESSION_END])
def test_nothing_is_resumed_that_the_answer_does_not_name(
    served: Served, log: LocalLog, source: dict[str, Any]
) -> None:
    with served.client(container_id="shop") as client:
        receiver = subscribe(client, source)
        receiver.link.grant(3)
        receiver.take(3)
        receiver.close(is_closed=False)
        again = subscribe(client, source, unsettled={(2).to_bytes(8, "big"): None})
        assert again.link.remote.unsettled is None and not again.link.remote.incomplete_unsettled
        got = [each.received for each in drained(client, again, 4)]
        resumed = [(int.from_bytes(each.tag), bool(each.whole and each.whole.resume)) for each in got]
        assert resumed == [(1, False), (2, False), (3, False), (4, False)]
