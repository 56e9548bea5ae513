"""A local log for an asyncio event loop: awaitable appends, and reads and subscriptions in bounded steps.

Each commit wakes the loop once for all appends it answers (`loop.batcher`), and once for all tasks that wait for a
commit. If there are none, it does not wake the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial

from ..condition import AppendCondition
from ..consumer import Acknowledgement, Consumer
from ..errors import EventLogError
from ..event import Event
from ..limits import EventColumns
from ..local import LocalLog
from ..log import AppendResult, Page, Selection
from ..query import ALL, Query
from ..reading import read_pages
from .batcher import AppendBatcher, settle
from .group_commit import GroupCommit
from .scheduler import FairScheduler, Flow
from .traffic import Traffic


class AsyncLog:
    """The asyncio interface of one local log; create one per event loop and log, on that loop."""

    def __init__(self, log: LocalLog, turns: FairScheduler | None = None, traffic: Traffic | None = None) -> None:
        """`turns` deals the loop's time to readers that have a flow; `traffic` counts appended events."""
        self.log = log
        self.traffic = traffic or Traffic()
        self.turns = turns or FairScheduler()
        self._loop = asyncio.get_running_loop()
        self._advance: asyncio.Future[None] = self._loop.create_future()
        self._is_awaited = False
        """Whether some task may hold `_advance`. Set before `_advance` is returned, so before its holder looks at the
        head; cleared before the loop is woken. So for every holder, either the flag is set or a wake-up is pending."""
        self.batcher = AppendBatcher(log, traffic=self.traffic)
        """For callers with something short to do after an append, which need no future."""
        self._acknowledgements: list[Acknowledgement] = []
        """They share the next commit."""
        self._acknowledging = GroupCommit(self._acknowledge_all)
        self._is_closed = False
        self._stop = log.watch(self._wake_soon)

    def close(self) -> None:
        """Stop watching the log; its followers end."""
        self._is_closed = True
        self._stop()
        self._wake()

    @property
    def next_commit(self) -> asyncio.Future[None]:
        """Done at the next commit, and when the log or this object closes.

        Obtain it before reading the existing events. Obtain a new one each time: a commit wakes the loop only if one
        was obtained since the last wake.
        """
        self._is_awaited = True
        return self._advance

    async def append(
        self,
        events: Sequence[Event],
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
    ) -> AppendResult:
        """See EventLog. Raises Overloaded instead of waiting."""
        return await self.submit(events, condition, partition=partition)

    def submit(
        self,
        events: Sequence[Event],
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
    ) -> asyncio.Future[AppendResult]:
        """Begin an append; the future completes with its result. Raises input errors at once.

        It is sent to the log at the end of this turn of the loop, with all other appends of the turn.
        """
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        self.batcher.append(events, partial(settle, future), condition, partition)
        return future

    def submit_one(self, event: Event, *, alone: bool = False) -> asyncio.Future[AppendResult]:
        """Begin an append of one event, joined with others of this turn: see `AppendBatcher.join`.

        The future has the AppendResult, or an EventLogError.
        """
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        self.batcher.join(event, partial(settle, future), alone=alone)
        return future

    async def append_columns(
        self, columns: EventColumns, condition: AppendCondition | None = None, *, partition: int | None = None
    ) -> AppendResult:
        """Like `append`, for events checked part by part (`append_builder`)."""
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        self.batcher.append_columns(columns, partial(settle, future), condition, partition)
        return await future

    async def acknowledge(
        self, owner: str, component: str, sequence_number: int, *, epoch: int | None = None
    ) -> Consumer:
        """See EventLog. Acknowledgements during a commit share the next one, in one thread."""
        place = len(self._acknowledgements)
        self._acknowledgements.append(Acknowledgement(owner, component, sequence_number, epoch))
        outcome = (await self._acknowledging.committed())[place]
        if isinstance(outcome, EventLogError):
            raise outcome
        return outcome

    async def _acknowledge_all(self) -> list[Consumer | EventLogError]:
        taken, self._acknowledgements = self._acknowledgements, []
        return await asyncio.to_thread(self.log.acknowledge_all, taken)

    async def pages(self, query: Query, selection: Selection, flow: Flow | None = None) -> AsyncGenerator[Page, None]:
        """The pages of a read; the loop runs between them. Each is a step of the flow, if one is given."""
        pages = read_pages(self.log, query, selection)
        flow = flow or self.turns.flow("", self.log.name)
        while (page := await self.turns.do(flow, partial(next, pages, None))) is not None:
            yield page
            await asyncio.sleep(0)

    async def follow(
        self,
        after: int,
        query: Query = ALL,
        *,
        partition: int | None = None,
        idle_s: float | None = None,
        flow: Flow | None = None,
        page_bytes: Callable[[], int] | None = None,
    ) -> AsyncGenerator[Page, None]:
        """Pages from `after` on, forever; ends when the log or this object closes.

        `page_bytes`: see `read_pages`. A page is released here once it is returned.

        A page without events means that the cursor moved past events that do not match, or that `idle_s` passed. Each
        page is a step of the flow; the default flow is shared by all followers of this log without one of their own.
        Close it (`contextlib.aclosing`) when leaving before the end.
        """
        cursor = after
        flow = flow or self.turns.flow("", self.log.name)
        while True:
            advance = self.next_commit
            read = partial(self.log.read_page, query, cursor, partition=partition)
            if page_bytes is not None:
                read = partial(read, bytes_max=page_bytes(), is_bounded=True)
            page = await self.turns.do(flow, read)
            moved = page.cursor > cursor
            cursor = max(cursor, page.cursor)
            empty = page._replace(events=(), large=None)
            given = [page] if page.events or moved else []
            del page
            if given:
                yield given.pop()
            if not empty.is_last:
                await asyncio.sleep(0)
            elif self.log.is_closed or self._is_closed:
                return
            elif not await _is_done_within(advance, idle_s):
                yield empty

    def _wake_soon(self) -> None:
        if self._is_awaited:
            self._is_awaited = False
            self._call_soon(self._wake)

    def _wake(self) -> None:
        advance, self._advance = self._advance, self._loop.create_future()
        if not advance.done():
            advance.set_result(None)

    def _call_soon(self, callback: object, *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and no task waits for this
            self._loop.call_soon_threadsafe(callback, *arguments)  # type: ignore[arg-type]


async def _is_done_within(future: asyncio.Future[None], timeout_s: float | None) -> bool:
    done, _ = await asyncio.wait((future,), timeout=timeout_s)
    return bool(done)
