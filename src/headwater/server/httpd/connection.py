"""One HTTP connection: turns received bytes into requests, and runs their cycles one after the other.

It limits the memory and the time that one peer can use: the size of a head, the time for a request to arrive,
and how much received data is examined in one step. `admission` bounds the number of connections; bodies are bounded
where they are read.

A request that arrived whole, with a known head, starts at once without a parser. Any other goes through the
connection's parser in pieces: many small chunks take several slices of the loop's time. Nothing is examined or read
behind an unanswered request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import httptools

from ...core.loop.deadline import Deadline
from ...core.loop.slices import Slices
from ...http.asgi import MEMORY, WHOLE
from .admission import Verdict
from .cycle import HttpCycle
from .heads import WHOLE_BYTES_MAX, Field, Head, in_origin_form, whole_head
from .peer import scope_of
from .runner import Runner
from .server_state import PeerConnection, ServerState
from .upgrades import UpgradeIgnoringParser, upgrade_of
from .websocket import WebSocketProtocol

PIECE_BYTES = 16 * 1024
"""How much received data the parser examines in one step. This can be thousands of chunks or hundreds of requests,
which take some µs each.
"""
HEAD_BYTES_MAX = 32 * 1024
"""The limit of a head after its first piece, to within a piece (48 KiB at most in all); and, within a body, of a run of
bytes that are not body: trailers, and chunk extensions. A connection before its login holds 64 KiB in all, with one
read of `STRANGER_READ_BYTES`.
"""
FIELDS_MAX = 256
"""The maximum number of header fields. Each takes about 150 bytes in addition to its own size."""
HEAD_S = 30.0
"""The time limit for a head, from its first byte; for the first head, from when the connection opened."""
BODY_PAUSE_S = 60.0
"""The time limit for a piece of a body, and therefore the longest pause within a body."""
BODY_PIECE_BYTES = 16 * 1024
"""Together with the limit above, this determines the slowest body that is accepted: 273 bytes per second."""
KEEP_ALIVE_S = 75
"""How long an idle connection is kept. Common client pools keep it for less time, so that the client closes it."""
SURPLUS_S = 10.0
"""How long a surplus connection may take until its request is answered."""

_END = b"\r\n\r\n"
_REFUSAL = (
    b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
)
_TOO_LARGE = b"431 Request Header Fields Too Large"
_TOO_LARGE_DETAIL = b"The request line and header fields exceed %d bytes or %d fields." % (
    HEAD_BYTES_MAX, FIELDS_MAX
)  # fmt: skip
_TOO_MUCH_AROUND_DETAIL = b"The trailer fields or a chunk header are over %d bytes." % HEAD_BYTES_MAX
_NO_ROOM = b"503 Service Unavailable"
_NO_ROOM_DETAIL = b"There is not enough memory for more pipelined requests."
_NO_REQUEST = b"400 Bad Request"
_NO_REQUEST_DETAIL = b"Invalid HTTP request received."


class HttpConnection(PeerConnection):
    """One connection, closed when its peer exceeds a bound. A WebSocket that begins on it takes it over."""

    protocol_name = "http"
    """Its name in management."""

    def __init__(self, state: ServerState) -> None:
        """A connection of that server, on the running loop."""
        super().__init__(state)
        self._application, self.date = state.application, state.date
        self._parser = UpgradeIgnoringParser(self)
        self.scope_base: dict[str, Any] = {}
        """The scope fields shared by all its requests."""
        self._surplus: asyncio.TimerHandle | None = None
        """Ends a surplus connection; None if it is not one."""

        self._cycle: HttpCycle | None = None
        """The cycle of the last request that began."""
        self.is_answering = False
        """Whether a request is not fully answered."""
        self.pipeline: deque[HttpCycle] = deque()
        """Parsed requests that wait for the previous response."""
        self._incoming: HttpCycle | None = None
        """The cycle of the request whose body is arriving."""

        self._rest: asyncio.Task[None] | None = None
        self._is_looking = self._is_due = self._is_broken = self._is_leaving = False
        """Whether data is being examined, or will be in the next turn; whether it is no longer HTTP; whether nothing
        more is answered.
        """
        self._is_reading = True
        self._holds_body = False

        self._in_head = self._in_body = self._began = False
        """Whether the parser is in a head, or in a body; and whether a request began in the current piece."""
        self._head_bytes = self._body_bytes = self._around_bytes = 0
        """Sizes: the head after its first piece; the current piece of a body; data since then that is not body."""
        self._refusal = _NO_REQUEST, _NO_REQUEST_DETAIL
        """The refusal to send if the data is not HTTP."""
        self._target = b""
        self._fields: list[Field] = []

        self._patience = Deadline(self.loop, self._lose_patience)
        """When the peer must have sent more."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._state.connections.add(self)
        self.scope_base = {**scope_of(transport), MEMORY: self.share, WHOLE: True}
        self.client = self.scope_base["client"]
        peer = self.client[0] if self.client else ""
        verdict = self._state.admission.judge(len(self._state.connections), peer)
        if verdict is Verdict.DROPPED:
            self._state.remove(self)
            self.write(self._state.admission.full)
            self._state.lingering.add(transport)
            return
        if verdict is Verdict.SURPLUS:
            self._application = self._state.admission.turning_away(peer)
            self._surplus = self.loop.call_later(SURPLUS_S, transport.abort)
        else:
            self._patience.set(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol. Frees its bytes and breaks its cycles: a collection may be half an hour away."""
        self._state.remove(self)
        self._patience.end()
        if self._surplus is not None:
            self._surplus.cancel()
            self._state.admission.forget_surplus(self.client[0] if self.client else "")
        self._unread, self._read_to = b"", 0
        self._has_room_for_unread()
        self.pipeline.clear()
        self._forget_parser()
        if self._cycle is not None:
            self._cycle.disconnect()
        self._cycle = self._incoming = None
        self.is_answering = False
        self.resume_writing()
        self.share.close()

    def data_received(self, data: bytes) -> None:
        is_between, is_answering = not (self._in_head or self._in_body), self.is_answering
        if is_between and is_answering and not self._unread and not data.strip(b"\r\n"):
            return  # an empty line after a request is ignored (RFC 9112, 2.2)
        self._unread = self._unread[self._read_to :] + data if self._unread else data
        self._read_to = 0
        if self._rest is None and not self._is_due:
            is_free = is_between and not is_answering and not self.pipeline
            if not (is_free and self._take_whole()) or self._unread:  # usually it is exactly one request
                self._look_on()

    def shutdown(self) -> None:
        """End after the previous requests are answered."""
        if self._cycle is not None and self.is_answering:
            self._cycle.keeps_alive = False
        else:
            self.transport.close()

    # for the cycles

    def write(self, data: bytes) -> None:
        """Send it, unless the connection is closing."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def write_parts(self, parts: list[bytes]) -> None:
        """Send the parts one after the other, without a copy, unless the connection is closing."""
        if not self.transport.is_closing():
            self.transport.writelines(parts)

    def close(self) -> None:
        """Close after what was sent."""
        self.transport.close()

    def hold_body(self, holds: bool) -> None:
        """Whether the application has received enough of a body for now."""
        if holds != self._holds_body:
            self._holds_body = holds
            self._heed()

    def answered(self, end: bytes, keeps_alive: bool) -> None:
        """Send the end of the response to the running request. Then start the next one, become idle, or close."""
        transport = self.transport
        if end and not transport.is_closing():
            transport.write(end)
        self._holds_body = self.is_answering = False
        if not keeps_alive:
            self._leave()
        if self._is_leaving or transport.is_closing():
            self._unread, self._read_to = b"", 0
            return
        if self._is_broken and not self.pipeline:
            self._refuse(*self._refusal)
            return
        self._patience.set(BODY_PAUSE_S if self._in_body else KEEP_ALIVE_S)
        if not self._is_looking and (self.pipeline or self._unread or not self._is_reading):
            self._look_soon()

    # received data

    @property
    def _is_between(self) -> bool:
        """Whether the parser is between two requests."""
        return not self._in_head and not self._in_body

    @property
    def _may_look(self) -> bool:
        """Whether there is unread data, and no request must be answered before it."""
        if not self._unread or self.pipeline or self._is_broken or self._is_leaving or self.transport.is_closing():
            return False
        return not (self._is_between and self.is_answering)

    def _look_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self.loop.call_soon(self._look_when_due)

    def _look_when_due(self) -> None:
        self._is_due = False
        if self._rest is None:
            self._look_on()

    def _look_on(self) -> None:
        """Examine unread data for a slice of the loop's time, and arrange for the rest."""
        slices = Slices()
        self._is_looking = True
        try:
            self._begin_next()
            while self._may_look:
                self._look_at_some()
                if slices.is_over:
                    break
        finally:
            self._is_looking = False
        self._look_on_later()

    def _look_on_later(self) -> None:
        """Hold unread data as long as needed, or continue reading."""
        if self.transport.is_closing():
            self._unread, self._read_to = b"", 0  # it was the last response, or a refusal
            self._has_room_for_unread()
            return
        unread = 0 if self._in_body else len(self._unread)  # memory for a body is reserved before it is read
        if unread != self._unread_taken and not self._has_room_for_unread(unread):
            self._is_broken, self._refusal = True, (_NO_ROOM, _NO_ROOM_DETAIL)
            if not (self.is_answering or self.pipeline):
                self._refuse(*self._refusal)
                return
        self._heed()
        if self.pipeline and not self.is_answering:
            self._look_soon()
        elif self._rest is None and self._may_look:
            self._rest = self.loop.create_task(self._look_at_rest())

    async def _look_at_rest(self) -> None:
        await asyncio.sleep(0)  # the slice for received data is used up
        slices = Slices()
        try:
            while self._may_look:
                self._look_at_some()
                await slices.pause()
        except BaseException:
            self.transport.abort()  # as the loop does where data_received fails
            raise
        finally:
            self._rest = None
        self._look_on_later()

    def _look_at_some(self) -> None:
        """Examine one whole request, or one piece of anything else."""
        if self._is_between and self._take_whole():
            return
        end = self._read_to + PIECE_BYTES
        if not self._in_body or self.share.owner is None:  # one head at a time: a queue of requests would be held
            end = self._unread.find(_END, self._read_to, end) + len(_END)
            end = end if end >= len(_END) else self._read_to + PIECE_BYTES
        piece = memoryview(self._unread)[self._read_to : end]
        self._advance(len(piece))
        self._feed(piece)

    def _take_whole(self) -> bool:
        """Start the next request, if it arrived whole and its head is known."""
        data, start = self._unread, self._read_to
        head_end = data.find(_END, start, start + WHOLE_BYTES_MAX)
        if head_end < 0:
            return False
        body = head_end + len(_END)
        head = whole_head(data[start:body])
        if head is None or len(data) - body < head.length:
            return False
        end = body + head.length
        if end == len(data):
            self._unread, self._read_to = b"", 0
        else:
            self._read_to = end
        cycle = HttpCycle(
            self,
            head.scope | self.scope_base,
            self._surplus is None,
            head.expects_continue,
            body=data[body:end],
            has_more=False,
            has_news=True,
        )
        self._begin(cycle)
        return True

    def _feed(self, piece: memoryview) -> None:
        self._began = False
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            if self._becomes_websocket:
                self._become_websocket()
            else:
                self._end_behind_connect()
            return
        except httptools.HttpParserError:
            self._break()
            return
        self._begin_next()
        self._watch_over(len(piece))

    def _end_behind_connect(self) -> None:
        """Data after a CONNECT is for its tunnel, which is not offered: the CONNECT is answered as the last request."""
        self._is_broken = True
        self._unread, self._read_to = b"", 0
        self._begin_next()

    def _break(self) -> None:
        """The data is not HTTP: answer the requests before it, then refuse it."""
        self._is_broken = True
        self._unread, self._read_to = b"", 0
        broken = self._incoming
        if broken is not None and broken is not self._cycle:
            self.pipeline.pop()
        self._begin_next()
        if broken is not None and broken is self._cycle and broken.is_started:
            self.transport.close()
        elif broken is self._cycle or not (self.is_answering or self.pipeline):
            self._refuse(*self._refusal)

    def _watch_over(self, size: int) -> None:
        """Bound the time for the rest of a partial request."""
        if self._in_head:
            self._head_bytes = 0 if self._began else self._head_bytes + size
            if self._head_bytes > HEAD_BYTES_MAX:
                if self.is_answering:
                    self.transport.close()
                else:
                    self._refuse(_TOO_LARGE, _TOO_LARGE_DETAIL)
            elif self._began:
                self._patience.set(HEAD_S)
        elif self._in_body:
            self._body_bytes += size
            self._around_bytes += size
            if self._around_bytes > HEAD_BYTES_MAX:
                self._refusal = _TOO_LARGE, _TOO_MUCH_AROUND_DETAIL
                self._break()
            elif not self._patience.is_set or self._body_bytes >= BODY_PIECE_BYTES:
                self._body_bytes = 0
                self._patience.set(BODY_PAUSE_S)
        elif self.is_answering:
            self._patience.clear()

    def _begin_next(self) -> None:
        if self.pipeline and not self.is_answering and not self.transport.is_closing():
            self._begin(self.pipeline.popleft())

    def _begin(self, cycle: HttpCycle) -> None:
        self._cycle, self.scope, self.is_answering = cycle, cycle.scope, True
        if self._in_head:
            self._patience.clear()
        idle = self._state.idle
        (idle.pop() if idle else Runner(self._state, self.loop)).begin(cycle, self._application)

    # httptools, for requests that did not arrive whole

    def on_message_begin(self) -> None:
        """See httptools."""
        self._in_head = self._began = True
        self._target, self._fields = b"", []

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools. Fields after a body (trailers) are ignored."""
        if self._in_head:
            if len(self._fields) == FIELDS_MAX:
                self._refusal = _TOO_LARGE, _TOO_LARGE_DETAIL
                raise ValueError("too many header fields")
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """See httptools."""
        if self.is_upgrade_ignored:
            return
        parser = self._parser
        version = parser.get_http_version()
        self._target, self._fields = in_origin_form(self._target, self._fields, version)
        self._in_head, self._in_body = False, True
        self._body_bytes = self._around_bytes = 0
        self._patience.clear()
        if parser.should_upgrade() and self._becomes_websocket:
            return
        keeps_alive = parser.should_keep_alive() and not parser.should_upgrade()  # at this point, it is a CONNECT
        head = Head(parser.get_method(), self._target, version, self._fields, keeps_alive=keeps_alive)
        keeps_alive = head.keeps_alive and self._surplus is None
        self._incoming = HttpCycle(self, head.scope | self.scope_base, keeps_alive, head.expects_continue)
        self.pipeline.append(self._incoming)

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._around_bytes = 0
        if self._incoming is not None and not self._incoming.is_complete:
            self._incoming.add(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        if self.is_upgrade_ignored:
            return
        self._in_body = False
        if self._incoming is not None:
            self._incoming.end_body()
            if self._incoming.is_complete:  # it was answered earlier, so the connection becomes idle only now
                self._patience.set(KEEP_ALIVE_S)
            self._incoming = None

    @property
    def is_upgrade_ignored(self) -> bool:
        """Whether the head just read will be parsed again without its upgrade, so nothing is done yet."""
        parser = self._parser
        return parser.should_upgrade() and parser.get_method() != b"CONNECT" and not self._becomes_websocket

    @property
    def _becomes_websocket(self) -> bool:
        is_free = self._surplus is None and not self.pipeline and not self.is_answering
        return is_free and upgrade_of(self._fields) == b"websocket"

    @property
    def head(self) -> tuple[bytes, list[Field]]:
        """The target and the fields of the head just read."""
        return self._target, self._fields

    def _become_websocket(self) -> None:
        """Hand the connection over. Data after the request was sent too early (RFC 6455, 4.1) and is ignored."""
        self._unread, self._read_to = b"", 0
        self._patience.end()
        self._cycle, self.is_answering = None, False
        self._has_room_for_unread()
        websocket = WebSocketProtocol(self._state, self.share)
        websocket.connection_made(self.transport)
        if self.is_full:
            self.resume_writing()
            websocket.pause_writing()
        self._state.remove(self)
        websocket.begin(self._parser.get_method(), self._target, self._fields, self.scope_base)
        self._forget_parser()
        self._give_to(websocket)

    def _forget_parser(self) -> None:
        """Drop the parser. It refers back to this object, so part of a head would stay in memory until a garbage
        collection.
        """
        del self._parser
        self._target, self._fields = b"", []

    # held data and deadlines

    def _heed(self) -> None:
        """Continue reading, or pause, depending on how much data is held."""
        reads = not self._unread and not self._holds_body
        if reads != self._is_reading and not self.transport.is_closing():
            self._is_reading = reads
            if reads:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _lose_patience(self) -> None:
        if self.is_answering and self._is_between:
            return  # it is the peer that waits; the answer's end sets the next deadline
        if self._unread or not self._is_reading:
            self._patience.set(BODY_PAUSE_S)  # we caused the pause, not the peer
        else:
            self.transport.close()

    def _refuse(self, status: bytes, detail: bytes) -> None:
        """Send an error after all earlier responses, and end."""
        self.write(_REFUSAL % (status, len(detail), detail))
        self._linger_soon()

    def _leave(self) -> None:
        """Close after everything has been sent. If the peer may still send, wait until it could read that."""
        if self._in_head or self._in_body or self._unread or self.pipeline:
            self._linger_soon()
        else:
            self.transport.close()

    def _linger_soon(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            self.pipeline.clear()
            self.loop.call_soon(self._hand_over)
