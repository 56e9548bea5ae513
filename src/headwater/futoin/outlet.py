"""Sends pages of events on a connection. A page is made when the socket has accepted the last one, and counted until it
is accepted too.

A page up to one piece (`Share.piece_bytes`) may exceed the budget. A larger one reserves its bytes first.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ..core.errors import EventLogError
from ..core.loop.memory import PIECE_BYTES_MIN, Share


class Writer(Protocol):
    """The transport of a connection, from its server (`http.asgi.WRITER`)."""

    is_full: bool
    """Whether the peer is not reading."""

    async def drained(self) -> None:
        """Wait until the peer reads again or has disconnected."""


class Outlet:
    """The outlet of one connection: makes one page at a time, for all its requests."""

    __slots__ = ("_turn", "_writer", "share")

    def __init__(self, share: Share, writer: Writer | None = None) -> None:
        """`share` counts the bytes. Without `writer`, nothing ever waits."""
        self.share = share
        self._turn = asyncio.Lock()
        self._writer = writer

    @property
    def is_full(self) -> bool:
        """Whether a page must wait, for an earlier page or for the peer."""
        return self._turn.locked() or (self._writer is not None and self._writer.is_full)

    async def drained(self) -> None:
        """Wait until the peer reads again or has disconnected."""
        if self._writer is not None:
            await self._writer.drained()

    async def take_turn(self) -> None:
        """Wait until no other page is being made and the peer is reading."""
        await self._turn.acquire()
        try:
            await self.drained()
        except BaseException:
            self._turn.release()
            raise

    def end_turn(self) -> None:
        """End the turn, because the page was sent or there was none."""
        self._turn.release()


class Claim:
    """The memory of one page, from its turn until it is handed to the socket; a context manager that releases it."""

    __slots__ = ("_bytes", "_has_begun", "_has_turn", "_outlet")

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._bytes = 0
        self._has_begun = self._has_turn = False

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end()

    async def turn(self) -> None:
        """Wait for the turn. From now on the connection counts as a reader."""
        self._has_begun = True
        self._outlet.share.begin_answer()
        await self._outlet.take_turn()
        self._has_turn = True

    def end(self) -> None:
        """End the turn and release the bytes. Another turn may follow later."""
        share = self._outlet.share
        if self._bytes:
            share.give(self._bytes)
            self._bytes = 0
        if self._has_turn:
            self._has_turn = False
            self._outlet.end_turn()
        if self._has_begun:
            self._has_begun = False
            share.end_answer()

    def page_bytes(self, at_most: int) -> int:
        """The maximum size of a page of several events: one piece if there are other readers or memory is short."""
        account = self._outlet.share.account
        return min(at_most, account.piece_bytes) if account.readers > 1 or account.is_short else at_most

    def event_bytes(self, at_most: int) -> int:
        """The maximum size of an event that can ever fit."""
        return min(at_most, self._outlet.share.largest)

    def take(self, size: int) -> bool:
        """Add `size` bytes, unless they exceed a piece and do not fit. Returns whether they were added."""
        share, total = self._outlet.share, self._bytes + size
        if total <= PIECE_BYTES_MIN or total <= share.piece_bytes:
            share.hold(size)
        elif not share.take(size):
            return False
        self._bytes = total
        return True

    def give(self, size: int) -> None:
        """Release `size` bytes."""
        self._outlet.share.give(size)
        self._bytes -= size

    def refusal(self, size: int) -> EventLogError:
        """The error to report after `take` refused."""
        return self._outlet.share.refusal(size, "the next event")
