"""`$management` on a server: requests, answers, and where they go."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passwords import HASH

from headwater.amqp.client import Client, Delivery, Receiver, Sender
from headwater.amqp.errors import MessageFault
from headwater.amqp.management import replies
from headwater.amqp.management.messages import answer_message, read_request
from headwater.amqp.management.requests import CREDIT, REQUEST_BYTES_MAX
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.message import DATA, NONE, SEQUENCE, VALUE, Message, Properties, encode_message
from headwater.amqp.protocol.performatives import Accepted, Rejected, Source, Target
from headwater.amqp.protocol.types import Int, Long, Symbol, Timestamp, UInt, ULong
from headwater.core.access import ANYBODY, OpenGuard, Unauthenticated, User
from headwater.core.loop.memory import Owner, Share
from headwater.core.shared_bytes import FREE_BYTES
from headwater.management.operations import Answer
from headwater.management.statuses import Status
from headwater.server.users.accounts import Account, read_grant

from ...management.told import eventually
from ..connections.test_login import guard
from ..served import Served

LOG = "io.headwater.log"


def request(operation: str = "GET-TYPES", body: Any = None, *, kind: int = VALUE, **more: Any) -> Message:
    """A request; `properties` are those of the message, the rest goes beside the operation."""
    properties = more.pop("properties", Properties(message_id="id", reply_to="answers"))
    return Message(body, kind, properties=properties, application_properties={"operation": operation, **more})


def pair(client: Client, **fields: Any) -> tuple[Sender, Receiver]:
    """A link to `$management`, and one from it whose target is `answers`."""
    receiver = client.receiver("$management", credit=fields.pop("credit", 10), name="answers")
    return client.sender("$management", **fields), receiver


def one(receiver: Receiver) -> Delivery:
    (delivery,) = receiver.take(1)
    return delivery


def told(delivery: Delivery) -> dict[str, Any]:
    found = delivery.message.application_properties
    assert found is not None
    return dict(found)


# What an answer holds


def test_an_answer_has_both_spellings_of_the_status(client: Client) -> None:
    sender, receiver = pair(client)
    for operation, status in (("GET-TYPES", 200), ("NOTHING", 501)):
        assert sender.send(request(operation)) == Accepted()
        found = told(one(receiver))
        assert found["statusCode"] == found["status-code"] == status
        assert type(found["statusCode"]) is Int
        assert found["statusDescription"] == found["status-description"] != ""


@pytest.mark.parametrize("id", ["text", ULong(7), uuid.UUID(int=5), b"bytes"])
def test_an_answer_carries_the_id_of_its_request_in_its_own_type(client: Client, id: object) -> None:
    sender, receiver = pair(client)
    sender.send(request(properties=Properties(message_id=id, reply_to="answers")))
    properties = one(receiver).message.properties
    assert properties is not None
    assert (properties.correlation_id, type(properties.correlation_id)) == (id, type(id))
    assert properties.to == "answers"
    sender.send(request(properties=Properties(message_id="mine", correlation_id=id, reply_to="answers")))
    properties = one(receiver).message.properties
    assert properties is not None and properties.correlation_id == id


def test_a_request_without_any_id_is_answered_without_one(client: Client) -> None:
    sender, receiver = pair(client)
    sender.send(request(properties=Properties(reply_to="answers")))
    properties = one(receiver).message.properties
    assert properties is not None and properties.correlation_id is None


def test_the_body_of_an_answer_is_one_amqp_value(client: Client) -> None:
    sender, receiver = pair(client)
    sender.send(request("READ", type=LOG, name="orders"))
    message = one(receiver).message
    assert message.body_kind == VALUE
    assert type(message.body["createdAt"]) is Timestamp
    assert type(message.body["head"]) is Long
    for operation, body in (("DELETE", {}), ("READ", {}), ("GET-MGMT-NODES", [])):
        more = {"type": LOG, "name": "orders"} if operation in ("DELETE", "READ") else {}
        sender.send(request(operation, **more))
        assert one(receiver).message.body == body


def test_a_query_tells_the_count_of_its_results(client: Client) -> None:
    sender, receiver = pair(client)
    sender.send(request("QUERY", {"attributeNames": ["name"]}, entityType=LOG, offset=UInt(0), count=Int(5)))
    answer = one(receiver)
    assert told(answer)["count"] == 1
    assert answer.message.body == {"attributeNames": ["name"], "results": [["orders"]]}


def test_locales_and_other_properties_are_ignored(client: Client) -> None:
    sender, receiver = pair(client)
    sender.send(request("GET-TYPES", locales="fr de", security_token="x", whatever=5))
    assert told(one(receiver))["statusCode"] == 200


@pytest.mark.parametrize(
    ("body", "kind"), [(None, NONE), ([b"[]"], DATA), ([[1, 2]], SEQUENCE), (None, VALUE), ("text", VALUE)]
)
def test_a_body_that_is_not_needed_may_be_any_or_none(client: Client, body: Any, kind: int) -> None:
    sender, receiver = pair(client)
    sender.send(request("READ", body, kind=kind, type=LOG, name="orders"))
    assert told(one(receiver))["statusCode"] == 200


@pytest.mark.parametrize(("body", "kind"), [([b"[]"], DATA), ([[1, 2]], SEQUENCE), ("text", VALUE), ([1], VALUE)])
def test_a_body_of_another_kind_than_a_map_is_a_bad_request_where_one_is_needed(
    client: Client, body: Any, kind: int
) -> None:
    sender, receiver = pair(client)
    for operation, more in (("UPDATE", {"type": LOG, "name": "orders"}), ("QUERY", {})):
        sender.send(request(operation, body, kind=kind, **more))
        assert told(one(receiver))["statusCode"] == 400


def test_attributes_of_any_amqp_type_are_numbers(served: Served, client: Client) -> None:
    sender, receiver = pair(client)
    for value in (UInt(5000), ULong(5000), Long(5000), Int(5000), "5000", Symbol("5000")):
        sender.send(request("UPDATE", {"retentionMs": value}, type=LOG, name=Symbol("orders")))
        assert one(receiver).message.body["retentionMs"] == 5000
        served.store.open("orders")


# Where an answer goes


def test_an_answer_goes_to_the_link_whose_target_the_request_names(client: Client) -> None:
    sender = client.sender("$management")
    receivers = [client.receiver("$management", name=f"answers-{n}") for n in range(3)]
    for number in (2, 0, 1):
        sender.send(request(properties=Properties(message_id=f"{number}", reply_to=f"answers-{number}")))
        properties = one(receivers[number]).message.properties
        assert properties is not None and properties.correlation_id == str(number)
    assert not any(receiver.take(1, 0.05) for receiver in receivers)


def test_an_answer_goes_to_a_node_that_was_made_on_demand(client: Client) -> None:
    receiver = client.receiver(None, source={"dynamic": True})
    source = receiver.link.remote and receiver.link.remote.source
    assert isinstance(source, Source) and source.dynamic and source.address
    sender = client.sender("$management")
    sender.send(request(properties=Properties(reply_to=source.address)))
    assert told(one(receiver))["statusCode"] == 200


def test_nodes_made_on_demand_have_different_addresses(client: Client) -> None:
    receivers = [client.receiver(None, source={"dynamic": True}) for _ in range(3)]
    assert len({receiver.link.remote.source.address for receiver in receivers}) == 3  # type: ignore[union-attr]


def test_a_client_may_make_up_a_reply_address(client: Client) -> None:
    receiver, sender = client.receiver("$reply/mine"), client.sender("$management")
    sender.send(request(properties=Properties(reply_to="$reply/mine")))
    assert told(one(receiver))["statusCode"] == 200


def test_a_temporary_queue_of_jms_is_a_reply_node(client: Client) -> None:
    target = Target(dynamic=True, capabilities=(Symbol("temporary-queue"),))
    link = client.session.attach_sender("temporary", source=Source(), target=target)
    client.wait(lambda: link.remote is not None)
    assert link.remote is not None and isinstance(link.remote.target, Target)
    address = link.remote.target.address
    assert address and link.remote.target.dynamic
    receiver, sender = client.receiver(address), client.sender("$management")
    sender.send(request(properties=Properties(reply_to=address)))
    assert told(one(receiver))["statusCode"] == 200
    assert link.sendable == 0


def test_a_pair_of_links_of_one_name_needs_no_address(client: Client) -> None:
    """Link pairing: `$me`, with the link property `paired`."""
    paired: Any = {Symbol("paired"): True}
    others = [client.receiver("$management", name=f"other-{n}") for n in range(2)]
    receiver = client.receiver("$management", name="pair", properties=paired)
    sender = client.sender("$management", name="pair", properties=paired)
    for link in (receiver.link, sender.link):
        assert link.remote is not None and link.remote.properties == {"paired": True}
    sender.send(request(properties=Properties(reply_to="$me")))
    assert told(one(receiver))["statusCode"] == 200
    assert not any(each.take(1, 0.05) for each in others)


def test_without_reply_to_the_only_link_of_the_session_is_meant(client: Client) -> None:
    """As Event Hubs' Python client does it."""
    receiver, sender = client.receiver("$management"), client.sender("$management")
    sender.send(request(properties=None))
    assert told(one(receiver))["statusCode"] == 200
    client.receiver("$management")
    assert isinstance(sender.send(request(properties=None)), Rejected)


