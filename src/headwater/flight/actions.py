"""Actions: those that need no more than what is read here are done here, the others by the backend, body as it came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.access import User
from ..core.errors import InvalidInput
from ..core.extent import Extent
from ..core.limits import show
from .backend import Backend
from .reading import span_of
from .wire import ACTIONS, COUNT, HEAD, CountBody, EventCount, LogBody, check_size, decode, encode

Handler = Callable[[Backend, Any], Any]


def act(backend: Backend, user: User, name: str, body: bytes) -> bytes:
    """The answer to an action. Raises what the backend does, InvalidInput, and Forbidden."""
    shape = ACTIONS.get(name)
    if shape is None:
        raise InvalidInput(f"{show(name)} given, allowed: {', '.join(ACTIONS)}", "action")
    if (handler := HANDLERS.get(name)) is None:
        check_size(body, name)
        return backend.act(user, name, body)
    given = decode(shape.body, body or b"{}", name)
    assert shape.right is not None
    backend.authorize(user, shape.right, given.log)
    return encode(handler(backend, given))


def _head(backend: Backend, body: LogBody) -> Extent:
    return backend.place(body.log).extent


def _count(backend: Backend, body: CountBody) -> EventCount:
    span, _ = span_of(backend, body)
    return EventCount(backend.count(body.log, span))


HANDLERS: dict[str, Handler] = {HEAD.name: _head, COUNT.name: _count}
"""Those that are done here."""
