"""Decisions on a thread: over any `EventLog`, in this process or on a server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TypeVar

from ..core.event import NO_ATTRIBUTES
from ..core.log import EventLog
from .deciding import RETRIES, Retries, Terms, deciding, projecting
from .decision import Decided, Decision
from .folding import Plan
from .projection import Knowledge
from .steps import Append, Load, Read, Save, Step, Steps

E = TypeVar("E")
S = TypeVar("S")
T = TypeVar("T")


def decide(
    log: EventLog,
    decision: Decision[E],
    *,
    key: str = "",
    source: str = "",
    attributes: Mapping[str, str] = NO_ATTRIBUTES,
    retries: Retries = RETRIES,
) -> Decided[E]:
    """Read what the decision needs, call its rule, and append the resulting events unless there are new events.

    If there are, `decide` reads them and calls the rule again. The rule gets copies of the states that handlers change
    (`Projection.made_by`).

    `key` is the command's idempotency key: repeating a command with the same key stores nothing and returns the first
    result. Use each key for one command only. `source` and `attributes` are set on the events.

    Exceptions of the rule propagate. Raises Contended if it lost the race for too long (see `Retries`), UnreadableEvent
    for an event that cannot be read, and the errors of `EventLog.read` and `EventLog.append`. If an answer is lost, the
    events may or may not be stored: decide again with the same key.
    """
    return _run(log, deciding(log.name, decision, Terms(key, source, attributes, retries)))


def project(log: EventLog, knowledge: Knowledge[S]) -> S:
    """The current state of a projection, or of several. Raises UnreadableEvent, and the errors of `EventLog.read`."""
    (state,) = _run(log, projecting(log.name, Plan([knowledge])))
    found: S = state
    return found


def _run(log: EventLog, steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                do(log, step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = next(steps)
    except StopIteration as end:
        value: T = end.value
        return value


def do(log: EventLog, step: Step) -> None:
    """Run one step. Raises the errors of the log and of `take`."""
    if isinstance(step, Read):
        reading = log.read(step.query, after=step.after, backwards=step.backwards, limit=step.limit)
        step.head = reading.head
        try:
            step.take(reading)
        except BaseException:
            if close := getattr(reading, "close", None):  # its connection is in use until the last event
                close()
            raise
    elif isinstance(step, Append):
        step.result = log.append(step.events, step.condition)
    elif isinstance(step, Load):
        step.found = step.store.load(step.key)
    elif isinstance(step, Save):
        step.store.save(step.key, step.snapshot)
    else:
        time.sleep(step.seconds)
