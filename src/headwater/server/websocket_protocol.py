"""uvicorn's WebSocket protocol, within bounds: message size, and how long a peer may be silent.

What an application holds for a connection is bounded by the application; what waits here is one piece of received data.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ..core.slices import Slices
from .opened import opened_now

MESSAGE_BYTES_MAX = 8 * 2**20 + 4096
"""The largest message of any front end, and what may be around it."""
PING_INTERVAL_S = 20.0
PING_TIMEOUT_S = 20.0
"""A peer that vanished, or does not take what it is sent, is cut off after both."""

LINGER_S = 2.0
"""How long a peer that broke the protocol may take to read why, while what it still sends is thrown away."""

CLOSE_NOT_UTF8 = 1007
MESSAGES_WAITING_MAX = 16
"""For the application; after these, reading stops until it has taken them."""

PIECE_BYTES = 4096
"""Of received data that is looked at in one step: hundreds of the smallest frames, each of which takes some µs."""


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection, dropped when its peer does not answer a ping in time.

    Data that takes long, as that of many small frames does, is looked at in slices of the loop's time.
    """

    protocol_name = "websocket"
    """What management calls it."""
    opened_at = 0
    """When it was made, in ms since 1970."""
    tls: str | None = None
    """The version of TLS, if it is used."""
    is_answering = True
    """As of a request: it lasts as long as the connection."""
    _unread = b""
    """Received data for later slices. Nothing more is read meanwhile."""
    _rest: asyncio.Task[None] | None = None
    _is_lingering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self.opened_at, self.tls = opened_now(transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._is_lingering:
            return
        slices, is_later = Slices(), bool(self._unread)
        self._unread += data
        while self._unread and not is_later and not self._is_lingering:
            self._look_at_piece()
            is_later = slices.is_over
        if self._unread and not self._is_lingering:
            self.transport.pause_reading()
            if self._rest is None:
                self._rest = self.loop.create_task(self._look_at_rest())

    async def send(self, message: Any) -> None:
        """See WebSocketsSansIOProtocol, which would log an error for each WebSocket that is refused."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    async def receive(self) -> Any:
        """See WebSocketsSansIOProtocol, which would read on whatever is unread."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            if not self._unread:
                self.transport.resume_reading()
        return message

    def _look_at_piece(self) -> None:
        piece, self._unread = self._unread[:PIECE_BYTES], self._unread[PIECE_BYTES:]
        super().data_received(piece)

    async def _look_at_rest(self) -> None:
        await asyncio.sleep(0)  # the slice of what was received is used up
        slices = Slices()
        try:
            while self._unread and not self.transport.is_closing() and not self._is_lingering:
                await slices.pause()
                self._look_at_piece()
        except BaseException:
            self.transport.abort()  # as the loop does where data_received fails
            raise
        finally:
            self._rest, self._unread = None, b""
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def send_receive_event_to_app(self) -> None:
        """See WebSocketsSansIOProtocol, which stops reading after each message, and fills the log with bad UTF-8."""
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.close_sent:
            return
        if self.curr_msg_data_type == "text":
            try:
                self.queue.put_nowait({"type": "websocket.receive", "text": data.decode()})
            except UnicodeDecodeError:
                self.conn.send_close(CLOSE_NOT_UTF8)
                self.handle_parser_exception()
                return
        else:
            self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
        if not self.read_paused and self.queue.qsize() >= MESSAGES_WAITING_MAX:
            self.read_paused = True
            self.transport.pause_reading()

    def handle_parser_exception(self) -> None:
        """See WebSocketsSansIOProtocol, which would close with data unread: the system resets such a connection, and
        the peer never gets to know why (1009 for a message that is too long, 1007, 1002).
        """
        assert self.conn.close_sent is not None
        close = self.conn.close_sent
        self.queue.put_nowait({"type": "websocket.disconnect", "code": close.code, "reason": close.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = self._is_lingering = True
        self._unread = b""
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.read_paused = False
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.abort)

    def keepalive_timeout(self) -> None:
        """See WebSocketsSansIOProtocol, which would wait until the peer has taken all that is still to be sent."""
        super().keepalive_timeout()
        self.transport.abort()
