"""Actions: one function each, which gets the body that `wire.ACTIONS` says and gives the answer that it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.access import Right, User
from ..core.consumer import Consumer
from ..core.errors import InvalidInput
from ..core.extent import Extent
from ..core.limits import show
from ..core.log import LogInfo
from ..core.mark import Committed, check_writer
from .backend import Backend
from .reading import span_of
from .wire import (
    ACTIONS,
    AcknowledgeBody,
    CommitBody,
    ConsumerBody,
    Consumers,
    CountBody,
    CreateBody,
    DiscardBody,
    EventCount,
    LogBody,
    LogNames,
    Nothing,
    OneConsumer,
    OneWriter,
    PositionAtBody,
    RegisterBody,
    SequenceNumber,
    TrimBody,
    Trimmed,
    WriterBody,
    condition_of,
    decode,
    encode,
    settings_of,
)

Handler = Callable[[Backend, Any], Any]


def act(backend: Backend, user: User, name: str, body: bytes) -> bytes:
    """The answer to an action, for a user who has the right to it. Raises what the backend does, and InvalidInput."""
    shape = ACTIONS.get(name)
    if shape is None:
        raise InvalidInput(f"{show(name)} given, allowed: {', '.join(ACTIONS)}", "action")
    given = decode(shape.body, body or b"{}", name)
    if shape.right is None:
        return encode(LogNames(readable(backend, user)))
    backend.authorize(user, shape.right, given.log)
    return encode(HANDLERS[name](backend, given))


def readable(backend: Backend, user: User) -> list[str]:
    """The logs that the user may read; the others are not told of, which is no refusal."""
    return [name for name in backend.logs() if user.may(Right.READ, name)]


def _info(backend: Backend, body: LogBody) -> LogInfo:
    return backend.info(body.log)


def _head(backend: Backend, body: LogBody) -> Extent:
    return backend.place(body.log).extent


def _position_at(backend: Backend, body: PositionAtBody) -> SequenceNumber:
    return SequenceNumber(backend.sequence_number_at(body.log, body.recorded_at))


def _count(backend: Backend, body: CountBody) -> EventCount:
    span, _ = span_of(backend, body)
    return EventCount(backend.count(body.log, span))


def _create_log(backend: Backend, body: CreateBody) -> LogInfo:
    return backend.create_log(body.log, settings_of(body.settings))


def _trim(backend: Backend, body: TrimBody) -> Trimmed:
    return Trimmed(backend.trim(body.log, body.below))


def _consumers(backend: Backend, body: LogBody) -> Consumers:
    return Consumers(backend.consumers(body.log))


def _consumer(backend: Backend, body: ConsumerBody) -> OneConsumer:
    return OneConsumer(backend.consumer(body.log, body.owner, body.component))


def _register_consumer(backend: Backend, body: RegisterBody) -> Consumer:
    return backend.register_consumer(body.log, body.owner, body.component, body.after)


def _acknowledge(backend: Backend, body: AcknowledgeBody) -> Consumer:
    return backend.acknowledge(body.log, body.owner, body.component, body.sequence_number, body.epoch)


def _unregister_consumer(backend: Backend, body: ConsumerBody) -> Nothing:
    backend.unregister_consumer(body.log, body.owner, body.component)
    return Nothing()


def _writer(backend: Backend, body: WriterBody) -> OneWriter:
    check_writer(body.writer)
    return OneWriter(backend.writer(body.log, body.writer))


def _commit(backend: Backend, body: CommitBody) -> Committed:
    check_writer(body.writer)
    return backend.commit(
        body.log,
        body.writer,
        body.batch,
        body.stages,
        partition=body.partition,
        condition=condition_of(body.condition),
        on_duplicate=body.on_duplicate,
    )


def _discard(backend: Backend, body: DiscardBody) -> Nothing:
    check_writer(body.writer)
    backend.discard(body.log, body.writer, body.batch, gives_up=body.gives_up)
    return Nothing()


HANDLERS: dict[str, Handler] = {
    "info": _info,
    "head": _head,
    "position_at": _position_at,
    "count": _count,
    "create_log": _create_log,
    "trim": _trim,
    "consumers": _consumers,
    "consumer": _consumer,
    "register_consumer": _register_consumer,
    "acknowledge": _acknowledge,
    "unregister_consumer": _unregister_consumer,
    "writer": _writer,
    "commit": _commit,
    "discard": _discard,
}
