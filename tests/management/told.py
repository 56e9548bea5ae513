"""What is told on a bus, each notification held against the catalog."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.core import Bus, Notification, NotificationType
from headwater.management import CATALOG, Kind
from tests.waiting import eventually

PYTHON = {Kind.STRING: str, Kind.LONG: int, Kind.TIMESTAMP: int, Kind.BOOLEAN: bool}


class Told:
    """Listens from now on."""

    def __init__(self, bus: Bus) -> None:
        self.notifications: list[Notification] = []
        bus.subscribe(self.notifications.append)

    def of(self, *types: NotificationType) -> list[dict[str, object]]:
        """The attributes of all that were told of these types, but for type and time; each fits the catalog."""
        found = [notification for notification in list(self.notifications) if notification.type in types]
        for notification in found:
            check(notification)
        return [{name: value for name, value in notification.attributes.items() if name not in ("eventType", "time")}
                for notification in found]  # fmt: skip

    def types(self, among: Iterable[NotificationType]) -> list[NotificationType]:
        """Which were told, in their order."""
        wanted = set(among)
        return [notification.type for notification in list(self.notifications) if notification.type in wanted]

    def wait_for(self, type: NotificationType, count: int = 1) -> dict[str, object]:
        """The attributes of the last, once there are so many of that type."""
        eventually(lambda: len(self.of(type)) >= count, lambda: f"{type}: {self.notifications}")
        found = self.of(type)
        assert len(found) == count, found
        return found[-1]


def check(notification: Notification) -> None:
    """That it has what the catalog says, in that order."""
    entry = CATALOG[notification.type]
    given = list(notification.attributes)
    assert given == [name for name in entry.names if name in notification.attributes], (given, entry.names)
    missing = {attribute.name for attribute in entry.attributes if attribute.is_required} - set(given)
    assert not missing, (notification, missing)
    for attribute in entry.attributes:
        if attribute.name in notification.attributes:
            value = notification.attributes[attribute.name]
            assert type(value) is PYTHON[attribute.kind], (attribute, value)
    assert notification.attributes["eventType"] == notification.type.value
    assert notification.attributes["time"] == notification.time
