"""What AMQP clients do: links of every kind, and the operations of `$management`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from headwater.amqp.client import Client
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.message import DATA, Message, Properties
from headwater.amqp.protocol.performatives import Accepted, Rejected, Target
from headwater.amqp.protocol.types import Symbol
from headwater.flight.client import BulkClient
from tests.amqp.asking import DURABLE, EARLIEST, bound

from .world import ADMIN, LOG, PASSWORD, TYPE, Prepare, Role, Verdict, World, on_log
from .world import Target as Names

LOGIN = "login (SASL)"
_MESSAGE = Message([b"{}"], DATA, properties=Properties(subject="T"))


def login(world: World, role: Role) -> Verdict:
    """Log in anew."""
    try:
        with world.connected(role) as client:
            assert client.session.remote is not None
    except AmqpError as error:
        assert error.condition == "amqp:unauthorized-access", error
        return Verdict.UNAUTHENTICATED
    return Verdict.DONE


# Links


@contextlib.contextmanager
def _closing(link: Any) -> Iterator[Any]:
    try:
        yield link
    finally:
        link.close()


def _producer(world: World, client: Client) -> None:
    with _closing(client.sender(LOG)) as sender:
        assert sender.send(_MESSAGE) == Accepted()


def _relay(world: World, client: Client) -> None:
    with _closing(client.sender(None)):
        pass


def _relayed(world: World, client: Client) -> None:
    with _closing(client.sender(None)) as sender:
        message = Message([b"{}"], DATA, properties=Properties(subject="T", to=LOG))
        state = sender.send(message)
        if isinstance(state, Rejected):
            assert state.error is not None
            raise AmqpError(state.error.condition, state.error.description or "")
        assert state == Accepted()


def _received(client: Client, address: str, **fields: Any) -> None:
    receiver = client.receiver(address, **fields)
    assert len(receiver.take(1)) == 1
    receiver.link.detach(is_closed=True)
    client.wait(lambda: receiver.link.is_over)


def _attached(client: Client, address: str | None, **fields: Any) -> None:
    receiver = client.receiver(address, **fields)
    receiver.link.detach(is_closed=True)
    client.wait(lambda: receiver.link.is_over)


def _temporary_queue(world: World, client: Client) -> None:
    target = Target(address=None, dynamic=True, capabilities=(Symbol("temporary-queue"),))
    link = client.session.attach_sender(world.fresh("queue"), target=target)
    client.wait(lambda: link.remote is not None)
    assert link.remote is not None and link.remote.target is not None and link.remote.target.address
    link.detach()
    client.wait(lambda: link.is_over)


LINKS: dict[str, Callable[[World, Client], None]] = {
    "attach a producer": _producer,
    "attach a producer to the anonymous relay": _relay,
    "send to the anonymous relay": _relayed,
    "attach a consumer": lambda world, client: _received(client, LOG, filter=EARLIEST),
    "attach a consumer of a group": lambda world, client: _received(
        client, LOG, filter=EARLIEST, properties=bound(group=world.fresh("group"))
    ),
    "attach a durable subscription": lambda world, client: _received(
        client, LOG, filter=EARLIEST, source=DURABLE, name=world.fresh("durable")
    ),
    "attach a receiver to $info": lambda world, client: _received(client, f"{LOG}/$info"),
    "attach a receiver to $events": lambda world, client: _attached(client, "$events"),
    "attach a pair to $management": lambda world, client: _pair(client),
    "attach a receiver to a reply node": lambda world, client: _attached(client, None, source={"dynamic": True}),
    "attach a sender to a temporary queue": _temporary_queue,
}


def _pair(client: Client) -> None:
    _attached(client, "$management")
    client.sender("$management").close()


# Management


class Sample(NamedTuple):
    """An operation on an entity of `$management`."""

    prepare: Prepare = lambda world: {}
    body: Any = None
    done: tuple[int, ...] = ()
    """Other answers that only those get who may."""


def _of_peer(kind: str) -> Prepare:
    return lambda world: {"name": world.amqp_peer()[kind]}


def _group(world: World) -> Names:
    group = world.fresh("group")
    client = world.client(ADMIN)
    receiver = client.receiver(LOG, filter=EARLIEST, properties=bound(group=group))
    for delivery in receiver.take(1):
        delivery.settle()
    receiver.link.detach(is_closed=True)
    client.wait(lambda: receiver.link.is_over)
    return {"name": f"{LOG}/{group}"}


def _stream(world: World) -> Names:
    """A stream of the admin's."""
    stream = world.fresh("stream")
    with BulkClient(world.flight_url, user=ADMIN.name, password=PASSWORD) as bulk:
        bulk.report_position(LOG, stream, 1)
    return {"name": f"{LOG}/{ADMIN.name}/{stream}"}


