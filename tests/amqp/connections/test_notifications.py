"""What is told of connections, links, partitions and epochs, by the acts of clients that cause it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.amqp import server
from headwater.amqp.client import Client, Receiver
from headwater.amqp.protocol import conditions, sasl
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.frames import SASL_HEADER, frame
from headwater.amqp.protocol.types import ULong
from headwater.amqp.settings import AmqpSettings
from headwater.core import NotificationType
from headwater.core.watch.bus import Bus
from headwater.server.users.accounts import Account, AccountDirectory, hash_password, read_grant
from headwater.server.users.guard import AccountGuard
from headwater.storage.memory import MemoryState

from ...management.told import Told, eventually
from ..asking import bound
from ..served import Served
from .test_login import sasl_frame

OPENED, CLOSED, REFUSED = (
    NotificationType.CONNECTION_OPENED,
    NotificationType.CONNECTION_CLOSED,
    NotificationType.CONNECTION_REFUSED,
)
ATTACHED, DETACHED, LINK_REFUSED = (
    NotificationType.LINK_ATTACHED,
    NotificationType.LINK_DETACHED,
    NotificationType.LINK_REFUSED,
)
ASSIGNED, STOLEN, RELEASED = (
    NotificationType.PARTITION_ASSIGNED,
    NotificationType.PARTITION_STOLEN,
    NotificationType.PARTITION_RELEASED,
)
EPOCH = NotificationType.EPOCH_CHANGED
PEER = {"peer": "127.0.0.1"}


@pytest.fixture
def told(served: Served) -> Told:
    return Told(served.bus)


def client_of(served: Served, name: str = "shop", **options: Any) -> Client:
    return served.client(container_id=name, **options)


def test_a_connection_is_told_when_it_is_open_and_when_it_is_over(served: Served, told: Told) -> None:
    client = client_of(served)
    common = {"protocol": "amqp", "identity": "connection/1", **PEER, "container": "shop", "mechanism": "ANONYMOUS"}
    common["port"] = client.manage("READ", identity="connection/1").body["port"]
    assert told.wait_for(OPENED) == common
    client.close()
    assert told.wait_for(CLOSED) == common


def test_what_an_address_holds_of_a_password_is_told_to_nobody(served: Served, told: Told) -> None:
    with client_of(served) as client:
        client.receiver("amqp://alice:s3cret@host/orders", name="in")
        for what, address in (
            (client.receiver, "AMQPS://alice:s3cr@t@host/nowhere"),
            (client.receiver, "amqp://alice:s3cret@host/not/there"),
            (client.sender, "amqp://s3cret@host/orders/$info"),
        ):
            with pytest.raises(AmqpError) as refused:
                what(address)
            assert "s3cr" not in str(refused.value)
        links = client.manage("QUERY", {"attributeNames": ["address"]}, entityType="io.headwater.link").body["results"]
        assert ["amqp://host/orders"] in links
    found = told.of(ATTACHED, LINK_REFUSED, DETACHED)
    assert "amqp://host/orders" in {attributes["address"] for attributes in found}
    assert "amqp://host/orders/$info" in {attributes["address"] for attributes in found}
    assert "s3cr" not in repr(found)


def test_a_connection_that_was_lost_is_told_with_its_links_first(served: Served, told: Told) -> None:
    client = client_of(served)
    client.sender("orders")
    client.receiver("orders")
    client.drop()
    told.wait_for(CLOSED)
    assert told.types((ATTACHED, DETACHED, CLOSED)) == [ATTACHED, ATTACHED, DETACHED, DETACHED, CLOSED]


def test_a_connection_that_the_server_ends_is_told_with_the_reason(
    served: Served, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "FINISH_S", 0.1)  # the client does not answer a close until it is asked for something
    client = client_of(served)
    told.wait_for(OPENED)
    served.stop()
    attributes = told.wait_for(CLOSED)
    assert attributes["condition"] == "amqp:connection:forced" and attributes["description"] == "the server is stopping"
    client.drop()


def refused_once(told: Told, reason: str) -> dict[str, object]:
    attributes = told.wait_for(REFUSED)
    assert attributes["reason"] == reason and attributes["peer"] == "127.0.0.1" and attributes["protocol"] == "amqp"
    assert not told.of(OPENED, CLOSED)
    return attributes


def test_one_connection_too_many_is_told(told: Told) -> None:
    with Served(settings=AmqpSettings(connections_max=1)) as served, client_of(served):
        mine = Told(served.bus)
        with pytest.raises((AmqpError, OSError)):
            client_of(served)
        refused_once(mine, "limit")


def test_a_peer_that_does_not_speak_amqp_is_told(served: Served, told: Told) -> None:
    with socket.create_connection(("127.0.0.1", served.port), 10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        connection.recv(8)
    assert "protocol header" in str(refused_once(told, "fault")["description"])


def test_a_peer_that_takes_too_long_to_open_is_told() -> None:
    with Served(settings=AmqpSettings(login_ms=100)) as served:
        mine = Told(served.bus)
        with socket.create_connection(("127.0.0.1", served.port), 10) as connection:
            refused_once(mine, "timeout")
            assert connection.recv(8) == b""


def test_a_peer_that_only_looks_whether_somebody_listens_is_not_told(served: Served, told: Told) -> None:
    socket.create_connection(("127.0.0.1", served.port), 10).close()
    client_of(served).close()
    told.wait_for(CLOSED)
    assert told.types((OPENED, CLOSED, REFUSED)) == [OPENED, CLOSED]


@pytest.fixture
def guarded() -> Iterator[Served]:
    accounts = [
        Account("alice", (read_grant("all:*"),), password=hash_password("correct horse")),
        Account("reader", (read_grant("read:orders"),), password=hash_password("correct horse")),
    ]
    bus = Bus()
    guard = AccountGuard(AccountDirectory(accounts, MemoryState()), allows_anybody=True, bus=bus)
    with Served(guard=guard, bus=bus) as running:
        running.log("orders")
        yield running


def test_a_login_that_is_refused_is_told(guarded: Served) -> None:
    mine = Told(guarded.bus)
    with pytest.raises(AmqpError):
        guarded.client("alice:wrong%20horse@")
    refused_once(mine, "login")


@pytest.mark.parametrize(
    ("said", "user"),
    [
        (sasl_frame(sasl.SaslInit("PLAIN", b"alice")), ""),
        (sasl_frame(sasl.SaslInit("PLAIN", b"reader\0alice\0correct horse")), "alice"),
        (sasl_frame(sasl.SaslInit("ANONYMOUS")), ""),
        (sasl_frame(sasl.SaslOutcome(0)), ""),
        (frame(0, b"\x00\x53\x41\xc0\x01\x00", 1), ""),
        (b"\xff" * 8, ""),
    ],
    ids=["no password", "as somebody else", "not offered", "a frame of servers", "cut short", "no frame"],
)
def test_a_login_in_which_there_is_nothing_to_be_checked_is_told(guarded: Served, said: bytes, user: str) -> None:
    mine = Told(guarded.bus)
    with socket.create_connection(("127.0.0.1", guarded.port), 10) as connection:
        connection.sendall(SASL_HEADER + said)
        while connection.recv(65536):
            pass
    told = mine.wait_for(NotificationType.AUTHENTICATION_FAILED)
    assert told == {"reason": "wrong", "user": user, **PEER}
    assert mine.wait_for(REFUSED)["reason"] in ("login", "fault")
    assert len(mine.of(NotificationType.AUTHENTICATION_FAILED)) == 1


def test_a_peer_that_gives_up_while_it_logs_in_is_no_refusal(guarded: Served) -> None:
    mine = Told(guarded.bus)
    with socket.create_connection(("127.0.0.1", guarded.port), 10) as connection:
        connection.sendall(SASL_HEADER)
        connection.recv(8)
    guarded.client("alice:correct%20horse@").close()
    mine.wait_for(CLOSED)
    assert not mine.of(REFUSED)


def test_the_user_is_told_where_there_are_users(guarded: Served) -> None:
    mine = Told(guarded.bus)
    with guarded.client("alice:correct%20horse@") as client:
        client.sender("orders")
    assert (mine.wait_for(OPENED)["user"], mine.wait_for(OPENED)["mechanism"]) == ("alice", "PLAIN")
    assert mine.wait_for(ATTACHED)["user"] == "alice" and mine.wait_for(CLOSED)["user"] == "alice"


def test_links_are_told_with_what_they_lead_to(served: Served, told: Told) -> None:
    with client_of(served) as client:
        sender, receiver = client.sender("orders", name="out"), client.receiver("/orders", name="in")
        info = client.receiver("orders/$info", name="about")
        anonymous = client.sender(None, name="any")
        (port,) = {attributes["port"] for attributes in told.of(ATTACHED)}
        common = {**PEER, "port": port, "container": "shop", "mechanism": "ANONYMOUS"}
        assert [attributes.pop("identity") for attributes in told.of(ATTACHED)] == [
            f"link/1/1/{number}" for number in (1, 2, 3, 4)
        ]
        assert [{**each, "identity": ""} for each in told.of(ATTACHED)] == [
            {**each, "identity": ""}
            for each in (
                {"log": "orders", "address": "orders", "link": "out", "role": "sender", **common},
                {"log": "orders", "address": "/orders", "link": "in", "role": "receiver", **common},
                {"log": "orders", "address": "orders/$info", "link": "about", "role": "receiver", **common},
                {"address": "", "link": "any", "role": "sender", **common},
            )
        ]
        for link in (sender, receiver, info, anonymous):
            link.close()
        eventually(lambda: len(told.of(DETACHED)) == 4)
    told.wait_for(CLOSED)
    assert told.of(DETACHED) == told.of(ATTACHED)


def test_a_link_that_another_connection_takes_over_is_told_with_the_reason(served: Served, told: Told) -> None:
    with client_of(served) as one, client_of(served) as other:
        one.receiver("orders", name="x")
        other.receiver("orders", name="x")
        attributes = told.wait_for(DETACHED)
        assert attributes["condition"] == "amqp:link:stolen" and "another connection" in str(attributes["description"])
        assert told.types((ATTACHED, DETACHED)) in ([ATTACHED, DETACHED, ATTACHED], [ATTACHED, ATTACHED, DETACHED])


def test_links_of_a_deleted_log_are_told(served: Served, told: Told) -> None:
    with client_of(served) as client:
        client.receiver("orders")
        served.store.delete("orders")
        assert told.wait_for(DETACHED)["condition"] == "amqp:resource-deleted"


def test_a_refused_attach_is_told_with_the_reason(served: Served, told: Told) -> None:
    with client_of(served) as client:
        with pytest.raises(AmqpError):
            client.receiver("nowhere", name="in")
        with pytest.raises(AmqpError):
            client.sender("no such name!", name="out")
    told.wait_for(CLOSED)
    first, second = told.of(LINK_REFUSED)
    assert first.pop("description") and second.pop("description")
    assert first.pop("port") == second.pop("port")
    common = {**PEER, "container": "shop", "mechanism": "ANONYMOUS", "condition": "amqp:not-found"}
    assert first == {"log": "nowhere", "address": "nowhere", "link": "in", "role": "receiver", **common}
    assert second == {"address": "no such name!", "link": "out", "role": "sender", **common}
    assert not told.of(ATTACHED, DETACHED)


def test_a_missing_right_is_told_as_a_refused_link(guarded: Served) -> None:
    mine = Told(guarded.bus)
    with guarded.client("reader:correct%20horse@") as client, pytest.raises(AmqpError):
        client.sender("orders")
    attributes = mine.wait_for(LINK_REFUSED)
    assert (attributes["condition"], attributes["user"], attributes["log"]) == (
        "amqp:unauthorized-access",
        "reader",
        "orders",
    )


def join(client: Client, partition: int | None = None, epoch: int | None = None, **options: Any) -> Receiver:
    given = None if epoch is None else ULong(epoch)
    return client.receiver("split", properties=bound(partition, "G", given), credit=0, **options)


@pytest.fixture
def split(served: Served) -> None:
    served.log("split", partitions=2)


@pytest.mark.usefixtures("split")
def test_partitions_are_told_as_they_are_assigned_and_released(served: Served, told: Told) -> None:
    with client_of(served) as client:
        first, second = join(client, name="a"), join(client, name="b")
        common = {"log": "split", "group": "G", "epoch": 0, "container": "shop"}
        assert told.of(ASSIGNED) == [
            {**common, "partition": 0, "link": "a"},
            {**common, "partition": 1, "link": "b"},
        ]
        second.close()
        eventually(lambda: told.of(RELEASED))
        assert told.of(RELEASED) == [{**common, "partition": 1, "link": "b"}]
        first.close()
    told.wait_for(CLOSED)
    assert told.of(RELEASED)[1:] == [{**common, "partition": 0, "link": "a"}]
    assert not told.of(STOLEN, EPOCH)


@pytest.mark.usefixtures("split")
def test_a_partition_that_is_stolen_is_told_before_its_next_owner(served: Served, told: Told) -> None:
    with client_of(served, "one") as one, client_of(served, "two") as two:
        join(one, 1, 5, name="old")
        join(two, 1, 6, name="new")
        told.wait_for(DETACHED)
        common = {"log": "split", "group": "G", "partition": 1}
        assert told.of(STOLEN) == [{**common, "epoch": 5, "container": "one", "link": "old"}]
        assert told.of(ASSIGNED)[1] == {**common, "epoch": 6, "container": "two", "link": "new"}
        assert told.of(EPOCH) == [{**common, "epoch": 5}, {**common, "epoch": 6}]
        assert told.types((ASSIGNED, STOLEN, RELEASED)) == [ASSIGNED, STOLEN, ASSIGNED]


@pytest.mark.usefixtures("split")
def test_an_epoch_that_is_forgotten_at_a_clean_close_is_told(served: Served, told: Told) -> None:
    with client_of(served) as client:
        join(client, 0, 9).close()
        eventually(lambda: len(told.of(EPOCH)) == 2)
        assert [attributes["epoch"] for attributes in told.of(EPOCH)] == [9, 0]


@pytest.mark.usefixtures("split")
def test_a_refused_member_is_told_as_a_refused_link_and_owns_nothing(served: Served, told: Told) -> None:
    with client_of(served) as client:
        join(client, 0, 5)
        with pytest.raises(AmqpError) as refused:
            join(client, 0, 5)
        assert refused.value.condition == conditions.RESOURCE_LOCKED
        attributes = told.wait_for(LINK_REFUSED)
        assert attributes["condition"] == "amqp:resource-locked" and attributes["log"] == "split"
        assert len(told.of(ASSIGNED)) == len(told.of(ATTACHED)) == 1


@pytest.mark.usefixtures("split")
def test_a_partition_goes_to_who_waits_when_its_owner_is_lost(served: Served, told: Told) -> None:
    with client_of(served, "two") as two:
        one = client_of(served, "one")
        join(one, name="a"), join(one, name="b")
        waiting = join(two, name="c", waits=False)
        one.drop()
        waiting.attached()
        eventually(lambda: len(told.of(ASSIGNED)) == 3)
        assert told.of(ASSIGNED)[2]["container"] == "two"
        released = told.types((ASSIGNED, RELEASED))
        assert released.index(RELEASED) < 3 and released[-1] in (ASSIGNED, RELEASED)
    with contextlib.suppress(AmqpError, OSError):
        one.close()
