"""What the server does for each action of Flight that its bulk process hands on: one function each, on the log."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from ...core.acting import acting
from ...core.log import LogInfo
from ...core.mark import Committed
from ...core.store import LogStore
from ...core.streams import NOBODY
from ...flight import wire
from ...flight.wire import ActionShape, Answer, Body
from ...storage.committing import commit_staged, discard_staged
from ...storage.log import StoredLog
from ..allocators import Keeping

KEEPING = Keeping()
"""For commits of much; one for the process."""


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
    `flight.wire.ACTIONS` says. Raises what the log raises."""
    work: Work | None = Work.ASK
    """None: it does not block."""
    takes_turns: bool = False
    """Whether one call for a log and a writer runs at a time."""


def _on_log(
    shape: ActionShape[Body, Answer],
    handler: Callable[[StoredLog, Body], Answer],
    work: Work | None = Work.ASK,
    *,
    takes_turns: bool = False,
) -> tuple[str, Handling]:
    return shape.name, Handling(handler, work, takes_turns)


def _create_log(store: LogStore, body: wire.CreateBody) -> LogInfo:
    return store.create(body.log, wire.settings_of(body.settings)).info()


def _unregister_consumer(log: StoredLog, body: wire.UnregisterBody) -> wire.Nothing:
    log.unregister_consumer(body.owner, body.component, drops_at_most=body.drops_at_most)
    return wire.Nothing()


def _report_position(log: StoredLog, body: wire.ReportBody) -> wire.Nothing:
    log.streams.tell(acting() or NOBODY, body.stream, body.position)
    return wire.Nothing()


def _commit(log: StoredLog, body: wire.CommitBody) -> Committed:
    return commit_staged(
        log,
        log.directory,
        body.writer,
        body.batch,
        body.stages,
        partition=body.partition,
        condition=wire.condition_of(body.condition),
        on_duplicate=body.on_duplicate,
        around_segments=KEEPING,
    )


def _discard(log: StoredLog, body: wire.DiscardBody) -> wire.Nothing:
    discard_staged(log, log.directory, body.writer, body.batch, gives_up=body.gives_up)
    return wire.Nothing()


HANDLERS: dict[str, Handling] = dict(
    (
        (wire.CREATE_LOG.name, Handling(_create_log, Work.OPEN)),
        _on_log(wire.INFO, lambda log, _: log.info()),
        _on_log(
            wire.SEQUENCE_NUMBER_AT, lambda log, body: wire.SequenceNumber(log.sequence_number_at(body.recorded_at))
        ),
        _on_log(wire.TRIM, lambda log, body: wire.Trimmed(log.trim(body.below))),
        _on_log(wire.CONSUMERS, lambda log, _: wire.Consumers(log.consumers()), None),
        _on_log(wire.CONSUMER, lambda log, body: wire.OneConsumer(log.consumer(body.owner, body.component)), None),
        _on_log(
            wire.REGISTER_CONSUMER,
            lambda log, body: log.register_consumer(
                body.owner, body.component, after=body.after, drops_at_most=body.drops_at_most
            ),
        ),
        _on_log(
            wire.ACKNOWLEDGE,
            lambda log, body: log.acknowledge(body.owner, body.component, body.sequence_number, epoch=body.epoch),
        ),
        _on_log(wire.UNREGISTER_CONSUMER, _unregister_consumer),
        _on_log(wire.REPORT_POSITION, _report_position, None),
        _on_log(wire.WRITER, lambda log, body: wire.OneWriter(log.writer(body.writer)), None),
        _on_log(wire.COMMIT, _commit, Work.COMMIT, takes_turns=True),
        _on_log(wire.DISCARD, _discard, takes_turns=True),
    )
)
"""Every action that is on a log, but for those that the bulk process does itself."""
