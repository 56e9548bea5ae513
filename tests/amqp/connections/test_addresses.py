"""Addresses of logs, as AMQP clients write them."""

import pytest

from headwater.amqp.client import Client
from headwater.amqp.connections.addresses import parse_address
from headwater.amqp.protocol.message import DATA, Message, Properties
from headwater.core.errors import LogNotFound
from headwater.core.quoting import show

from ..asking import drained, message, payloads
from ..served import Served


@pytest.mark.parametrize("address", ["no such", "orders/nonsense", "x" * 10_000])
def test_an_address_of_no_log_is_quoted_once_and_cut(address: str) -> None:
    with pytest.raises(LogNotFound) as refused:
        parse_address(address)
    assert str(refused.value) == f"there is no log {show(address)}"
    assert refused.value.name == address


def test_only_the_beginning_of_an_address_is_a_kind_of_node() -> None:
    with pytest.raises(LogNotFound):
        parse_address("myqueue://orders")


@pytest.mark.parametrize("kind", ["topic://", "queue://", "TOPIC://"])
def test_the_kind_of_node_may_stand_before_a_log(served: Served, client: Client, kind: str) -> None:
    """As Camel and ActiveMQ's clients write addresses: `amqp:topic:orders` is `topic://orders`."""
    client.sender(f"{kind}orders").send(message(b"1"))
    anonymous = client.sender(None)
    anonymous.send(Message([b"2"], DATA, properties=Properties(to=f"{kind}orders")))
    for start, expected in (("", []), ("/$earliest", [b"1", b"2"])):
        receiver = client.receiver(f"{kind}orders{start}", credit=0)
        assert payloads(drained(client, receiver)) == expected
    (told,) = client.receiver(f"{kind}orders/$info", credit=1).take(1)
    assert told.message.body["log"] == "orders"
