"""Decisions for asyncio, over a log of `headwater.client.aio` or an `AsyncLog` in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Protocol, TypeVar

from ..core.condition import AppendCondition
from ..core.event import NO_ATTRIBUTES, Event, SequencedEvent
from ..core.log import AppendResult
from ..core.loop.async_log import AsyncLog
from ..core.query import Query
from .deciding import RETRIES, Retries, Terms, deciding, projecting
from .decision import Decided, Decision
from .folding import Plan
from .projection import Knowledge
from .steps import Append, Load, Read, Save, Step, Steps

E = TypeVar("E")
S = TypeVar("S")
T = TypeVar("T")

__all__ = ["AwaitedLog", "AwaitedReading", "decide", "project"]


class AwaitedReading(Protocol):
    """A read whose pages are awaited."""

    @property
    def head(self) -> int:
        """The number of the last durable event when the read began."""

    async def next_page(self) -> Sequence[SequencedEvent]:
        """The next events: all that arrived together; empty at the end."""

    def close(self) -> None:
        """Stop reading."""


class AwaitedLog(Protocol):
    """The methods that a log on a server must have; `headwater.client.aio.RemoteLog` has them."""

    name: str

    async def append(self, events: Sequence[Event], condition: AppendCondition | None = None) -> AppendResult:
        """See EventLog."""

    async def read(
        self, query: Query, *, after: int | None = None, backwards: bool = False, limit: int | None = None
    ) -> AwaitedReading:
        """See EventLog."""


async def decide(
    log: AwaitedLog | AsyncLog,
    decision: Decision[E],
    *,
    key: str = "",
    source: str = "",
    attributes: Mapping[str, str] = NO_ATTRIBUTES,
    retries: Retries = RETRIES,
) -> Decided[E]:
    """Like `headwater.decisions.decide`, awaited. A cancelled decision may or may not have stored its events."""
    return await _run(log, deciding(_name(log), decision, Terms(key, source, attributes, retries)))


async def project(log: AwaitedLog | AsyncLog, knowledge: Knowledge[S]) -> S:
    """Like `headwater.decisions.project`, awaited."""
    (state,) = await _run(log, projecting(_name(log), Plan([knowledge])))
    found: S = state
    return found


def _name(log: AwaitedLog | AsyncLog) -> str:
    return log.log.name if isinstance(log, AsyncLog) else log.name


async def _run(log: AwaitedLog | AsyncLog, steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                await _do(log, step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = next(steps)
    except StopIteration as end:
        value: T = end.value
        return value


async def _do(log: AwaitedLog | AsyncLog, step: Step) -> None:
    if isinstance(step, Read):
        await (_read_here if isinstance(log, AsyncLog) else _read)(log, step)  # type: ignore[arg-type]
    elif isinstance(step, Append):
        step.result = await log.append(step.events, step.condition)
    elif isinstance(step, Load):
        step.found = await asyncio.to_thread(step.store.load, step.key)
    elif isinstance(step, Save):
        await asyncio.to_thread(step.store.save, step.key, step.snapshot)
    else:
        await asyncio.sleep(step.seconds)


async def _read(log: AwaitedLog, step: Read) -> None:
    reading = await log.read(step.query, after=step.after, backwards=step.backwards, limit=step.limit)
    step.head = reading.head
    try:
        while events := await reading.next_page():
            step.take(events)
    except BaseException:
        reading.close()
        raise


async def _read_here(log: AsyncLog, step: Read) -> None:
    selection = log.log.selection(None, step.after, step.backwards, step.limit, None)
    step.head = selection.head
    async with aclosing(log.pages(step.query, selection)) as pages:
        async for page in pages:
            step.take(page.events)
