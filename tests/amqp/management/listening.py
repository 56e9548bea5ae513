"""What tests of `$events` ask for, and make happen."""

from __future__ import annotations

from typing import Any

from headwater.amqp.client import Client, Delivery, Receiver
from headwater.amqp.management.transformation import TRANSFORMATION
from headwater.amqp.protocol.types import Described, Symbol
from headwater.core.watch.bus import Bus
from headwater.core.watch.notification_types import NotificationType

SELECTOR = "apache.org:selector-filter:string"
SQL = "amqp:sql-filter"
CREATED, CHANGED, DELETED = NotificationType.LOG_CREATED, NotificationType.LOG_CHANGED, NotificationType.LOG_DELETED


def selector(text: str) -> dict[str, object]:
    """A message selector."""
    return {"selector": Described(Symbol(SELECTOR), text)}


def sql(text: str) -> dict[str, object]:
    """An SQL filter."""
    return {"sql": Described(Symbol(SQL), text)}


def transformation(*attributes: str, compact: bool | None = True) -> dict[str, object]:
    """A transformation, among filters."""
    value: dict[str, object] = {"requestedAttributes": list(attributes)}
    if compact is not None:
        value["compact"] = compact
    return {"form": Described(Symbol(TRANSFORMATION), value)}


def listener(client: Client, *filters: dict[str, object], **more: Any) -> Receiver:
    """A receiver from `$events`."""
    return client.receiver("$events", filter={key: value for each in filters for key, value in each.items()}, **more)


def happen(bus: Bus, *logs: str, type: NotificationType = CREATED) -> None:
    """Logs are made, as far as anybody is told."""
    for log in logs:
        bus.emit(type, log=log, incarnation="i", partitions=len(log))


def properties(delivery: Delivery) -> dict[str, Any]:
    """The application-properties of a notification."""
    return dict(delivery.message.application_properties or {})


def logs(deliveries: list[Delivery]) -> list[str]:
    """The attribute `log` of notifications."""
    return [properties(delivery)["log"] for delivery in deliveries]
