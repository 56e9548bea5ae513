"""What one peer may make the server hold and wait for: the size of a head, and the time that a request takes to come.

How many peers there are is bounded by `admission`. uvicorn bounds neither, so that a peer that has not even said who it
is could fill the memory with one endless header field, or take all connections by never finishing a request. Bodies are
bounded in size where they are read.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools

from .admission import Admission, Verdict
from .client_certificates import extension_of
from .joined_writes import JoiningHttpProtocol

HEAD_BYTES_MAX = 256 * 1024
"""Of what arrives after the first piece of a head, and so to within a piece (at most as much again)."""
HEAD_S = 30.0
"""How long a head may take, from its first byte; for the first one, from when the connection was made."""
BODY_PAUSE_S = 60.0
"""How long a piece of a body may take, and so how long a body may pause in its middle."""
BODY_PIECE_BYTES = 16 * 1024
"""So slow a body is, by the pause above, that it is given up: 273 bytes per second."""
SURPLUS_S = 5.0
"""How long a connection of which there are too many may take until its request was answered."""

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
    _body_bytes = 0
    """Of the piece of a body that is waited for."""
    _is_surplus = False

    def __init__(self, *arguments: Any, admission: Admission, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._admission = admission

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        verdict = self._admission.judge(len(self.connections), peer)
        if verdict is Verdict.DROPPED:
            self.connections.discard(self)
            transport.abort()
            return
        self._extensions = extension_of(transport.get_extra_info("peercert"))
        if verdict is Verdict.SURPLUS:
            self._is_surplus = True
            self.app = self._admission.turning_away(peer)
            self._patience = self.loop.call_later(SURPLUS_S, transport.abort)
        else:
            self._wait(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._patience is not None:
            self._patience.cancel()
        if self._is_surplus:
            self._admission.forget_surplus()
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
            self._body_bytes += len(data)
            if self._patience is None or self._body_bytes >= BODY_PIECE_BYTES:
                self._body_bytes = 0
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
        if not self.url.startswith(b"/"):
            self._take_absolute_form()
        self._in_head, self._in_body = False, True
        self._body_bytes = 0
        self._wait(None)
        super().on_headers_complete()
        if self._is_surplus and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """See httptools."""
        self._in_body = False
        super().on_message_complete()

    def _take_absolute_form(self) -> None:
        """A target with a host: that host counts, and what the Host field says does not (RFC 9112, 3.2.2)."""
        url = httptools.parse_url(self.url)
        if url.host is None:
            return
        name = b"[%b]" % url.host if b":" in url.host else url.host
        host = name if url.port is None else b"%b:%d" % (name, url.port)
        self.headers[:] = [(name, host if name == b"host" else value) for name, value in self.headers]
        if self.parser.get_http_version() == "1.0" and not any(name == b"host" for name, _ in self.headers):
            self.headers.append((b"host", host))
        self.url = (url.path or b"/") + (b"?" + url.query if url.query else b"")

    @property
    def is_answering(self) -> bool:
        """Whether a request was taken that is not fully answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _should_upgrade(self) -> bool:
        return not self._is_surplus and super()._should_upgrade()

    def _wait(self, seconds: float | None) -> None:
        if self._is_surplus:
            return  # it has SURPLUS_S for all that it has to say
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