@pytest.mark.parametrize("reply_to", [None, "nowhere", "$me", "orders", "$reply/none", ""])
def test_a_request_that_cannot_be_answered_is_rejected_and_not_done(
    served: Served, client: Client, reply_to: str | None
) -> None:
    sender = client.sender("$management")
    state = sender.send(request("DELETE", type=LOG, name="orders", properties=Properties(reply_to=reply_to)))
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == conditions.PRECONDITION_FAILED  # type: ignore[union-attr]
    assert served.store.names() == ["orders"]


def test_nobody_gets_the_answers_of_another_connection(served: Served, client: Client) -> None:
    with served.client() as other:
        receiver = other.receiver("$management", name="answers")
        assert isinstance(client.sender("$management").send(request()), Rejected)
        assert receiver.take(1, 0.05) == []


def test_a_link_that_is_gone_gets_no_answers(client: Client) -> None:
    sender, receiver = pair(client)
    receiver.close()
    assert isinstance(sender.send(request()), Rejected)
    again = client.receiver("$management", name="answers")
    assert sender.send(request()) == Accepted()
    assert told(one(again))["statusCode"] == 200


@pytest.mark.parametrize("address", ["$management", "/$management", "amqp://elsewhere/$management"])
def test_the_address_may_be_a_whole_url(client: Client, address: str) -> None:
    receiver, sender = client.receiver(address), client.sender(address)
    sender.send(request(properties=None))
    assert told(one(receiver))["statusCode"] == 200


