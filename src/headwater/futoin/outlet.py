"""Where events leave a connection: a page is made when the socket has taken the one before, and counts until it has.

A page up to one piece (`Share.piece_bytes`) may exceed the budget. A larger one takes its bytes before they are there.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ..core.errors import EventLogError
from ..core.loop.memory import Share


class Writer(Protocol):
    """The transport of a connection, as its server gives it (`http.asgi.WRITER`)."""

    is_full: bool
    """Whether the peer does not take what it is sent."""

    async def drained(self) -> None:
        """Wait until the peer takes what it is sent, or is gone."""


class Outlet:
    """Of one connection: one page at a time is made for it, whatever asks for it."""

    __slots__ = ("_turn", "_writer", "share")

    def __init__(self, share: Share, writer: Writer | None = None) -> None:
        """`share` counts; without `writer` there is nothing to wait for."""
        self.share = share
        self._turn = asyncio.Lock()
        self._writer = writer

    @property
    def is_full(self) -> bool:
        """Whether a page has to wait: for the one before it, or for the peer."""
        return self._turn.locked() or (self._writer is not None and self._writer.is_full)

    async def drained(self) -> None:
        """Wait until the peer takes what it is sent, or is gone."""
        if self._writer is not None:
            await self._writer.drained()

    async def take_turn(self) -> None:
        """Wait until no other page is made, and the peer takes what it is sent."""
        await self._turn.acquire()
        try:
            await self.drained()
        except BaseException:
            self._turn.release()
            raise

    def end_turn(self) -> None:
        """The page was sent, or there was none."""
        self._turn.release()


class Claim:
    """What one page holds, from its turn until it is handed to the socket; a context manager that gives it back."""

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
        """Wait for the turn; the connection is a reader from now on."""
        self._has_begun = True
        self._outlet.share.begin_answer()
        await self._outlet.take_turn()
        self._has_turn = True

    def end(self) -> None:
        """Let others have their turn, and give the bytes back. It may have another turn later."""
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
        """How large a page of several events may be: one piece, where others read too or memory is short."""
        account = self._outlet.share.account
        return min(at_most, account.piece_bytes) if account.readers > 1 or account.is_short else at_most

    def event_bytes(self, at_most: int) -> int:
        """How large one event may be: there will never be room for more."""
        return min(at_most, self._outlet.share.largest)

    def take(self, size: int) -> bool:
        """Count `size` bytes more, unless there is no room for them, and they are more than a piece."""
        share = self._outlet.share
        if self._bytes + size <= share.piece_bytes:
            share.hold(size)
        elif not share.take(size):
            return False
        self._bytes += size
        return True

    def give(self, size: int) -> None:
        """Count `size` bytes less."""
        self._outlet.share.give(size)
        self._bytes -= size

    def refusal(self, size: int) -> EventLogError:
        """What to tell where `take` refused."""
        return self._outlet.share.refusal(size, "the next event")
