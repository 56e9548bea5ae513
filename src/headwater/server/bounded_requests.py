"""What one peer may make the server hold and wait for: the size of a head, and the time that a request takes to come.

uvicorn bounds neither, so that a peer that has not even said who it is could fill the memory with one endless header
field, or take all connections by never finishing a request. Bodies are bounded in size where they are read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from .client_certificates import extension_of
from .joined_writes import JoiningHttpProtocol

HEAD_BYTES_MAX = 256 * 1024
"""Of what arrives after the first piece of a head, and so to within a piece (at most as much again)."""
HEAD_S = 30.0
"""How long a head may take, from its first byte; for the first one, from when the connection was made."""
BODY_PAUSE_S = 60.0
"""How long a body may pause in its middle."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b"
)
_TOO_LARGE_DETAIL = b"The request line and the header fields are over %d bytes." % HEAD_BYTES_MAX


class BoundedHttpProtocol(JoiningHttpProtocol):
    """One connection, closed when its peer oversteps."""

    _in_head = True
    _in_body = False
    _began = False
    """Whether a request began in the piece of data that is looked at."""
    _head_bytes = 0
    _patience: asyncio.TimerHandle | None = None
    _extensions: dict[str, Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._extensions = extension_of(transport.get_extra_info("peercert"))
        self._wait(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._wait(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._began = False
        super().data_received(data)
        if self._in_head:
            self._head_bytes = 0 if self._began else self._head_bytes + len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse_head()
            elif self._began:
                self._wait(HEAD_S)
        elif self._in_body:
            self._wait(BODY_PAUSE_S)
        elif self._patience is not None:
            self._wait(None)

    def on_message_begin(self) -> None:
        """See httptools."""
        self._in_head = self._began = True
        super().on_message_begin()
        if self._extensions is not None:
            self.scope["extensions"] = self._extensions

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._in_head, self._in_body = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """See httptools."""
        self._in_body = False
        super().on_message_complete()

    @property
    def is_answering(self) -> bool:
        """Whether a request was taken that is not fully answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, seconds: float | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = None if seconds is None else self.loop.call_later(seconds, self._lose_patience)

    def _lose_patience(self) -> None:
        self._patience = None
        if self._in_body and self.flow.read_paused:
            self._wait(BODY_PAUSE_S)  # it is us who do not take it
        else:
            self.transport.close()

    def _refuse_head(self) -> None:
        if not self.is_answering:
            self.transport.write(_TOO_LARGE % (len(_TOO_LARGE_DETAIL), _TOO_LARGE_DETAIL))
        self.transport.close()
