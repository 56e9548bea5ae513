"""The pieces of a streamed read. Each is made after the client has received the previous one; nothing else is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from ...core.log import Page
from ...core.loop.memory import Share
from ...core.loop.scheduler import Flow
from ...core.loop.traffic import Traffic
from ...http import Exchange
from ...http.errors import Disconnected
from ..events import Rendering
from ..host import Host


class AnswerPieces:
    """An answer in pages, and in slices of events too large for a page. It holds no page between pieces."""

    def __init__(
        self, first: Page, pages: Iterator[Page], rendering: Rendering, traffic: Traffic, share: Share
    ) -> None:
        """`first` is the page already read; `traffic` counts events, `share` sets the size of pieces."""
        self._first: Page | None = first
        self._pages, self._rendering, self._traffic, self._share = pages, rendering, traffic, share
        self._slices: Iterator[bytes] | None = None
        """The remaining slices of a large event."""
        self._before = rendering.opening
        """The bytes before the next event."""
        self._is_empty = True

    @property
    def closing(self) -> bytes:
        """The end of the answer, after the last piece."""
        return (self._before if self._is_empty else b"") + self._rendering.closing

    def next(self) -> bytes | None:
        """The next piece; empty if a step found no match; None after the last one."""
        if self._slices is not None:
            piece = next(self._slices, None)
            if piece is not None:
                return piece
            self._slices = None
        page, self._first = self._first or next(self._pages, None), None
        if page is None:
            return None
        if page.large is not None:
            self._traffic.events_out += 1
            share = self._share  # a closure over `self` would make a reference cycle
            self._slices = self._rendering.slices(page, lambda: share.piece_bytes)
            return self._begin() + next(self._slices, b"")
        if not page.events:
            return b""
        self._traffic.events_out += len(page.events)
        text = self._rendering.page(page)
        before = self._begin()
        return before + text if before else text

    def _begin(self) -> bytes:
        """The bytes before the present event."""
        before, self._before, self._is_empty = self._before, self._rendering.separator, False
        return before


async def send_all(host: Host, exchange: Exchange, next_piece: Callable[[], bytes | None]) -> None:
    """Send each piece after the client has received the previous one; None ends the stream.

    Raises Disconnected as soon as the client disconnects.
    """
    gone = asyncio.ensure_future(exchange.disconnected())
    flow, share = host.flow(exchange), exchange.share
    share.begin_answer()
    try:
        while await send_piece(host, exchange, flow, next_piece):
            await asyncio.sleep(0)
            if gone.done():
                raise Disconnected
    finally:
        share.end_answer()
        gone.cancel()


async def send_piece(host: Host, exchange: Exchange, flow: Flow, next_piece: Callable[[], bytes | None]) -> bool:
    """Make a piece and write it, as one of the user's turns, and wait until the client reads on. False after the last.

    Writing 256 KiB takes the loop longer than making them, so both count towards the user's turn.
    """
    sent = await host.turns.do(flow, partial(_sent, exchange, next_piece))
    if sent is None:
        return False
    await sent
    return True


def _sent(exchange: Exchange, next_piece: Callable[[], bytes | None]) -> Awaitable[None] | None:
    piece = next_piece()
    return None if piece is None else exchange.send(piece)
