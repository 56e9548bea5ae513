"""`/home/frames`: the primary pushes its commits to the replicas of its home.

Requests carry a secret that is stored in the home, so that only its servers can listen. See `homes.commit_feed` for the
wire format.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ...formats.problem import Problem
from ...homes.commit_feed import ALIVE, TAKEN_BYTES_MAX, CommitListener, Committed
from ...homes.home_secret import SECRET_HEADER, HomeSecret
from ...http import Exchange, Receive, Scope, Send, refuse_websocket
from ...http.errors import CLOSE, UNREADY_RETRY

logger = logging.getLogger("headwater.server")

ROOM = "home"
PATH = "/home/frames"
ALIVE_S = 2.0
"""Interval of heartbeats from the primary."""
TAKEN_S = 10.0
"""A listener that reads nothing for this long is disconnected."""


class PushedFrames:
    """The ASGI application of a primary at PATH."""

    def __init__(self, committed: Committed, secret: HomeSecret) -> None:
        self._committed, self._secret = committed, secret
        self._stopping = asyncio.Event()
        self._wakers: set[asyncio.Event] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one replica until it disconnects, falls behind, or the server stops."""
        if scope["type"] != "http":
            await refuse_websocket(send)
            return
        scope["route"] = PATH
        exchange = Exchange(scope, receive, send)
        given = exchange.header(SECRET_HEADER)
        if scope["path"] != PATH or scope["method"] != "GET":
            await exchange.answer_problem(Problem.of_status(404, "only GET /home/frames is served here"))
        elif given is None or not self._secret.is_current(given):
            await exchange.answer_problem(Problem.of_status(403, "only servers of the same home may connect"))
        else:
            await self._push(exchange, send, given)

    def stop(self) -> None:
        """Disconnect all listeners."""
        self._stopping.set()
        for each in self._wakers:
            each.set()

    async def close(self) -> None:
        """See FrontEnd."""

    async def _push(self, exchange: Exchange, send: Send, given: bytes) -> None:
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: there are no more listeners
                loop.call_soon_threadsafe(news.set)

        listener = self._committed.listen(wake)
        if listener is None:
            await exchange.answer_problem(
                Problem.of_status(503, "too many replicas are connected", UNREADY_RETRY, CLOSE)
            )
            return
        self._wakers.add(news)
        telling = asyncio.ensure_future(self._tell(listener, news, send, given))
        gone = asyncio.ensure_future(exchange.disconnected())
        try:
            await asyncio.wait((telling, gone), return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
        finally:
            for task in (telling, gone):
                task.cancel()
            await asyncio.gather(telling, gone, return_exceptions=True)
            self._wakers.discard(news)
            self._committed.leave(listener)

    async def _tell(self, listener: CommitListener, news: asyncio.Event, send: Send, given: bytes) -> None:
        """Send committed frames until the replica falls behind, stops reading, or may no longer listen."""
        fields = [(b"content-type", b"application/octet-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        clock = asyncio.get_running_loop().time
        looked_at, is_due = clock(), True
        while not self._stopping.is_set() and not listener.is_overrun:
            messages = listener.take()
            if listener.is_overrun:
                break
            if clock() - looked_at >= ALIVE_S:
                looked_at = clock()
                if not self._secret.is_current(given):  # it was renewed: the replica reconnects with the new one
                    break
            try:
                for body in _pieces(messages) if messages or is_due else ():
                    async with asyncio.timeout(TAKEN_S):
                        await send({"type": "http.response.body", "body": body, "more_body": True})
            except TimeoutError:
                break
            is_due = False
            if messages:
                continue  # more may wait
            try:
                async with asyncio.timeout(ALIVE_S):
                    await news.wait()
            except TimeoutError:
                is_due = True
            news.clear()
        self._committed.leave(listener)  # the answer ends when the peer reads this, which may be late
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _pieces(messages: Sequence[bytes]) -> Iterator[bytes]:
    """The body parts to send: large messages in pieces, to copy little; a heartbeat if there are no messages."""
    if len(messages) == 1 and len(messages[0]) > TAKEN_BYTES_MAX:
        for begin in range(0, len(messages[0]), TAKEN_BYTES_MAX):
            yield messages[0][begin : begin + TAKEN_BYTES_MAX]
    else:
        yield b"".join(messages) or ALIVE
