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


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection, dropped when its peer does not answer a ping in time."""

    def send_receive_event_to_app(self) -> None:
        """See WebSocketsSansIOProtocol, which would fill the log with what any peer can send."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(CLOSE_NOT_UTF8)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        """See WebSocketsSansIOProtocol, which would wait until the peer has taken all that is still to be sent."""
        super().keepalive_timeout()
        self.transport.abort()
