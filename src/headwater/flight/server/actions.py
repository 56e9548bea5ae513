"""Actions. If an action needs only the backend's read methods, it is handled here. Others are passed to the backend
with their body as sent.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import json

from ...core.access import Right, User
from ...core.errors import InvalidInput, LogNotFound
from ...core.extent import Extent
from ...core.limits import show
from ...core.log import LogInfo
from .. import wire
from ..wire import ACTIONS, ActionShape, Answer, Body
from .backend import Backend
from .reads import span_of

Handler = Callable[[Backend, User, Any], Any]


def act(backend: Backend, user: User, name: str, body: bytes) -> bytes:
    """The answer to an action. Raises the errors of the backend, InvalidInput, and Forbidden."""
    shape = ACTIONS.get(name)
    if shape is None:
        raise InvalidInput(f"got {show(name)}, expected one of {', '.join(ACTIONS)}", "action")
    if (handler := HANDLERS.get(name)) is None:
        wire.check_size(body, name)
        return backend.act(user, name, body)
    given = wire.decode(shape.body, body or b"{}", name)
    if shape.right is not None:
        backend.authorize(user, shape.right, given.log)
    return wire.encode(handler(backend, user, given))


def logs_of(backend: Backend, user: User) -> list[str]:
    """The logs that the user may read; the others are left out, which does not count as a refusal."""
    return _asked(backend, user, wire.LOGS, wire.Nothing()).logs


def info_of(backend: Backend, user: User, log: str) -> LogInfo:
    """See EventLog. Raises LogNotFound, Forbidden."""
    return _asked(backend, user, wire.INFO, wire.LogBody(log))


def _asked(backend: Backend, user: User, shape: ActionShape[Body, Answer], body: Body) -> Answer:
    return json.decode(backend.act(user, shape.name, wire.encode(body)), type=shape.answer)


def _head(backend: Backend, user: User, body: wire.LogBody) -> Extent:
    return backend.place(body.log).extent


def _heads(backend: Backend, user: User, body: wire.HeadsBody) -> wire.Heads:
    found = {}
    for log in body.logs:
        if user.may(Right.READ, log):
            with suppress(LogNotFound):
                found[log] = backend.place(log).extent
    return wire.Heads(found)


def _count(backend: Backend, user: User, body: wire.CountBody) -> wire.EventCount:
    span, _ = span_of(backend, body)
    return wire.EventCount(backend.count(body.log, span))


def _lend(backend: Backend, user: User, body: wire.LendBody) -> wire.Lender:
    return backend.lender(user, body)


HANDLERS: dict[str, Handler] = {
    wire.HEAD.name: _head, wire.HEADS.name: _heads, wire.COUNT.name: _count, wire.LEND.name: _lend,
}  # fmt: skip
"""The actions handled here."""
