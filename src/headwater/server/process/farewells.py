"""Accepted connections that are not opened. Each gets its refusal, and is closed after the peer had time to read it."""

from __future__ import annotations

import asyncio
import contextlib
import socket

TOLD_MAX = 512
"""The maximum number of concurrent refusals. Above this, the first connection, which already has its refusal, is
closed.
"""
LINGER_S = 2.0
"""The maximum time that each stays open."""
_PIECE_BYTES = 64 * 1024


class Farewells:
    """The refusals of one listener. Data from the peer is read and discarded: the system resets a connection closed
    with unread data, and its refusal might never be read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told: dict[socket.socket, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._told)

    def tell(self, connection: socket.socket, words: bytes) -> None:
        """Send this text, if any, and close the connection, now or later."""
        connection.setblocking(False)
        try:
            with contextlib.suppress(BlockingIOError):
                connection.recv(_PIECE_BYTES)
            if not words:
                connection.close()
                return
            connection.send(words)
            connection.shutdown(socket.SHUT_WR)
        except OSError:  # gone
            connection.close()
            return
        self._told[connection] = self._loop.call_later(LINGER_S, self._close, connection)
        self._loop.add_reader(connection, self._throw_away, connection)
        if len(self._told) > TOLD_MAX:
            self._close(next(iter(self._told)))

    def close(self) -> None:
        """Close them all."""
        for connection in tuple(self._told):
            self._close(connection)

    def _throw_away(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(_PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        self._told.pop(connection).cancel()
        self._loop.remove_reader(connection)
        connection.close()