def _durable_link(world: World) -> Names:
    """A durable subscription of the admin's that has no link at present."""
    name, client = world.fresh("durable"), world.client(ADMIN)
    receiver = client.receiver(LOG, source=DURABLE, name=name)
    receiver.link.detach(is_closed=False)
    client.wait(lambda: receiver.link.is_over)
    rows = client.manage("QUERY", {"attributeNames": ["name", "linkName"]}, entityType=f"{TYPE}durableLink")
    [found] = [row[0] for row in rows.body["results"] if row[1] == name]
    return {"name": found}


def _user(world: World) -> Names:
    target = _no_user(world)
    body = {"grants": ["read:elsewhere"], "password": PASSWORD}
    reply = world.client(ADMIN).manage("CREATE", body, type=f"{TYPE}user", **target)
    assert reply.status == 201, reply
    return target


def _no_token(world: World) -> Names:
    return {"name": f"{_user(world)['name']}/ci"}


def _token(world: World) -> Names:
    target = _no_token(world)
    assert world.client(ADMIN).manage("CREATE", {}, type=f"{TYPE}token", **target).status == 201
    return target


def _no_user(world: World) -> Names:
    return {"name": world.fresh("user")}


OPERATIONS: dict[str, Sample] = {
    "READ org.amqp.management": Sample(lambda world: {"name": "self"}),
    f"READ {TYPE}server": Sample(lambda world: {"name": "self"}),
    f"CREATE {TYPE}log": Sample(World.no_log, {}),
    f"READ {TYPE}log": Sample(on_log),
    f"UPDATE {TYPE}log": Sample(World.log, {"eventBytesMax": 5000}),
    f"DELETE {TYPE}log": Sample(World.log),
    f"READ {TYPE}partition": Sample(lambda world: {"name": f"{LOG}/0"}),
    f"READ {TYPE}connection": Sample(_of_peer("connection")),
    f"DELETE {TYPE}connection": Sample(_of_peer("connection")),
    f"READ {TYPE}session": Sample(_of_peer("session")),
    f"DELETE {TYPE}session": Sample(_of_peer("session")),
    f"READ {TYPE}link": Sample(_of_peer("link")),
    f"DELETE {TYPE}link": Sample(_of_peer("link")),
    f"READ {TYPE}durableLink": Sample(_durable_link),
    f"DELETE {TYPE}durableLink": Sample(_durable_link),
    f"READ {TYPE}client": Sample(World.http_peer),
    f"DELETE {TYPE}client": Sample(World.http_peer),
    f"READ {TYPE}reader": Sample(World.reader),
    f"DELETE {TYPE}reader": Sample(World.reader),
    f"READ {TYPE}refusal": Sample(World.refusal),
    f"READ {TYPE}homeServer": Sample(lambda world: {"name": "there-is-no-home"}, done=(404,)),
    f"CREATE {TYPE}consumer": Sample(World.no_consumer, {"acknowledged": 0}),
    f"READ {TYPE}consumer": Sample(World.consumer),
    f"UPDATE {TYPE}consumer": Sample(World.consumer, {"acknowledged": 1}),
    f"DELETE {TYPE}consumer": Sample(World.consumer),
    f"READ {TYPE}consumerGroup": Sample(_group),
    f"UPDATE {TYPE}consumerGroup": Sample(_group, {"positions": {"0": 1}}),
    f"DELETE {TYPE}consumerGroup": Sample(_group),
    f"READ {TYPE}stream": Sample(_stream),
    f"DELETE {TYPE}stream": Sample(_stream),
    f"CREATE {TYPE}user": Sample(_no_user, {"grants": ["all:*"]}),
    f"READ {TYPE}user": Sample(_user),
    f"UPDATE {TYPE}user": Sample(_user, {"grants": ["all:*"]}),
    f"DELETE {TYPE}user": Sample(_user),
    f"CREATE {TYPE}token": Sample(_no_token, {"lifetimeMs": 60_000}),
    f"READ {TYPE}token": Sample(_token),
    f"DELETE {TYPE}token": Sample(_token),
    f"READ {TYPE}subscription": Sample(World.subscription),
    f"DELETE {TYPE}subscription": Sample(World.subscription),
}


def prepared(world: World, call: str) -> Names:
    """What the call is to be about."""
    return OPERATIONS.get(call, Sample()).prepare(world)


def make(world: World, call: str, role: Role, target: Names) -> Verdict:
    """Make the call on the connection of a role, which goes on whatever becomes of it."""
    client = world.client(role)
    if call in LINKS:
        try:
            LINKS[call](world, client)
        except AmqpError as error:
            assert error.condition == conditions.UNAUTHORIZED_ACCESS, error
            return Verdict.FORBIDDEN
        return Verdict.DONE
    operation, _, type = call.partition(" ")
    about = {"type": type, "name": target["name"]} if "name" in target else {}
    sample = OPERATIONS.get(call, Sample())
    reply = client.manage(operation, sample.body, **about)
    if reply.status == 403:
        assert "no right to" in reply.description and reply.body == {}, reply
        return Verdict.FORBIDDEN
    assert 200 <= reply.status < 300 or reply.status in sample.done, (call, role.name, reply)
    return Verdict.DONE
