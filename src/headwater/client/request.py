"""What is asked of a server, before anything is sent: a route, a body, and what its answer means. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from ..formats.answer import Answer
from .identity import Identity

T = TypeVar("T")

JSON = "application/json"


class Route(NamedTuple):
    """What the requests of one kind have in common: their head depends on nothing else, but the length of the body."""

    method: str
    path: str
    """With its query, if it has one."""
    content_type: str = JSON
    accept: str = JSON


class Request(NamedTuple, Generic[T]):
    """One request. It may be sent again: what appends carries ids, by which the log recognises it."""

    route: Route
    body: bytes
    log: str
    """The log that is asked, or nothing: for messages."""
    decode: Callable[[Answer], T]
    """What a whole answer means, if its status is below 300."""
    identity: Identity | None = None
    """What is known of the log, if it must be the same one at each address."""
    waits: bool = False
    """Whether its answer may wait for something to happen, so that it is no measure of what is under way."""
    appends: bool = False
    """Whether it puts events into the log. If its answer is lost, it is not known whether they are there."""