def test_nothing_can_be_sent_to_reply_nodes_nor_to_events(client: Client) -> None:
    for address in ("$reply/mine", "$events"):
        with pytest.raises(AmqpError) as refused:
            client.sender(address)
        assert refused.value.condition == conditions.NOT_ALLOWED


def test_only_temporary_queues_are_made_on_demand_to_send_to(client: Client) -> None:
    link = client.session.attach_sender("dynamic", source=Source(), target=Target(dynamic=True))
    client.wait(lambda: link.is_over)
    assert link.remote is not None and link.remote.target is None


# What cannot be read


def test_a_malformed_request_is_rejected_and_costs_no_other(client: Client) -> None:
    sender, receiver = pair(client)
    for wrong in (b"\x00", b"\xff\xff", b"\x00\x53\x74\xc1\xff", encode_message(request())[:-1]):
        state = sender.send(wrong)
        assert isinstance(state, Rejected) and state.error is not None
        assert state.error.condition == conditions.DECODE_ERROR  # type: ignore[union-attr]
    assert sender.send(request()) == Accepted()
    assert told(one(receiver))["statusCode"] == 200


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_fault_of_the_message(given_bytes: bytes) -> None:
    for wrong in (given_bytes, encode_message(request("READ", {"a": [1]}))[: len(given_bytes)] + given_bytes):
        try:
            found = read_request(wrong)
        except MessageFault as fault:
            assert fault.condition == conditions.DECODE_ERROR
        else:
            assert answer_message(Answer(Status.OK, {}, "OK"), found)


def test_a_request_that_is_too_large_is_rejected(client: Client) -> None:
    sender, receiver = pair(client)
    assert sender.link.remote is not None and sender.link.remote.max_message_size == REQUEST_BYTES_MAX
    state = sender.send(request("CREATE", {"partitionBy": "x" * REQUEST_BYTES_MAX}, type=LOG, name="new"))
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == conditions.LINK_MESSAGE_SIZE_EXCEEDED  # type: ignore[union-attr]
    assert sender.send(request()) == Accepted()
    assert told(one(receiver))["statusCode"] == 200


def test_a_request_without_application_properties_is_a_bad_request(client: Client) -> None:
    sender, receiver = pair(client)
    for empty in (Message(None, VALUE, properties=Properties(reply_to="answers")), b""):
        assert sender.send(empty) == Accepted()
        assert told(one(receiver))["statusCode"] == 400


def test_an_answer_that_the_link_cannot_take_is_replaced(client: Client) -> None:
    receiver = client.receiver("$management", max_message_size=600, name="answers")
    sender = client.sender("$management")
    sender.send(request("GET-EVENTS"))
    found = told(one(receiver))
    assert found["statusCode"] == 400
    assert "bytes" in found["statusDescription"]


