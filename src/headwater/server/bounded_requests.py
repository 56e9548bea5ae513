"""What one peer may make the server hold and wait for: the size of a head, and the time that a request takes to come.

How many peers there are is bounded by `admission`. uvicorn bounds neither, so that a peer that has not even said who it
is could fill the memory with one endless header field, or take all connections by never finishing a request. Bodies are
bounded in size where they are read. Data is looked at in pieces, as if it had come so: many small chunks take several
slices of the loop's time, and behind requests that wait for their turn nothing is looked at.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl

from ..core.slices import Slices
from .admission import Admission, Verdict
from .client_certificates import extension_of
from .joined_writes import JoiningHttpProtocol
from .opened import opened_now

PIECE_BYTES = 16 * 1024
"""Of received data that is looked at in one step: thousands of chunks, or hundreds of requests, each of which takes
some µs."""
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
_NOTHING = memoryview(b"")


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
    protocol_name = "http"
    """What management calls it."""
    opened_at = 0
    """When it was made, in ms since 1970."""
    tls: str | None = None
    """The version of TLS, if it is used."""
    _unread = _NOTHING
    """Received data for later. Nothing more is read meanwhile."""
    _rest: asyncio.Task[None] | None = None
    flow: _Flow

    def __init__(self, *arguments: Any, admission: Admission, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._admission = admission

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self.opened_at, self.tls = opened_now(transport)
        self.flow = _Flow(self.transport)
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
        self._unread = _NOTHING
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if len(data) <= PIECE_BYTES and not self._unread and not self.pipeline:
            self._look_at(data)
            return
        self._unread = memoryview(b"".join((self._unread, data)) if self._unread else data)
        if self._rest is None:
            slices = Slices()
            while self._may_look and not slices.is_over:
                self._look_at_piece()
            self._look_on_later()

    def on_response_complete(self) -> None:
        """See HttpToolsProtocol: the next request is begun, or it is time for what is unread."""
        super().on_response_complete()
        if self._unread:
            self._look_on_later()

    def handle_websocket_upgrade(self) -> None:
        """See HttpToolsProtocol. What came behind the request was sent too early (RFC 6455, 4.1), and is not for us."""
        self._unread = _NOTHING
        super().handle_websocket_upgrade()

    @property
    def _may_look(self) -> bool:
        """Whether there is something unread, and no request waits whose turn is before it."""
        return bool(self._unread) and not self.pipeline and not self.transport.is_closing()

    def _look_on_later(self) -> None:
        """Hold what is unread as long as it takes, or read on."""
        if self.transport.is_closing():
            self._unread = _NOTHING  # it was the last answer, or a refusal
            return
        self.flow.hold(bool(self._unread))
        if self._rest is None and self._may_look:
            self._rest = self.loop.create_task(self._look_at_rest())

    async def _look_at_rest(self) -> None:
        await asyncio.sleep(0)  # the slice of what was received is used up
        slices = Slices()
        try:
            while self._may_look:
                self._look_at_piece()
                await slices.pause()
        except BaseException:
            self.transport.abort()  # as the loop does where data_received fails
            raise
        finally:
            self._rest = None
        self._look_on_later()

    def _look_at_piece(self) -> None:
        piece, self._unread = self._unread[:PIECE_BYTES], self._unread[PIECE_BYTES:]
        self._look_at(piece)

    def _look_at(self, data: bytes | memoryview) -> None:
        self._began = False
        super().data_received(data)  # type: ignore[arg-type]  # the parser takes either
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
        if self._unread or self.flow.read_paused:
            self._wait(BODY_PAUSE_S)  # it is us who do not take it
        else:
            self.transport.close()

    def _refuse_head(self) -> None:
        if not self.is_answering:
            self.transport.write(_TOO_LARGE % (len(_TOO_LARGE_DETAIL), _TOO_LARGE_DETAIL))
        self.transport.close()


class _Flow(FlowControl):
    """uvicorn's, but that nothing is read as long as something that was read is held."""

    _is_held = False

    def hold(self, is_held: bool) -> None:
        """Whether something is."""
        if is_held and not self._is_held:
            self._transport.pause_reading()
        elif self._is_held and not is_held and not self.read_paused:
            self._transport.resume_reading()
        self._is_held = is_held

    def resume_reading(self) -> None:
        """See FlowControl."""
        if self._is_held:
            self.read_paused = False
        else:
            super().resume_reading()
