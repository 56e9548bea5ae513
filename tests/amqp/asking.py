"""What clients ask for in the tests of this room, and what they look at: messages, filters, link properties."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headwater.amqp.client import Client, Delivery, Receiver
from headwater.amqp.filters import format_offset
from headwater.amqp.protocol.message import DATA, Message, Properties
from headwater.amqp.protocol.types import Described, Symbol
from headwater.core import Event
from headwater.core.local import LocalLog

OFFSET = Symbol("event-streams-offset")
TIMESTAMP = Symbol("event-streams-timestamp")
SOURCE_PARTITION = Symbol("event-streams-source-partition")
ASSOCIATED_PARTITIONS = Symbol("event-streams-associated-partitions-changed")
DURABLE = {"durable": 2, "expiry_policy": Symbol("never")}
"""A source that outlives everything."""


def message(body: bytes = b"{}", subject: str | None = "OrderPlaced", **fields: Any) -> Message:
    """A message with one data section."""
    return Message([body], DATA, properties=Properties(subject=subject), **fields)


def annotations_filter(**bounds: object) -> dict[str, object]:
    """The draft's filter on offset or timestamp (0x200)."""
    value = {Symbol(f"event-streams-{name}"): bound for name, bound in bounds.items()}
    return {"begin": Described(Symbol("amqp:event-streams-delivery-annotations-filter"), value)}


def after(number: int) -> dict[str, object]:
    """Everything after that number."""
    return annotations_filter(offset=format_offset(number))


EARLIEST = annotations_filter(offset=Symbol("@earliest"))
LATEST = annotations_filter(offset=Symbol("@latest"))


def described(name: str, value: object) -> dict[str, object]:
    """One filter, under a key of no meaning."""
    return {"only": Described(Symbol(name), value)}


def sql(text: str) -> dict[str, object]:
    """The SQL filter of AMQP Filter Expressions (0x120)."""
    return described("amqp:sql-filter", text)


def bound(partition: int | str | None = None, group: str | None = None, epoch: int | None = None) -> dict[Symbol, Any]:
    """Link properties."""
    given: dict[str, Any] = {
        "event-streams-partition": None if partition is None else Symbol(partition),
        "event-streams-consumer-group": group,
        "event-streams-epoch": epoch,
    }
    return {Symbol(name): value for name, value in given.items() if value is not None}


def put(log: LocalLog, *payloads: int | bytes, partition: int | None = None, type: str = "T", **fields: Any) -> None:
    """Append an event for each payload, each by a call of its own."""
    for payload in payloads:
        data = payload if isinstance(payload, bytes) else b"%d" % payload
        log.append([Event(type, data, **fields)], partition=partition)


def payloads(deliveries: Iterable[Delivery]) -> list[bytes]:
    """The content of messages with one data section."""
    return [delivery.message.body[0] for delivery in deliveries]


def numbers(deliveries: Iterable[Delivery]) -> list[int]:
    """Payloads that are numbers."""
    return [int(payload) for payload in payloads(deliveries)]


def annotation(delivery: Delivery, name: str) -> Any:
    """A delivery annotation, or None."""
    return (delivery.message.delivery_annotations or {}).get(name)


def offsets(deliveries: Iterable[Delivery]) -> list[int]:
    """The sequence numbers of deliveries."""
    return [int(annotation(delivery, OFFSET)) for delivery in deliveries]


def drained(client: Client, receiver: Receiver, credit: int = 1000) -> list[Delivery]:
    """All that a receiver, made without credit, can get now."""
    receiver.link.grant(credit, drain=True)
    client.flush()
    client.wait(lambda: receiver.link.credit == 0 or receiver.error is not None)
    return receiver.take(credit, 0)