def test_a_presettled_request_is_answered_too(client: Client) -> None:
    sender, receiver = pair(client)
    sender.send_all([request()], is_settled=True)
    assert told(one(receiver))["statusCode"] == 200


# Order, credit and bounds


def test_requests_of_one_link_are_done_in_their_order(served: Served, client: Client) -> None:
    sender, receiver = pair(client, credit=100)
    operations = []
    for number in range(10):
        operations += [
            request("CREATE", type=LOG, name="again"),
            request("UPDATE", {"retentionMs": number + 1}, type=LOG, name="again"),
            request("DELETE", type=LOG, name="again"),
        ]
    sender.send_all(operations)
    statuses = [told(delivery)["statusCode"] for delivery in receiver.take(30)]
    assert statuses == [201, 200, 204] * 10
    assert served.store.names() == ["orders"]


def test_answers_wait_for_credit_and_requests_for_answers(served: Served, client: Client) -> None:
    sender, receiver = pair(client, credit=0)
    names = [f"log-{number}" for number in range(CREDIT)]
    sender.send_all([request("CREATE", type=LOG, name=name) for name in names])
    assert sender.link.credit == 0
    client.wait(lambda: "log-0" in served.store.names())
    with served.client() as other:  # whoever gives no credit costs nobody else
        assert other.manage("READ", type=LOG, name="orders").status == 200
    assert served.store.names() == ["log-0", "orders"]  # the others wait for the first answer to go
    receiver.link.grant(100)
    client.flush()
    assert [told(delivery)["statusCode"] for delivery in receiver.take(CREDIT)] == [201] * CREDIT
    client.wait(lambda: sender.link.credit > 0)


def test_a_client_that_leaves_its_answers_behind_costs_nothing(served: Served) -> None:
    for _ in range(3):
        with served.client() as client:
            sender, _ = pair(client, credit=0)
            sender.send_all([request() for _ in range(CREDIT)])
            client.drop()
    with served.client() as client:
        assert client.manage("READ", type=LOG, name="orders").status == 200


def test_what_was_accepted_is_done_though_the_link_is_closed(served: Served, client: Client) -> None:
    sender, receiver = pair(client, credit=100)
    names = [f"log-{number}" for number in range(CREDIT)]
    sender.send_all([request("CREATE", type=LOG, name=name) for name in names])
    sender.close()
    assert len(receiver.take(CREDIT)) == CREDIT
    assert served.store.names() == [*names, "orders"]


def test_a_drain_ends_where_no_answer_waits(client: Client) -> None:
    _, receiver = pair(client, credit=0)
    receiver.link.grant(10, drain=True)
    client.flush()
    client.wait(lambda: receiver.link.credit == 0)


def test_links_to_the_node_are_bounded(client: Client) -> None:
    for _ in range(16):
        client.sender("$management")
    with pytest.raises(AmqpError) as refused:
        client.sender("$management")
    assert refused.value.condition == conditions.RESOURCE_LIMIT_EXCEEDED


def test_links_that_are_gone_count_while_their_answers_wait(client: Client) -> None:
    _, receiver = pair(client, credit=0)
    client.sender("$management").close()
    for _ in range(15):
        sender = client.sender("$management")
        sender.send_all([request(), request()])
        sender.close()
    with pytest.raises(AmqpError) as refused:
        client.sender("$management")
    assert refused.value.condition == conditions.RESOURCE_LIMIT_EXCEEDED
    receiver.link.grant(30)
    client.flush()
    assert [told(answer)["statusCode"] for answer in receiver.take(30)] == [200] * 30
    client.sender("$management")


def test_answers_that_wait_are_counted_and_refused_where_there_is_no_room() -> None:
    with Served() as served, served.client() as client:
        served.log("orders")
        _, receiver = pair(client, credit=0)
        sender = client.sender("$management", name="sender")
        (transport,) = served.container.connections
        before = transport.share.bytes
        sender.send(request())
        eventually(lambda: transport.share.bytes > before + 100)  # the answer waits for credit
        assert receiver.error is None
        others = Share(served.memory)
        others.belong(Owner("others"))

        async def fill() -> None:
            others.hold(served.memory.bytes_max)
            transport.share.take(FREE_BYTES - transport.share.bytes)

        served.run(fill)
        state = sender.send(request())
        assert isinstance(state, Rejected) and state.error.condition == conditions.RESOURCE_LIMIT_EXCEEDED
        assert receiver.error is None
        served.run(lambda: _send(served.management.replies, transport, bytes(1000)))
        client.wait(lambda: receiver.error is not None)
        assert receiver.error.condition == conditions.RESOURCE_LIMIT_EXCEEDED
        assert "the 1 waiting for credit" in receiver.error.description


