"""What the server does for each action of Flight that its bulk process hands on: one function each, on the log."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from ...core.consumer import Consumer
from ...core.local import LocalLog
from ...core.log import LogInfo
from ...core.mark import Committed, check_writer
from ...core.store import LogStore
from ...flight.wire import (
    AcknowledgeBody,
    CommitBody,
    ConsumerBody,
    Consumers,
    CreateBody,
    DiscardBody,
    LogBody,
    Nothing,
    OneConsumer,
    OneWriter,
    RegisterBody,
    SequenceNumber,
    SequenceNumberAtBody,
    TrimBody,
    Trimmed,
    WriterBody,
    condition_of,
    settings_of,
)
from ...storage.committing import commit_staged, discard_staged
from ...storage.log import StoredLog


class Work(Enum):
    """Kinds of calls that block. Each has threads of its own, so that slow ones hold up no others."""

    OPEN = 2
    """Logs that are not open yet: the first opening after a crash may take long."""
    ASK = 8
    APPEND = 16
    COMMIT = 4
    """These may take minutes."""


class Handling(NamedTuple):
    """How an action is done."""

    handler: Callable[[Any, Any], object]
    """From the log that the body names (from all logs, if the work is to open one) and the body to the answer, both as
    `flight.wire.ACTIONS` says. It blocks, and raises what the log raises."""
    work: Work = Work.ASK
    takes_turns: bool = False
    """Whether one call for a log and a writer runs at a time."""


def _info(log: LocalLog, body: LogBody) -> LogInfo:
    return log.info()


def _sequence_number_at(log: LocalLog, body: SequenceNumberAtBody) -> SequenceNumber:
    return SequenceNumber(log.sequence_number_at(body.recorded_at))


def _create_log(store: LogStore, body: CreateBody) -> LogInfo:
    return store.create(body.log, settings_of(body.settings)).info()


def _trim(log: LocalLog, body: TrimBody) -> Trimmed:
    return Trimmed(log.trim(body.below))


def _consumers(log: LocalLog, body: LogBody) -> Consumers:
    return Consumers(log.consumers())


def _consumer(log: LocalLog, body: ConsumerBody) -> OneConsumer:
    return OneConsumer(log.consumer(body.owner, body.component))


def _register_consumer(log: LocalLog, body: RegisterBody) -> Consumer:
    return log.register_consumer(body.owner, body.component, after=body.after)


def _acknowledge(log: LocalLog, body: AcknowledgeBody) -> Consumer:
    return log.acknowledge(body.owner, body.component, body.sequence_number, epoch=body.epoch)


def _unregister_consumer(log: LocalLog, body: ConsumerBody) -> Nothing:
    log.unregister_consumer(body.owner, body.component)
    return Nothing()


def _writer(log: LocalLog, body: WriterBody) -> OneWriter:
    check_writer(body.writer)
    return OneWriter(log.writer(body.writer))


def _commit(log: StoredLog, body: CommitBody) -> Committed:
    return commit_staged(
        log,
        log.directory,
        body.writer,
        body.batch,
        body.stages,
        partition=body.partition,
        condition=condition_of(body.condition),
        on_duplicate=body.on_duplicate,
    )


def _discard(log: StoredLog, body: DiscardBody) -> Nothing:
    discard_staged(log, log.directory, body.writer, body.batch, gives_up=body.gives_up)
    return Nothing()


HANDLERS: dict[str, Handling] = {
    "info": Handling(_info),
    "position_at": Handling(_sequence_number_at),
    "create_log": Handling(_create_log, Work.OPEN),
    "trim": Handling(_trim),
    "consumers": Handling(_consumers),
    "consumer": Handling(_consumer),
    "register_consumer": Handling(_register_consumer),
    "acknowledge": Handling(_acknowledge),
    "unregister_consumer": Handling(_unregister_consumer),
    "writer": Handling(_writer),
    "commit": Handling(_commit, Work.COMMIT, takes_turns=True),
    "discard": Handling(_discard, takes_turns=True),
}
"""Every action that is on a log, but for those that the bulk process does itself."""
