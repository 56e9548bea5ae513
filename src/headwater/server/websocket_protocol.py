"""uvicorn's WebSocket protocol, within bounds: message size, and how long a peer may be silent.

What an application holds for a connection is bounded by the application; what waits here is one piece of received data.
"""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MESSAGE_BYTES_MAX = 8 * 2**20 + 4096
"""The largest message of any front end, and what may be around it."""
PING_INTERVAL_S = 20.0
PING_TIMEOUT_S = 20.0
"""A peer that vanished, or does not take what it is sent, is cut off after both."""

CLOSE_NOT_UTF8 = 1007
MESSAGES_WAITING_MAX = 16
"""For the application; after these, reading stops until it has taken them."""


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection, dropped when its peer does not answer a ping in time."""

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

    def keepalive_timeout(self) -> None:
        """See WebSocketsSansIOProtocol, which would wait until the peer has taken all that is still to be sent."""
        super().keepalive_timeout()
        self.transport.abort()
