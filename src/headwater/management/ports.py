"""What management asks of the rooms above it: one set of entities for each type, wherever they live.

The AMQP room has connections, sessions, links and consumer groups; the server has users, and brings in what other
rooms have. Whoever implements this has the loop: what blocks, it does in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self
from urllib.parse import unquote

from ..core.access import User
from .statuses import OperationRefused, Status


def joined(*parts: str) -> str:
    """The parts as one name: a slash within a part is written as %2F, a percent sign as %25."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def parted(name: str, count: int) -> tuple[str, ...] | None:
    """The parts of a name, or None if it does not have so many."""
    parts = tuple(unquote(part) for part in name.split("/"))
    return parts if len(parts) == count else None


def number_of(text: str) -> int:
    """The number that a name, or a part of it, is, as we write it; 0, which nothing has, for any other text."""
    is_one = text.isascii() and text.isdecimal() and len(text) < 20 and text[0] != "0"
    return int(text) if is_one else 0


class Time(int):
    """ms since 1970 UTC, where an answer keeps times apart from numbers."""

    __slots__ = ()


Attributes = Mapping[str, Any]
"""Values of attributes by name: strings, whole numbers, booleans, lists of strings, maps of those, or None.

A time is a whole number, ms since 1970 UTC: an answer to somebody has a `Time` there. What a set of entities answers
needs neither identity nor type, nor a name.
"""


class Entities(Protocol):
    """All entities of one type."""

    async def names(self, user: User) -> Sequence[str]:
        """Those that the user may see, in an order that does not change with time. Raises EventLogError."""

    async def read(self, user: User, name: str) -> Attributes:
        """The attributes of one. Raises EventLogError; OperationRefused: there is none, or it is not for that user."""

    async def create(self, user: User, name: str, given: Attributes) -> Attributes:
        """Make one; `given` is checked, and answered is what was made. Raises as `read`."""

    async def update(self, user: User, name: str, changes: Attributes) -> Attributes:
        """Change one, wholly or not at all. `changes` are checked; None takes a value away. Raises as `read`."""

    async def delete(self, user: User, name: str) -> None:
        """Take one away; a connection, a session or a link is closed by that. Raises as `read`."""


class ReadOnly(Entities):
    """What entities derive from that cannot be changed in every way: an operation that is not there is refused."""

    async def create(self, user: User, name: str, given: Attributes) -> Attributes:
        raise OperationRefused(Status.NOT_IMPLEMENTED, "such an entity cannot be created")

    async def update(self, user: User, name: str, changes: Attributes) -> Attributes:
        raise OperationRefused(Status.NOT_IMPLEMENTED, "such an entity cannot be updated")

    async def delete(self, user: User, name: str) -> None:
        raise OperationRefused(Status.NOT_IMPLEMENTED, "such an entity cannot be deleted")


class Dropping(ReadOnly):
    """Entities whose change may drop events. It raises WouldDrop if it would drop more than `drops_at_most`."""

    drops_at_most = 0
    """A change may drop so many events."""

    def dropping(self, at_most: int) -> Self:
        """The same entities; a change of them may drop so many events."""
        same = copy(self)
        same.drops_at_most = at_most
        return same