async def _send(book: replies.ReplyBook, transport: Any, answer: bytes) -> None:
    (end,) = [each for each in book._by_address.values() if each._transport is transport]
    await end.send(answer)


def test_a_connection_that_is_gone_holds_no_requests(served: Served, client: Client) -> None:
    with served.client() as other:
        sender, _ = pair(other, credit=0)
        sender.send_all([request(), request()])
    eventually(lambda: len(served.container.connections) == 1 and not served.management.requests)


def test_a_large_answer_comes_whole(served: Served, client: Client) -> None:
    for number in range(300):
        served.log(f"log-{number:03}")
    reply = client.manage("QUERY", {}, entityType=LOG)
    assert len(reply.body["results"]) == 301
    assert reply.properties["count"] == 301


# Who asks


class Forgetful(OpenGuard):
    """A guard whose users can be taken away."""

    is_gone = False

    def trusted(self, name: str, peer: str) -> User:
        if self.is_gone:
            raise Unauthenticated("nobody of that name")
        return ANYBODY


def test_a_user_that_is_no_more_is_not_authenticated() -> None:
    forgetful = Forgetful()
    with Served(guard=forgetful) as served, served.client() as client:
        assert client.manage("GET-TYPES").status == 200
        forgetful.is_gone = True
        assert client.manage("GET-TYPES").status == 401


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    """A server with users and two logs."""
    accounts = [
        Account("alice", (read_grant("all:*"),), password=HASH),
        Account("reader", (read_grant("read:orders"),), password=HASH),
        Account("nobody", (), password=HASH),
    ]
    with Served(guard=guard(*accounts)) as running:
        running.log("orders")
        running.log("salaries")
        yield running


def as_user(served: Served, name: str) -> Client:
    return served.client(f"{name}:correct%20horse@")


def test_rights_are_those_of_the_user_of_the_connection(guarded: Served) -> None:
    with as_user(guarded, "reader") as client:
        assert client.manage("READ", type=LOG, name="orders").status == 200
        for operation, name in (("READ", "salaries"), ("DELETE", "orders"), ("UPDATE", "orders"), ("CREATE", "new")):
            reply = client.manage(operation, type=LOG, name=name)
            assert (reply.status, "reader" in reply.description) == (403, True)
        assert client.manage("QUERY", {"attributeNames": ["name"]}, entityType=LOG).body["results"] == [["orders"]]
    with as_user(guarded, "alice") as client:
        assert client.manage("READ", type=LOG, name="salaries").status == 200


def test_a_user_sees_its_own_links_and_who_manages_the_server_all(guarded: Served) -> None:
    type = "io.headwater.link"
    with as_user(guarded, "nobody") as client, as_user(guarded, "alice") as manager:
        manager.sender("orders")
        own = {
            name for (name,) in client.manage("QUERY", {"attributeNames": ["name"]}, entityType=type).body["results"]
        }
        every = manager.manage("QUERY", {"attributeNames": ["name", "address"]}, entityType=type).body["results"]
        assert own and own < {name for name, _ in every}
        assert len({name.partition("/")[0] for name in own}) == 1
        assert all(client.manage("READ", type=type, name=name).status == 200 for name in own)
        (other,) = [name for name, address in every if address == "orders"]
        for operation in ("READ", "DELETE"):
            assert client.manage(operation, type=type, name=other).status == 403
        assert client.manage("DELETE", type=type, name=own.pop()).status == 403


@pytest.mark.parametrize("name", ["server", "connection", "session", "link"])
def test_the_server_itself_needs_the_right_to_manage_it(guarded: Served, name: str) -> None:
    type = f"io.headwater.{name}"
    with as_user(guarded, "nobody") as client:
        if name != "link":
            assert client.manage("QUERY", {}, entityType=type).body["results"] == []
        for instance in ("self", "99999", "99999/1", "99999/1/1", "none"):
            assert client.manage("READ", type=type, name=instance).status == 403
            if name != "server":
                assert client.manage("DELETE", type=type, name=instance).status == 403
    with as_user(guarded, "alice") as client:
        assert client.manage("QUERY", {}, entityType=type).body["results"]


def test_everybody_may_ask_what_there_is(guarded: Served) -> None:
    with as_user(guarded, "nobody") as client:
        for operation in ("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS", "GET-EVENTS"):
            assert client.manage(operation).status == 200
