"""Lingering close: the peer may still send, and can read its last answer before the connection ends.

The system resets a connection that is closed with unread data, and the peer may lose the answer: the 413 to a body of
200 MB, the error with which AMQP closes. So the sending side is closed first (except with TLS, which does not support
that), and further input is read and discarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .turn_reads import READ_BYTES, TurnReads

LINGER_S = 30.0
"""How long the peer may keep sending: clients that read no answer until they have sent everything need this for 200
MB."""
LINGER_PAUSE_S = 5.0
"""How long the peer may pause meanwhile."""
UNSENT_PAUSE_S = 60.0
"""How long the peer may leave a waiting answer unread."""
LINGERING_MAX = 512
"""The maximum number of lingering connections of one server; above it, the oldest is closed at once."""
TURN_BYTES = 1024 * 1024
"""The maximum number of bytes that one turn of the loop discards, so that other tasks wait for less than a
millisecond."""
_LOOK_S = 1.0
_thrown_away = memoryview(bytearray(READ_BYTES))
"""The buffer for discarded bytes, shared by all connections."""


class LingeringConnections:
    """The lingering connections of one server."""

    def __init__(self, on_end: Callable[[], None] = lambda: None) -> None:
        """`on_end` is called whenever a connection has ended."""
        self._connections: dict[_Lingering, None] = {}
        self._reads = TurnReads(TURN_BYTES)
        self._on_end = on_end

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, transport: asyncio.Transport) -> None:
        """Close it after the peer had time to read the sent bytes. Here the connection gets its own protocol."""
        lingering = _Lingering(transport, self._reads, self._end)
        self._connections[lingering] = None
        transport.pause_reading()  # stops a read into the previous protocol's buffer
        transport.set_protocol(lingering)
        if transport.can_write_eof():
            transport.write_eof()
        transport.resume_reading()
        if len(self._connections) > LINGERING_MAX:
            next(iter(self._connections)).cut_off()

    def close(self) -> None:
        """End all of them now."""
        for lingering in tuple(self._connections):
            lingering.cut_off()

    def _end(self, lingering: _Lingering) -> None:
        self._connections.pop(lingering, None)
        self._on_end()


class _Lingering(asyncio.BufferedProtocol):
    def __init__(self, transport: asyncio.Transport, reads: TurnReads, on_lost: Callable[[_Lingering], None]) -> None:
        self._transport, self._reads, self._on_lost = transport, reads, on_lost
        self._loop = asyncio.get_running_loop()
        self._quiet_s = self._lasted_s = 0.0
        """Counts only time in which the loop could read: one interval per check, however long the loop was blocked."""
        self._unsent = 0
        self._timer = self._loop.call_later(_LOOK_S, self._look)

    def cut_off(self) -> None:
        """Close it now, whatever is still unsent."""
        self._timer.cancel()
        self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _thrown_away

    def buffer_updated(self, nbytes: int) -> None:
        self._quiet_s = 0.0
        if self._reads.are_over(nbytes):
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._on_lost(self)

    def _look(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        self._quiet_s += _LOOK_S
        self._lasted_s += _LOOK_S
        if unsent != self._unsent:
            self._unsent, self._quiet_s, self._lasted_s = unsent, 0.0, 0.0
        if self._quiet_s >= (UNSENT_PAUSE_S if unsent else LINGER_PAUSE_S):
            self._transport.close()
        elif self._lasted_s >= LINGER_S and not unsent:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(_LOOK_S, self._look)
