"""The client's end of a WebSocket that another server serves: bytes pass unchanged in both directions.

Compression, pings, close codes and limits are therefore handled by the client and that server. Each end reads only
while the other one may write. If the other end is lost between two frames, this one closes with 1012 (service restart).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from websockets.frames import Close, CloseCode, Frame, Opcode

from ...core.loop.memory import Share
from ...core.shared_bytes import FREE_BYTES
from ...http import Scope
from .server_state import PeerConnection, ServerState
from .websocket_frames import PassedFrames, cut_reason

CLOSE_S = 10.0
"""How long the last bytes may take to be sent."""


class FarEnd(Protocol):
    """The other end."""

    def write(self, data: bytes) -> None:
        """Send it."""

    def hold(self, holds: bool) -> None:
        """Whether reading must pause for now."""

    def finish(self) -> None:
        """Close once everything is sent."""


class TunnelEnd(PeerConnection):
    """A connection on which a WebSocket was opened by another server."""

    protocol_name = "websocket"
    """Its name in management."""
    is_answering = True
    """As of a request: it lasts as long as the connection."""

    def __init__(self, state: ServerState, share: Share, far: FarEnd, scope: Scope) -> None:
        """`share` and `scope` are those of the WebSocket request."""
        super().__init__(state, share)
        self._far = far
        self.scope, self.client = scope, scope["client"]
        self.ended = asyncio.Event()
        """Set when the connection is over."""
        self._sent = PassedFrames()
        self._is_holding = False
        self._cut: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._state.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._far.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._cut is not None:
            self._cut.cancel()
        self._state.remove(self)
        self._far.finish()
        self.resume_writing()
        self.share.close()
        self.ended.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._far.hold(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._far.hold(False)

    def shutdown(self) -> None:
        """End it because the server stops. The peer reconnects to another server."""
        self.close("the server is stopping")

    # calls from the other end

    def write(self, data: bytes) -> None:
        """Send it."""
        if not self.transport.is_closing():
            self._sent.see(data)
            self.transport.write(data)

    def hold(self, holds: bool) -> None:
        """Whether reading must pause for now."""
        if holds == self._is_holding or self.transport.is_closing():
            return
        self._is_holding = holds
        if holds:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def close(self, reason: str) -> None:
        """Close after everything has been sent. Include the reason if a frame may begin now."""
        if self.transport.is_closing():
            return
        if self._sent.may_close:
            goodbye = Frame(Opcode.CLOSE, Close(CloseCode.SERVICE_RESTART, cut_reason(reason)).serialize())
            self.transport.write(goodbye.serialize(mask=False))
            if self.transport.get_write_buffer_size() <= FREE_BYTES:
                self._hand_over()
                return
        self.transport.close()
        self._cut = self.loop.call_later(CLOSE_S, self.transport.abort)
