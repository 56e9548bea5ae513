"""What a webhook's answer may cost: bytes and interim answers until its body, and sockets of all webhooks together.

aiohttp bounds neither: an endpoint that answers `100 Continue` without end keeps it reading, and the event loop with
it, and no time-out comes to pass. Its connection and its connector are subclassed here, on the inside: hence the upper
bound in pyproject.toml.
"""

from __future__ import annotations

import asyncio
import resource
from functools import partial
from typing import Any

import aiohttp
from aiohttp import client_proto

HEAD_BYTES_MAX = 16 * 1024
"""Of an answer until its body begins, interim answers included."""
INTERIM_MAX = 4
"""Interim answers (1xx) to one request."""
FILES_SHARE = 4
"""Webhooks have one in so many of the files that the process may open."""
FILES_AT_LEAST = 32
_UNLIMITED = 1024 * 1024


class AnswerTooLong(aiohttp.ClientError):
    """The endpoint sends more than an answer may have."""


class Sockets:
    """How many sockets webhooks have, of those that they may have."""

    def __init__(self, allowed: int | None = None) -> None:
        """`allowed` is, where it is not given, a part of what the process may have."""
        self.allowed = _share() if allowed is None else allowed
        self.open = 0
        self._calls = asyncio.Semaphore(max(1, self.allowed // 2))

    @property
    def calls(self) -> asyncio.Semaphore:
        """To be held during a call: half of the sockets are for calls. Who waits for it is served in order."""
        return self._calls

    @property
    def are_many(self) -> bool:
        """Whether a connection whose call is over is to be closed: half of the sockets are for those that are kept."""
        return self.open > self.allowed // 2


class Connector(aiohttp.TCPConnector):
    """Connections whose answers are bounded, counted in `sockets`."""

    def __init__(self, sockets: Sockets, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(_Connection, sockets, loop=self._loop)  # type: ignore[assignment]


class _Connection(client_proto.ResponseHandler):
    """One connection: it ends when an answer is too long, or comes unasked."""

    def __init__(self, sockets: Sockets, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._sockets = sockets
        self._head_bytes = self._interim = 0
        """Of the answer that is awaited."""
        self._is_awaited = self._is_over = False
        """Whether a request was sent, and the head of its answer has not come; and whether no more is listened to."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._sockets.open += 1
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """See asyncio.Protocol."""
        self._sockets.open -= 1
        super().connection_lost(exc)

    @property
    def should_close(self) -> bool:
        """Whether it is not to be kept for another call."""
        return super().should_close or self._sockets.are_many

    def set_response_params(self, **options: Any) -> None:
        """A request begins."""
        self._head_bytes = self._interim = 0
        self._is_awaited = True
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. No more is parsed at once than an answer may have before its body."""
        while data and self._is_awaited and not self._is_over:
            left = HEAD_BYTES_MAX - self._head_bytes
            if not left:
                self._end(f"more than {HEAD_BYTES_MAX} bytes before the body of the answer")
                return
            head, data = data[:left], data[left:]
            self._head_bytes += len(head)
            super().data_received(head)
        if data and not self._is_over:
            super().data_received(data)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """The head of an answer was read."""
        if self._is_over:
            return
        if not self._is_awaited:
            self._end("an answer to no request")
            return
        if 100 <= data[0].code < 200:
            self._interim += 1
            if self._interim > INTERIM_MAX:
                self._end(f"more than {INTERIM_MAX} interim answers")
                return
        else:
            self._is_awaited = False
        super().feed_data(data, size)

    def _end(self, problem: str) -> None:
        """Whoever waits for the answer is told; the socket is closed at once, whatever is still to be read."""
        self._is_over = True
        self.set_exception(AnswerTooLong(problem))
        if self.transport is not None:
            self.transport.abort()


def _share() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(FILES_AT_LEAST, (_UNLIMITED if files == resource.RLIM_INFINITY else files) // FILES_SHARE)
