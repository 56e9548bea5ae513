"""What management needs from the packages above it: one set of entities per type. The AMQP package has connections,
sessions, links and consumer groups; the server has users, and adds the entities of other packages. Implementations run
on the event loop, and do blocking work in a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self
from urllib.parse import unquote

from ..core.access import User
from .statuses import OperationRefused, Status


def joined(*parts: str) -> str:
    """Joins the parts into one name; escapes a slash within a part as %2F, a percent sign as %25."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def parted(name: str, count: int) -> tuple[str, ...] | None:
    """The parts of a name, or None if it does not have `count` parts."""
    parts = tuple(unquote(part) for part in name.split("/"))
    return parts if len(parts) == count else None


def number_of(text: str) -> int:
    """The number in a name or a part of it, in the server's notation; for any other text 0, which no entity has."""
    is_one = text.isascii() and text.isdecimal() and len(text) < 20 and text[0] != "0"
    return int(text) if is_one else 0


class Time(int):
    """ms since 1970 UTC, in answers that distinguish times from numbers."""

    __slots__ = ()


Attributes = Mapping[str, Any]
"""Attribute values by name: strings, whole numbers, booleans, lists of strings, maps of those, or None.

A time is a whole number, ms since 1970 UTC, and a `Time` in an answer to a client. A set of entities need not return
identity, type or name.
"""


class Entities(Protocol):
    """All entities of one type."""

    async def names(self, user: User) -> Sequence[str]:
        """The entities that the user may see, in a stable order. Raises EventLogError."""

    async def read(self, user: User, name: str) -> Attributes:
        """The attributes of one. Raises EventLogError; OperationRefused: it does not exist, or the user may not see
        it.
        """

    async def create(self, user: User, name: str, given: Attributes) -> Attributes:
        """Create an entity from checked attributes, and return it as created. Raises the same errors as `read`."""

    async def update(self, user: User, name: str, changes: Attributes) -> Attributes:
        """Change an entity, all or nothing. `changes` are checked; None removes a value. Raises the same errors as
        `read`.
        """

    async def delete(self, user: User, name: str) -> None:
        """Delete an entity; this closes a connection, session or link. Raises the same errors as `read`."""


class ReadOnly(Entities):
    """Base of entities that lack some operations. A missing operation is refused."""

    async def create(self, user: User, name: str, given: Attributes) -> Attributes:
        raise OperationRefused(Status.NOT_IMPLEMENTED, "such an entity cannot be created")

    async def update(self, user: User, name: str, changes: Attributes) -> Attributes:
        raise OperationRefused(Status.NOT_IMPLEMENTED, "such an entity cannot be updated")

    async def delete(self, user: User, name: str) -> None:
        raise OperationRefused(Status.NOT_IMPLEMENTED, "such an entity cannot be deleted")


class Dropping(ReadOnly):
    """Entities whose change may drop events. Raises WouldDrop if it would drop more than `drops_at_most`."""

    drops_at_most = 0
    """How many events a change may drop."""

    def dropping(self, at_most: int) -> Self:
        """The same entities, but a change may drop `at_most` events."""
        same = copy(self)
        same.drops_at_most = at_most
        return same
