"""The server, its connections, sessions and links as entities; deleting one closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.amqp.client import Client
from headwater.amqp.management.peers import PARTS_AT_ONCE, Links, Sessions
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.performatives import Accepted
from headwater.amqp.protocol.types import Symbol, Timestamp
from headwater.core.access import ANYBODY, OpenGuard, User
from headwater.core.errors import StorageUnavailable
from headwater.core.state import kinds_of_log
from headwater.management.entities import TYPES

from ...waiting import eventually
from ..asking import DURABLE, EARLIEST, bound, message, put
from ..served import Served

SERVER, CONNECTION, SESSION, LINK, GROUP = (
    f"io.headwater.{name}" for name in ("server", "connection", "session", "link", "consumerGroup")
)


def found(client: Client, type: str, **wanted: Any) -> list[dict[str, Any]]:
    """The entities of a type that have these attributes."""
    body = client.manage("QUERY", {}, entityType=type).body
    entities = [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]
    return [each for each in entities if all(each[name] == value for name, value in wanted.items())]


def one(client: Client, type: str, **wanted: Any) -> dict[str, Any]:
    (entity,) = found(client, type, **wanted)
    return entity


# The server


def test_the_server_counts_what_happens(served: Served, client: Client) -> None:
    client.sender("orders").send(message())
    reply = client.manage("READ", type=SERVER, name="self")
    assert (reply.body["product"], reply.body["logs"], reply.body["connections"]) == ("Headwater", 1, 1)
    assert (reply.body["messagesReceived"], reply.body["messagesRejected"]) == (1, 0)
    assert type(reply.body["startedAt"]) is Timestamp
    assert list(reply.body) == TYPES[SERVER].attribute_names
    assert client.manage("READ", type=SERVER, name="other").status == 404
    assert client.manage("DELETE", type=SERVER, name="self").status == 501


# Reading


def test_a_connection_is_told_with_its_peer_and_what_went_over_it(served: Served, client: Client) -> None:
    with served.client(container_id="other") as other:
        other.sender("orders").send_all([message(b"x" * 1000)] * 10)
        entity = one(client, CONNECTION, containerId="other")
    assert (entity["peer"], entity["user"], entity["stage"]) == ("127.0.0.1", "", "frames")
    assert (entity["sessions"], entity["links"]) == (1, 1)
    assert entity["bytesReceived"] > 10_000 and 0 < entity["bytesSent"] < 10_000
    assert type(entity["openedAt"]) is Timestamp
    assert list(entity) == TYPES[CONNECTION].attribute_names


def test_connections_count_from_1_and_keep_their_names(served: Served, client: Client) -> None:
    with served.client():
        names = [each["name"] for each in found(client, CONNECTION)]
    assert names == ["1", "2"]
    with served.client():
        assert [each["name"] for each in found(client, CONNECTION)] == ["1", "3"]
    assert client.manage("READ", type=CONNECTION, name="2").status == 404


def test_a_session_is_told_with_its_links(served: Served, client: Client) -> None:
    client.sender("orders")
    entity = one(client, SESSION)
    assert (entity["name"], entity["connection"], entity["links"]) == ("1/1", "1", 3)
    assert list(entity) == TYPES[SESSION].attribute_names


def test_links_tell_their_address_role_and_how_much_went_over_them(served: Served, client: Client) -> None:
    put(served.store.open("orders"), 1, 2, 3)
    with served.client(container_id="other") as other:
        other.sender("orders", name="in").send_all([message()] * 5)
        receiver = other.receiver("orders", filter=EARLIEST, credit=6, name="out")
        receiver.take(6)
        sender = one(client, LINK, linkName="in")
        consumer = one(client, LINK, linkName="out")
    assert (sender["role"], sender["address"], sender["log"]) == ("sender", "orders", "orders")
    assert (sender["deliveries"], sender["unsettled"], sender["isAttached"]) == (5, None, True)
    assert (consumer["role"], consumer["deliveries"], consumer["unsettled"]) == ("receiver", 6, 6)
    assert consumer["session"].startswith(f"{consumer['connection']}/")
    assert consumer["name"].startswith(f"{consumer['session']}/")
    assert list(consumer) == TYPES[LINK].attribute_names
    own = one(
        client, LINK, role="receiver", containerId=sender["containerId"].replace("other", client.engine.container_id)
    )
    assert (own["address"], own["log"]) == ("$management", None)


def test_links_tell_what_they_wait_for_and_since_when(served: Served, client: Client) -> None:
    log = served.store.open("orders")
    put(log, 1, 2, 3)
    with served.client(container_id="other") as other:
        sender = other.sender("orders", name="in")
        told = one(client, LINK, linkName="in")
        assert (told["waitsFor"], told["messageAt"], told["waitsSince"]) == ("messages", None, told["attachedAt"])
        sender.send(message())
        told = one(client, LINK, linkName="in")
        assert told["attachedAt"] <= told["messageAt"] and told["waitsSince"] == told["messageAt"]
        idle = other.receiver("orders", filter=EARLIEST, credit=0, name="out")
        told = one(client, LINK, linkName="out")
        assert (told["waitsFor"], told["credit"], told["unsettled"]) == ("credit", 0, 0)
        assert told["unsettledMax"] == served.container.shared.settings.unsettled_max
        idle.link.grant(2)
        first, second = idle.take(2)
        told = one(client, LINK, linkName="out")
        assert (told["waitsFor"], told["credit"], told["unsettled"]) == ("outcomes", 0, 2)
        assert told["waitsSince"] == told["messageAt"]
        first.settle()
        second.settle()
        idle.link.grant(10)
        idle.take(2)
        told = one(client, LINK, linkName="out")
        assert (told["waitsFor"], told["lag"]) == ("events", 2)
    own = one(client, LINK, role="sender", address="$management")
    assert (own["waitsFor"], own["waitsSince"], own["unsettledMax"]) == (None, None, None)


def test_every_entity_of_the_container_is_read_by_its_identity(served: Served, client: Client) -> None:
    client.receiver(None, source={"dynamic": True})
    for type in (SERVER, CONNECTION, SESSION, LINK):
        for entity in found(client, type):
            reply = client.manage("READ", identity=entity["identity"])
            assert (reply.status, reply.body["name"], reply.body["type"]) == (200, entity["name"], type)


@pytest.mark.parametrize("name", ["", "0", "99", "x", "1/", "1/1", "1/1/1", "01", "9" * 30])
@pytest.mark.parametrize("type", [CONNECTION, SESSION, LINK])
def test_what_is_not_there_is_not_found(client: Client, type: str, name: str) -> None:
    if client.manage("READ", type=type, name=name).status == 200:
        assert (type, name) in ((SESSION, "1/1"), (LINK, "1/1/1"))
        return
    for operation in ("READ", "DELETE"):
        assert client.manage(operation, type=type, name=name).status == 404


@pytest.mark.parametrize("type", [CONNECTION, SESSION, LINK])
def test_connections_sessions_and_links_are_not_made_nor_changed(client: Client, type: str) -> None:
    for operation in ("CREATE", "UPDATE"):
        assert client.manage(operation, {}, type=type, name="1").status == 501


def test_what_a_peer_says_of_itself_is_cut(served: Served, client: Client) -> None:
    with served.client(container_id="c" * 5000):
        (entity,) = [each for each in found(client, CONNECTION) if each["containerId"].startswith("ccc")]
    assert len(entity["containerId"]) == 256


# Deleting


def test_deleting_a_connection_closes_it_with_forced(served: Served, client: Client) -> None:
    with served.client(container_id="other") as other:
        number = one(client, CONNECTION, containerId="other")["name"]
        assert client.manage("DELETE", type=CONNECTION, name=number).status == 204
        with pytest.raises(AmqpError) as closed:
            other.wait(lambda: False)
        assert closed.value.condition == conditions.CONNECTION_FORCED
    client.wait(lambda: not found(client, CONNECTION, containerId="other"))
    assert client.manage("DELETE", type=CONNECTION, name=number).status == 404


def test_who_deletes_the_own_connection_is_answered_before(client: Client) -> None:
    reply = client.manage("DELETE", identity="connection/1")
    assert (reply.status, reply.body) == (204, {})
    with pytest.raises(AmqpError) as closed:
        client.wait(lambda: False)
    assert closed.value.condition == conditions.CONNECTION_FORCED


def test_deleting_a_session_ends_it_and_no_other(served: Served, client: Client) -> None:
    with served.client(container_id="other") as other:
        second = other.engine.begin()
        other.wait(lambda: second.remote is not None)
        connection = one(client, CONNECTION, containerId="other")["name"]
        names = [each["name"] for each in found(client, SESSION, connection=connection)]
        assert names == [f"{connection}/1", f"{connection}/2"]
        assert client.manage("DELETE", type=SESSION, name=names[0]).status == 204
        with pytest.raises(AmqpError) as ended:
            other.wait(lambda: False)
        assert ended.value.condition == conditions.RESOURCE_DELETED
        assert [each["name"] for each in found(client, SESSION, connection=connection)] == [names[1]]


def test_deleting_a_link_detaches_it_and_no_other(served: Served, client: Client) -> None:
    with served.client(container_id="other") as other:
        sender, consumer = other.sender("orders", name="in"), other.receiver("orders", name="out")
        name = one(client, LINK, linkName="out")["name"]
        assert client.manage("DELETE", type=LINK, name=name).status == 204
        with pytest.raises(AmqpError) as detached:
            consumer.take(1)
        assert detached.value.condition == conditions.LINK_DETACH_FORCED
        assert sender.send(message()) == Accepted()
        assert client.manage("READ", type=LINK, name=name).status == 404


def test_a_link_attached_later_has_another_name(served: Served, client: Client) -> None:
    with served.client(container_id="other") as other:
        other.sender("orders", name="in").close()
        other.sender("orders", name="again")
        assert found(client, LINK, linkName="in") == []
        assert one(client, LINK, linkName="again")["name"].endswith("/2")


# Consumer groups


def member(client: Client, group: str = "workers", **more: Any) -> Any:
    return client.receiver("split", properties=bound(group=group, **more))


def test_a_consumer_group_tells_positions_epochs_and_owners(served: Served, client: Client) -> None:
    log = served.log("split", partitions=2)
    put(log, 1, 2, partition=1)
    assert found(client, GROUP) == []
    with served.client() as other:
        other.receiver("split", name="mine", filter=EARLIEST, properties=bound(partition=1, group="workers", epoch=7))
        entity = one(client, GROUP)
        assert (entity["name"], entity["log"], entity["group"]) == ("split/workers", "split", "workers")
        assert (entity["owners"], entity["members"], entity["epochs"]) == ({"1": "mine"}, 1, {"1": 7})
        assert set(entity["positions"]) == {"1"}
        assert client.manage("DELETE", type=GROUP, name="split/workers").status == 409
        with served.client() as third:
            member(third, "a/b")
        assert [each["name"] for each in found(client, GROUP)] == ["split/a%2Fb", "split/workers"]


def test_deleting_a_group_forgets_its_positions_and_epochs(served: Served, client: Client) -> None:
    log = served.log("split", partitions=1)
    put(log, 1, 2, 3)
    with served.client() as other:
        receiver = other.receiver("split", filter=EARLIEST, properties=bound(partition=0, group="workers", epoch=7))
        for delivery in receiver.take(2):
            delivery.settle()
        other.flush()
        other.drop()
    client.wait(lambda: one(client, GROUP)["members"] == 0)
    assert client.manage("DELETE", type=GROUP, name="split/workers").status == 204
    assert client.manage("DELETE", type=GROUP, name="split/workers").status == 404
    assert found(client, GROUP) == []
    again = client.receiver("split", properties=bound(partition=0, group="workers", epoch=1))
    assert again.link.remote is not None and again.link.remote.properties is not None
    assert again.link.remote.properties[Symbol("event-streams-epoch")] == 1


DURABLE_LINK = "io.headwater.durableLink"
CHANGES = [
    pytest.param("UPDATE", GROUP, "split/workers", {"positions": {"0": 2}}, id="a group is moved"),
    pytest.param("DELETE", GROUP, "split/workers", None, id="a group is forgotten"),
    pytest.param("DELETE", DURABLE_LINK, "split/shop/x", None, id="a subscription is forgotten"),
]


@pytest.fixture
def kind(served: Served) -> str:
    """A group and a durable subscription that are stored, both without a link; the kind of their entries."""
    put(served.log("split", partitions=1), 1, 2, 3)
    kind = kinds_of_log(served.store.incarnation_of("split"))[1]
    with served.client(container_id="shop") as other:
        other.receiver("split", properties=bound(group="workers")).close()
        other.receiver("split", name="x", source=DURABLE).close(is_closed=False)
    eventually(lambda: sum(b"left_at" in e.value or "group" in key for key, e in served.store.state.items(kind)) == 2)
    return kind


@pytest.mark.parametrize(("operation", "type", "name", "body"), CHANGES)
def test_a_change_of_what_is_remembered_is_on_disk_before_it_is_answered(
    served: Served, client: Client, kind: str, monkeypatch: pytest.MonkeyPatch, operation: str, type: str, name: str,
    body: dict[str, Any] | None,
) -> None:  # fmt: skip
    state, flushed = served.store.state, list[dict[str, bytes]]()
    monkeypatch.setattr(state, "flush", lambda: flushed.append({key: e.value for key, e in state.items(kind)}))
    assert client.manage(operation, body, type=type, name=name).status in (200, 204)
    key = "amqp-group\nworkers\n0" if type == GROUP else "amqp-terminus\nshop\nx"
    assert [entries.get(key) for entries in flushed] == [b'{"after": 2}' if body else None]


@pytest.mark.parametrize(("operation", "type", "name", "body"), CHANGES)
def test_a_change_of_what_is_remembered_that_cannot_be_stored_says_so(
    served: Served, client: Client, kind: str, monkeypatch: pytest.MonkeyPatch, operation: str, type: str, name: str,
    body: dict[str, Any] | None,
) -> None:  # fmt: skip
    def refuse(*given: object, **more: object) -> None:
        raise StorageUnavailable("the disk is full")

    for call in ("put", "delete"):
        monkeypatch.setattr(served.store.state, call, refuse)
    reply = client.manage(operation, body, type=type, name=name)
    assert reply.status == 504 and "but not stored" in reply.description


def test_groups_of_a_log_that_nobody_uses_are_told_as_they_are_stored(served: Served) -> None:
    log = served.log("split", partitions=1)
    put(log, 1, 2, 3)
    with served.client() as client:
        receiver = client.receiver("split", filter=EARLIEST, properties=bound(group="workers"))
        for delivery in receiver.take(2):
            delivery.settle()
        client.flush()
        client.wait(lambda: one(client, GROUP)["positions"] == {"0": 2})
    served.stop()
    with Served(store=served.store) as again, again.client() as client:
        assert one(client, GROUP, group="workers")["positions"] == {"0": 2}
        assert client.manage("READ", type=GROUP, name="split/nobody").status == 404
        assert client.manage("READ", type=GROUP, name="split").status == 404


def test_the_names_of_very_many_links_and_sessions_are_told_in_turns_of_the_loop() -> None:
    """Of one connection, too."""
    looked_at: list[int] = []
    session = SimpleNamespace()
    links = {number: (SimpleNamespace(session=session), None) for number in range(1, 2001)}

    def session_number(each: object) -> int:
        looked_at[-1] += 1
        return 1

    transport = SimpleNamespace(
        number=1,
        user=None,
        link_numbers=list(links),
        link=links.get,
        links=[(number, *each) for number, each in links.items()],
        session_number=session_number,
        sessions=[(number, session) for number in range(1, 2001)],
    )

    async def turns_of(names: Callable[[User], Awaitable[Sequence[str]]]) -> int:
        task = asyncio.ensure_future(names(ANYBODY))
        turns = 0
        while not task.done():
            looked_at.append(0)
            turns += 1
            await asyncio.sleep(0)
        assert len(task.result()) == len(set(task.result())) == 2000
        return turns

    async def scenario() -> None:
        shared = SimpleNamespace(guard=OpenGuard(), loop=asyncio.get_running_loop())
        container = SimpleNamespace(shared=shared, numbered={1: transport})
        assert await turns_of(Links(container).names) > 2000 / PARTS_AT_ONCE  # type: ignore[arg-type]
        assert max(looked_at) <= PARTS_AT_ONCE
        assert await turns_of(Sessions(container).names) > 2000 / PARTS_AT_ONCE  # type: ignore[arg-type]

    asyncio.run(scenario())
