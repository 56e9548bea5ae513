"""`$events` on a server: what a listener gets, in which form, and what it costs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.passwords import HASH

from headwater.amqp.client import Client
from headwater.amqp.management import event_filter, groups, notifications
from headwater.amqp.management.listener import NotificationLink
from headwater.amqp.management.notifications import LOST_ANNOTATION
from headwater.amqp.management.transformation import TRANSFORMATION
from headwater.amqp.positions.stored import GroupRecord
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.frames import AMQP_HEADER, frame
from headwater.amqp.protocol.message import VALUE
from headwater.amqp.protocol.performatives import (
    Attach,
    Begin,
    Open,
    Rejected,
    Released,
    Source,
    Target,
    encode_performative,
)
from headwater.amqp.protocol.types import Described, Symbol, Timestamp, ULong
from headwater.amqp.settings import AmqpSettings
from headwater.core.access import ANYBODY, Grant, OpenGuard, Right, Unauthenticated, User
from headwater.core.watch.notification_types import EVERY_TYPE, NotificationType
from headwater.management.notifications.catalog import CATALOG
from headwater.server.users.accounts import Account, read_grant

from ...core.listened import is_listened_to
from ...management.told import eventually
from ..asking import bound, drained, message
from ..connections.test_login import guard
from ..served import Served
from .listening import CREATED, DELETED, happen, listener, logs, properties, selector, sql, transformation

CREATIONS = selector(f"eventType = '{CREATED.value}'")


# What comes


def test_what_happens_is_told_while_it_happens(served: Served, client: Client) -> None:
    receiver = listener(client, selector("eventType LIKE '%.log.%'"))
    served.store.create("new")
    served.store.delete("new")
    created, deleted = receiver.take(2)
    assert created.message.properties is not None and created.message.properties.subject == CREATED
    assert properties(created)["log"] == properties(deleted)["log"] == "new"
    assert deleted.message.properties is not None and deleted.message.properties.subject == DELETED


def test_the_subject_is_the_type_and_the_properties_are_all_attributes(served: Served, client: Client) -> None:
    receiver = listener(client, CREATIONS)
    served.bus.emit(CREATED, log="a", incarnation="i", partitions=3)
    (delivery,) = receiver.take(1)
    found = delivery.message
    assert found.properties is not None and found.properties.subject == CREATED.value
    assert list(properties(delivery)) == ["eventType", "time", "log", "incarnation", "partitions"]
    assert properties(delivery) | {"time": 0} == {
        "eventType": CREATED.value, "time": 0, "log": "a", "incarnation": "i", "partitions": 3,
    }  # fmt: skip
    assert type(properties(delivery)["time"]) is Timestamp
    assert (found.body_kind, found.body) == (VALUE, None)
    assert found.delivery_annotations is None


def test_every_type_can_be_told(served: Served, client: Client) -> None:
    receiver = listener(client, credit=200)
    for entry in CATALOG.values():
        given: dict[str, Any] = {}
        for attribute in entry.attributes[2:-1]:
            given[attribute.name] = {"string": "x", "long": 5, "boolean": True, "timestamp": 7}[attribute.kind]
        served.bus.emit(entry.type, **given)
    told = {delivery.message.properties.subject for delivery in receiver.take(len(CATALOG))}  # type: ignore[union-attr]
    assert told == {each.value for each in NotificationType}


def test_without_filter_everything_comes_in_order(served: Served, client: Client) -> None:
    receiver = listener(client)
    for number in range(50):
        happen(served.bus, f"log-{number}")
    assert logs(receiver.take(50)) == [f"log-{number}" for number in range(50)]


def test_a_listener_hears_only_of_what_comes_after_its_attach(served: Served, client: Client) -> None:
    happen(served.bus, "before")
    receiver = listener(client)
    happen(served.bus, "after")
    assert logs(receiver.take(1)) == ["after"]


def test_what_many_threads_tell_comes_to_every_listener(served: Served, client: Client) -> None:
    receivers = [listener(client, CREATIONS, credit=1000) for _ in range(3)]
    threads = [
        threading.Thread(target=happen, args=(served.bus, *[f"{name}{n}" for n in range(100)])) for name in "abc"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for receiver in receivers:
        told = logs(receiver.take(300))
        assert len(told) == 300
        for name in "abc":
            assert [log for log in told if log[0] == name] == [f"{name}{n}" for n in range(100)]


def test_a_listener_that_goes_away_is_forgotten(served: Served, client: Client) -> None:
    receiver = listener(client, CREATIONS)
    assert is_listened_to(served.bus, CREATED)
    receiver.close()
    assert not is_listened_to(served.bus, CREATED)
    with served.client() as other:
        listener(other, CREATIONS)
        other.drop()
    client.wait(lambda: not is_listened_to(served.bus, CREATED) or client.pump(0.01))


def test_the_address_may_be_a_whole_url(served: Served, client: Client) -> None:
    receiver = client.receiver("amqp://elsewhere/$events", filter=CREATIONS)
    happen(served.bus, "a")
    assert logs(receiver.take(1)) == ["a"]


# Filters


def test_only_what_matches_comes(served: Served, client: Client) -> None:
    receiver = listener(client, selector("log LIKE 'order%' AND partitions > 6"))
    happen(served.bus, "orders", "orders-eu", "audit-log", "order-book")
    assert logs(receiver.take(2)) == ["orders-eu", "order-book"]
    assert receiver.take(1, 0.05) == []


def test_all_filters_must_match(served: Served, client: Client) -> None:
    receiver = listener(client, CREATIONS, sql("log IN ('a', 'b')"))
    happen(served.bus, "a", "c")
    happen(served.bus, "b", type=DELETED)
    happen(served.bus, "b")
    assert logs(receiver.take(2)) == ["a", "b"]


def test_filters_in_effect_are_echoed_and_unknown_ones_are_not(client: Client) -> None:
    others: dict[str, object] = {
        "unknown": Described(Symbol("com.example:filter"), 1),
        "offsets": Described(Symbol("amqp:event-streams-delivery-annotations-filter"), {}),
        "query": Described(Symbol("headwater:query-filter"), "type=A"),
    }
    receiver = listener(client, CREATIONS, transformation("log"), others)
    assert receiver.link.remote is not None
    source = receiver.link.remote.source
    assert source.filter == CREATIONS | transformation("log")  # type: ignore[union-attr]
    assert source.address == "$events"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "wrong",
    [
        selector("eventType ="),
        sql("eventType = 'a' AND"),
        sql("d.event-streams-offset > '5'"),
        {"form": Described(Symbol(TRANSFORMATION), None)},
        {"form": Described(Symbol(TRANSFORMATION), {})},
        {"form": Described(Symbol(TRANSFORMATION), {"requestedAttributes": "log"})},
        {"form": Described(Symbol(TRANSFORMATION), {"requestedAttributes": [5]})},
        {"form": Described(Symbol(TRANSFORMATION), {"requestedAttributes": [], "compact": 1})},
        {"form": Described(Symbol(TRANSFORMATION), {"requestedAttributes": [], "other": 1})},
        {"form": Described(Symbol(TRANSFORMATION), {"requestedAttributes": ["x"] * 257})},
        transformation("log") | {"other": Described(Symbol(TRANSFORMATION), {"requestedAttributes": ["log"]})},
        {f"f{n}": Described(ULong(0x110), None) for n in range(257)},
    ],
)
def test_an_invalid_filter_refuses_the_link(client: Client, wrong: dict[str, object]) -> None:
    with pytest.raises(AmqpError) as refused:
        listener(client, wrong)
    assert refused.value.condition == conditions.INVALID_FIELD
    assert refused.value.description


def test_only_types_that_can_match_are_listened_to(served: Served, client: Client) -> None:
    listener(client, CREATIONS)
    assert {type for type in EVERY_TYPE if is_listened_to(served.bus, type)} == {CREATED}
    listener(client, sql("freeBytes < 1000"))
    wanted = {type for type in EVERY_TYPE if is_listened_to(served.bus, type)}
    assert wanted == {CREATED, NotificationType.DISK_LOW, NotificationType.DISK_RECOVERED}


# The transformation


def test_what_a_listener_does_not_want_takes_no_room_while_it_gives_no_credit(served: Served, client: Client) -> None:
    receiver = listener(client, selector("log = 'wanted'"), credit=0)
    happen(served.bus, "wanted")
    for _ in range(10):
        happen(served.bus, *["noise"] * 500)
        eventually(lambda: are_looked_at(served))
    happen(served.bus, "wanted")
    receiver.link.grant(10)
    client.flush()
    told = receiver.take(2)
    assert logs(told) == ["wanted", "wanted"]
    assert not any(LOST_ANNOTATION in (delivery.message.delivery_annotations or {}) for delivery in told)


def test_the_compact_form_is_a_list_of_values_and_nothing_else(served: Served, client: Client) -> None:
    receiver = listener(client, CREATIONS, transformation("partitions", "log", "noSuchThing", "time", "eventType"))
    happen(served.bus, "abc")
    (delivery,) = receiver.take(1)
    found = delivery.message
    assert (found.properties, found.application_properties, found.delivery_annotations) == (None, None, None)
    assert found.body_kind == VALUE
    assert found.body[:3] == [3, "abc", None]
    assert type(found.body[3]) is Timestamp
    assert found.body[4] == CREATED.value


@pytest.mark.parametrize("compact", [False, None])
def test_without_compact_only_the_requested_attributes_come(
    served: Served, client: Client, compact: bool | None
) -> None:
    receiver = listener(client, CREATIONS, transformation("partitions", "noSuchThing", compact=compact))
    happen(served.bus, "abc")
    (delivery,) = receiver.take(1)
    assert properties(delivery) == {"partitions": 3}
    assert delivery.message.properties is not None and delivery.message.properties.subject == CREATED.value


def test_filters_see_what_the_transformation_leaves_out(served: Served, client: Client) -> None:
    receiver = listener(client, selector(f"log = 'b' AND eventType = '{CREATED.value}'"), transformation("partitions"))
    happen(served.bus, "a", "b")
    assert receiver.take(1)[0].message.body == [1]
    assert receiver.take(1, 0.05) == []


def test_nothing_may_be_asked_for(served: Served, client: Client) -> None:
    empty, bare = (
        listener(client, CREATIONS, transformation()), listener(client, CREATIONS, transformation(compact=False)),
    )  # fmt: skip
    happen(served.bus, "a")
    assert empty.take(1)[0].message.body == []
    assert properties(bare.take(1)[0]) == {}


@pytest.mark.parametrize("is_described", [True, False])
def test_a_link_property_gives_the_transformation_too(served: Served, client: Client, is_described: bool) -> None:
    value: Any = {"requestedAttributes": ["log"], "compact": True}
    given = {Symbol(TRANSFORMATION): Described(Symbol(TRANSFORMATION), value) if is_described else value}
    receiver = listener(client, CREATIONS, properties=given)
    assert receiver.link.remote is not None and receiver.link.remote.properties == given
    happen(served.bus, "a")
    assert receiver.take(1)[0].message.body == ["a"]
    with pytest.raises(AmqpError) as refused:
        listener(client, transformation("log"), properties=given)
    assert refused.value.condition == conditions.INVALID_FIELD


def test_an_undescribed_transformation_is_taken_under_its_name(served: Served, client: Client) -> None:
    receiver = listener(client, CREATIONS, {TRANSFORMATION: {"requestedAttributes": [Symbol("log")], "compact": True}})
    happen(served.bus, "a")
    assert receiver.take(1)[0].message.body == ["a"]


# Credit, loss, settlement


def are_looked_at(served: Served) -> bool:
    """Whether the server has looked at all that waits for listeners."""
    ends = [end for transport in served.container.connections for _, _, end in transport.links]
    queues = [end._queue for end in ends if isinstance(end, NotificationLink)]
    return all(queue is not None and queue.is_looked_at for queue in queues)


def test_what_waits_is_bounded_and_the_next_one_tells_how_many_are_lost() -> None:
    with Served(settings=AmqpSettings(listener_events_max=1000)) as served, served.client() as client:
        receiver = listener(client, CREATIONS, credit=0)
        compact = listener(client, CREATIONS, transformation("log"), credit=0)
        happen(served.bus, *[f"log-{number}" for number in range(1005)])
        eventually(lambda: are_looked_at(served))
        for each in (receiver, compact):
            each.link.grant(2000)
        client.flush()
        whole, short = receiver.take(1000), compact.take(1000)
    assert logs(whole) == [f"log-{number}" for number in range(5, 1005)]
    assert [delivery.message.body for delivery in short] == [[f"log-{number}"] for number in range(5, 1005)]
    assert properties(whole[0])["lost"] == 5 and "lost" not in properties(whole[1])
    for first, second, *_ in (whole, short):
        assert first.message.delivery_annotations == {LOST_ANNOTATION: 5}
        assert type((first.message.delivery_annotations or {})[LOST_ANNOTATION]) is ULong
        assert second.message.delivery_annotations is None


def test_a_listener_with_credit_loses_nothing_of_what_comes_in_one_turn() -> None:
    with Served() as served, served.client() as client:
        receiver = listener(client, CREATIONS, credit=6000)

        async def burst() -> None:
            happen(served.bus, *[f"log-{number}" for number in range(5000)])

        served.run(burst)  # one turn of the loop: nobody is served in between
        taken = receiver.take(5000)
    assert logs(taken) == [f"log-{number}" for number in range(5000)]
    assert not [delivery for delivery in taken if "lost" in properties(delivery)]


def test_listeners_of_one_connection_share_what_may_wait() -> None:
    with Served(settings=AmqpSettings(listener_events_max=4000)) as served, served.client() as client:
        receivers = [listener(client, CREATIONS, credit=0) for _ in range(5)]
        happen(served.bus, *[f"log-{number}" for number in range(4100)])
        eventually(lambda: are_looked_at(served))
        for each in receivers:
            each.link.grant(1)
        client.flush()
        assert [properties(each.take(1)[0])["lost"] for each in receivers] == [100, 2100, 2767, 3100, 3100]


def test_a_filter_can_ask_for_what_tells_of_a_loss() -> None:
    with Served(settings=AmqpSettings(listener_events_max=1000)) as served, served.client() as client:
        receiver = listener(client, selector("lost IS NOT NULL"))

        async def burst() -> None:
            happen(served.bus, *[f"log-{number}" for number in range(1005)])

        served.run(burst)
        (told,) = receiver.take(1)
        assert (properties(told)["lost"], properties(told)["log"]) == (5, "log-5")
        assert receiver.take(1, 0.05) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lost > 0", [(5, "log-5")]),
        ("lost = 5 AND log LIKE 'log-%'", [(5, "log-5")]),
        ("NOT lost > 0 AND log = 'log-6'", []),
        ("lost IS NULL OR log = 'log-5'", [(5, "log-5"), (None, "log-6")]),
    ],
)
def test_a_filter_sees_what_was_lost_while_there_was_no_credit(text: str, told: list[tuple[int | None, str]]) -> None:
    async def turn() -> None:
        """The server has a turn, and may look at what waits."""

    with Served(settings=AmqpSettings(listener_events_max=100)) as served, served.client() as client:
        receiver = listener(client, selector(text), credit=0)
        for number in range(105):
            happen(served.bus, f"log-{number}")
            served.run(turn)
        receiver.link.grant(2, drain=True)
        client.flush()
        client.wait(lambda: receiver.link.credit == 0)
        got = [(properties(each).get("lost"), properties(each)["log"]) for each in receiver.take(2, 0)]
    assert got == told


def test_a_listener_without_credit_holds_up_nobody(served: Served, client: Client) -> None:
    listener(client, credit=0)
    receiver = listener(client, CREATIONS, credit=5000)
    for number in range(3):
        happen(served.bus, *[f"log-{number}-{each}" for each in range(500)])
        assert len(receiver.take(500)) == 500
    sender = client.sender("orders")
    sender.send(message())


def test_a_drain_gives_what_waits_and_uses_up_the_credit(served: Served, client: Client) -> None:
    receiver = listener(client, CREATIONS, credit=0)
    happen(served.bus, "a", "b", "c")
    assert logs(drained(client, receiver)) == ["a", "b", "c"]
    assert drained(client, receiver) == []


def test_notifications_come_settled_unless_the_receiver_wants_to_settle_them(served: Served, client: Client) -> None:
    settled, unsettled = listener(client, CREATIONS), listener(client, CREATIONS, snd_settle_mode=0)
    happen(served.bus, "a")
    assert settled.take(1)[0].received.is_settled
    (delivery,) = unsettled.take(1)
    assert not delivery.received.is_settled
    for outcome in (Released(), Rejected()):
        delivery.settle(outcome)
        happen(served.bus, "b")
        (delivery,) = unsettled.take(1)
        assert logs([delivery]) == ["b"]  # nothing comes twice


def test_who_does_not_settle_gets_no_more_than_is_allowed() -> None:
    with Served(settings=AmqpSettings(unsettled_max=3)) as served, served.client() as client:
        receiver = listener(client, CREATIONS, snd_settle_mode=0)
        happen(served.bus, *"abcde")
        first = receiver.take(3)
        assert receiver.take(1, 0.1) == []
        for delivery in first:
            delivery.settle()
        assert logs(receiver.take(2)) == ["d", "e"]


def test_a_notification_that_the_link_cannot_take_ends_it(served: Served, client: Client) -> None:
    receiver = listener(client, CREATIONS, max_message_size=100)
    happen(served.bus, "a" * 500)
    with pytest.raises(AmqpError) as detached:
        receiver.take(1)
    assert detached.value.condition == conditions.LINK_MESSAGE_SIZE_EXCEEDED


def test_listeners_of_a_connection_are_bounded(client: Client) -> None:
    for _ in range(64):
        listener(client, CREATIONS)
    with pytest.raises(AmqpError) as refused:
        listener(client, CREATIONS)
    assert refused.value.condition == conditions.RESOURCE_LIMIT_EXCEEDED


def test_listeners_that_attach_at_once_are_bounded_too(served: Served) -> None:
    opening = [
        Open(container_id="many"),
        Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9, handle_max=99),
    ]
    attaches = [
        Attach(name=str(number), handle=number, role=True, source=Source(address="$events"), target=Target())
        for number in range(100)
    ]
    with socket.create_connection(("127.0.0.1", served.port), 10) as peer:
        peer.sendall(AMQP_HEADER + b"".join(frame(0, encode_performative(each)) for each in [*opening, *attaches]))
        statistics = served.container.statistics
        eventually(lambda: statistics.links + statistics.links_refused == 100)
        assert (statistics.links, statistics.links_refused) == (64, 36)


# What it costs


def test_with_nobody_listening_nothing_is_built(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []
    monkeypatch.setattr(notifications, "encode_message", lambda message: built.append(message) or b"")
    receiver = listener(client, selector(f"eventType = '{DELETED.value}'"))
    happen(served.bus, "a", "b")
    assert receiver.take(1, 0.05) == []
    receiver.close()
    happen(served.bus, "a", type=DELETED)
    assert built == []


def test_each_notification_is_built_once_for_all_who_get_all_of_it(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []
    encode = notifications.encode_message
    monkeypatch.setattr(notifications, "encode_message", lambda message: built.append(message) or encode(message))
    receivers = [listener(client, CREATIONS) for _ in range(5)]
    happen(served.bus, "a", "b")
    for receiver in receivers:
        assert logs(receiver.take(2)) == ["a", "b"]
    assert len(built) == 2


# Who hears what


class Changing(OpenGuard):
    """A guard whose users change."""

    user: User | None = ANYBODY

    def trusted(self, name: str, peer: str) -> User:
        if self.user is None:
            raise Unauthenticated("nobody of that name")
        return self.user


def test_a_right_that_is_lost_is_lost_on_open_links_too() -> None:
    changing = Changing()
    with Served(guard=changing) as served, served.client() as client:
        receiver = listener(client, CREATIONS)
        happen(served.bus, "a", "b")
        assert logs(receiver.take(2)) == ["a", "b"]
        changing.user = User("bob", (Grant("a", frozenset({Right.READ})),))
        happen(served.bus, "b", "a")
        assert logs(receiver.take(1)) == ["a"]
        changing.user = None
        happen(served.bus, "a")
        with pytest.raises(AmqpError) as detached:
            receiver.take(1)
        assert detached.value.condition == conditions.UNAUTHORIZED_ACCESS


def test_links_are_seen_by_their_user_and_by_who_manages_the_server(guarded: Served) -> None:
    with as_user(guarded, "reader") as reader, as_user(guarded, "alice") as alice, as_user(guarded, "manager") as boss:
        guarded.log("orders")
        of_links = selector("eventType LIKE '%.link.%' AND role = 'receiver' AND address = 'orders'")
        own, every = listener(reader, of_links), listener(boss, of_links)
        alice.receiver("orders")
        reader.receiver("orders")
        assert [properties(each)["user"] for each in every.take(2)] == ["alice", "reader"]
        assert [properties(each)["user"] for each in own.take(1)] == ["reader"]
        assert own.take(1, 0.05) == []


def test_who_did_it_is_told_to_who_manages_the_server_only(guarded: Served) -> None:
    with as_user(guarded, "reader") as reader, as_user(guarded, "alice") as boss:
        guarded.log("orders")
        changes = selector("eventType = 'io.headwater.log.changed'")
        by_name = selector("eventType = 'io.headwater.log.changed' AND user = 'alice'")
        every, some, guessing = listener(boss, changes), listener(reader, changes), listener(reader, by_name)
        changed = boss.manage("UPDATE", {"retentionMs": 5000}, type="io.headwater.log", name="orders")
        assert changed.status == 200, changed
        assert [properties(each)["user"] for each in every.take(1)] == ["alice"]
        (seen,) = some.take(1)
        assert "user" not in properties(seen)
        assert properties(seen)["settings"] == '{"retentionMs": 5000}'
        assert guessing.take(1, 0.05) == []  # nor does a filter tell


def test_rights_are_looked_at_before_filters(guarded: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[object] = []

    def matcher(predicates: object, now: object) -> Any:
        return lambda fields: not looked_at.append(fields.application_properties()["log"])

    monkeypatch.setattr(event_filter, "matcher", matcher)
    with as_user(guarded, "reader") as client:
        receiver = listener(client, selector("log LIKE '%a_a%'"))
        happen(guarded.bus, "salaries", "orders", "salaries")
        assert logs(receiver.take(1)) == ["orders"]
    assert looked_at == ["orders"]


# What goes wrong with one


def test_an_epoch_may_be_any_ulong(served: Served, client: Client) -> None:
    served.log("split", partitions=1)
    receiver = listener(client, selector("eventType LIKE '%.epoch.changed' OR eventType LIKE '%.partition.assigned'"))
    with served.client(container_id="member") as member:
        member.receiver("split", properties=bound(0, "G", ULong(2**64 - 1)), credit=0)
        told = [properties(each)["epoch"] for each in receiver.take(2)]
        assert [(type(each), each) for each in told] == [(ULong, 2**64 - 1)] * 2
        read = client.manage("READ", type="io.headwater.consumerGroup", name="split/G")
        assert (read.status, read.body["epochs"]) == (200, {"0": 2**64 - 1})


def test_a_notification_that_cannot_be_written_is_counted_and_ends_nothing(
    served: Served, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    whole, short = listener(client, CREATIONS), listener(client, CREATIONS, transformation("log", "partitions"))
    served.bus.emit(CREATED, log="bad", incarnation="i", partitions=2**64)
    happen(served.bus, "good")
    assert logs(whole.take(1)) == ["good"]
    assert short.take(1)[0].message.body == ["good", 4]
    assert served.container.statistics.notifications_skipped == 2
    assert [record.message for record in caplog.records] == ["a notification was skipped"] * 2


def test_an_answer_that_cannot_be_written_ends_neither_the_link_nor_what_waits(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.log("split")
    with monkeypatch.context() as patched:
        patched.setattr(groups, "load_group", lambda *_: GroupRecord({}, {0: 2**64}))
        assert client.manage("READ", type="io.headwater.consumerGroup", name="split/G").status == 500
    assert client.manage("READ", type="io.headwater.log", name="split").status == 200


def test_for_who_may_not_manage_the_server_its_events_are_not_built(guarded: Served) -> None:
    with guarded.client("reader:correct%20horse@") as client:
        listener(client)
        assert not is_listened_to(guarded.bus, NotificationType.DISK_LOW)
        assert is_listened_to(guarded.bus, CREATED)


def as_user(served: Served, name: str) -> Client:
    return served.client(f"{name}:correct%20horse@")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    """A server with users."""
    accounts = [
        Account("alice", (read_grant("all:*"),), password=HASH),
        Account("reader", (read_grant("read:orders"),), password=HASH),
        Account("manager", (read_grant("manage:*"),), password=HASH),
        Account("nobody", (), password=HASH),
    ]
    with Served(guard=guard(*accounts)) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "heard"),
    [
        ("alice", ["orders", "salaries", None]),
        ("reader", ["orders"]),
        ("manager", [None]),
        ("nobody", []),
    ],
)
def test_events_of_a_log_need_the_right_to_read_it_and_those_of_the_server_to_manage_it(
    guarded: Served, name: str, heard: list[str | None]
) -> None:
    with guarded.client(f"{name}:correct%20horse@") as client:
        receiver = listener(client, selector("eventType LIKE '%.log.created' OR eventType LIKE '%.disk.low'"))
        happen(guarded.bus, "orders", "salaries")
        guarded.bus.emit(NotificationType.DISK_LOW, path="/", freeBytes=1, reserveBytes=2)
        told = receiver.take(len(heard), 5)
        assert [properties(delivery).get("log") for delivery in told] == heard
        assert receiver.take(1, 0.05) == []
