"""uvicorn's WebSocket protocol, within bounds: message size, and how long a peer may be silent.

The application bounds the messages that it holds for a connection. This module holds one piece of received data, and
the message that is still coming. That message is short until the application knows the peer, and its bytes count in the
budget of `unfinished`. A connection that is lost frees its bytes at once. The library gets one frame at a time; only
its length and kind are read here before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.protocol import State

from ..core.slices import Slices
from ..http.asgi import TRUST
from .client_certificates import extensions_of
from .opened import opened_now
from .unfinished import Unfinished

MESSAGE_BYTES_MAX = 8 * 2**20 + 4096
"""The largest message of any front end, and what may be around it."""
STRANGER_BYTES_MAX = 64 * 1024
"""The largest message of a peer that the application does not know."""
FRAGMENT_BYTES_MIN = 256
"""What each fragment of a message counts for at least, so that empty ones, which cost 4 µs each, are bounded too: a
message may come in 32,784 of them, and in 256 before the login."""
FRAGMENTS_MAX = MESSAGE_BYTES_MAX // FRAGMENT_BYTES_MIN
PING_INTERVAL_S = 20.0
PING_TIMEOUT_S = 20.0
"""A peer that vanished, or does not take what it is sent, is cut off after both."""

LINGER_S = 2.0
"""How long a peer that broke the protocol may take to read why, while what it still sends is thrown away."""

CLOSE_NOT_UTF8, CLOSE_UNWANTED, CLOSE_TOO_LARGE, CLOSE_TRY_LATER = 1007, 1008, 1009, 1013
_STRANGER = (
    f"a message before the login has at most {STRANGER_BYTES_MAX} bytes in {STRANGER_BYTES_MAX // FRAGMENT_BYTES_MIN} "
    "fragments: log in at the upgrade, or by a shorter message"
)
_FRAGMENTS = f"a message comes in at most {FRAGMENTS_MAX} fragments"
REASON_BYTES_MAX = 123
"""Of a reason for which a connection is closed (RFC 6455, 5.5)."""
MESSAGES_WAITING_MAX = 16
"""For the application; after these, reading stops until it has taken them."""

_OPCODE, _CONTROL, _MASKED, _MASK_BYTES = 0x0F, 0x08, 0x80, 4
_LENGTH_WIDTHS = {126: 2, 127: 8}
"""Bytes behind the first two of a frame that say how long its payload is (RFC 6455, 5.2)."""


def _nobody() -> bool:
    """No peer is known."""
    return False


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
    _read_to = 0
    """How much of that was looked at."""
    _head = b""
    """The first bytes of a frame, too few to know how long it is."""
    _of_frame = 0
    """What is still to come of the frame that the library reads."""
    _fragments = 0
    """In how many frames so far the message comes that the library reads."""
    _pong = b""
    """The answer to the last ping, while the peer does not read."""
    _rest: asyncio.Task[None] | None = None
    _is_lingering = False

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        unfinished: Unfinished | None = None,
    ) -> None:
        """See uvicorn.Server. `unfinished` is the budget that messages draw from while they come."""
        super().__init__(config, server_state, app_state, _loop)
        self._unfinished = unfinished or Unfinished()
        self._extensions: dict[Any, Any] = {}
        """Of the application's scope, once there is one."""
        self._is_known: Callable[[], bool] = _nobody
        """Whether the application knows the peer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self.opened_at, self.tls = opened_now(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol. Frees its bytes and breaks its cycles: a collection may be half an hour away."""
        super().connection_lost(exc)
        self._let_go()
        self._is_known = _nobody
        self.conn.parser.close()
        self.conn.parser_exc = None
        self._extensions.pop(TRUST, None)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._is_lingering:
            return
        slices, is_later = Slices(), bool(self._unread)
        self._unread = self._unread[self._read_to :] + data if is_later else self._head + data
        self._read_to, self._head = 0, b""
        while self._unread and not is_later:
            self._look_at_some()
            is_later = slices.is_over
        if self._unread and not self._is_lingering:
            self.transport.pause_reading()
            if self._rest is None:
                self._rest = self.loop.create_task(self._look_at_rest())

    def handle_connect(self, event: Any) -> None:
        """See WebSocketsSansIOProtocol."""
        super().handle_connect(event)
        if not self.close_sent:
            self._extensions = cast("dict[Any, Any]", self.scope["extensions"])
            self._extensions[TRUST] = self._trust
            self._extensions.update(extensions_of(self.transport.get_extra_info("peercert")) or {})

    def _trust(self, is_known: Callable[[], bool]) -> None:
        self._is_known = is_known

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

    def _look_at_some(self) -> None:
        """At what there is of one frame."""
        data, at = self._unread, self._read_to
        if not self.handshake_initiated:
            self._feed(len(data))  # the head of the request, which comes by itself
        elif self._of_frame:
            self._feed(self._of_frame)
        else:
            head, payload = _frame_parts(data, at)
            self._of_frame = head + payload
            if not self._of_frame:
                self._head = data[at:]
                self._advance(len(self._head))
            elif not data[at] & _CONTROL and (problem := self._too_much(data[at], payload)):
                self._end(CLOSE_TOO_LARGE, problem)
            else:
                self._feed(self._of_frame)

    def _feed(self, size: int) -> None:
        """So much of what is unread is for the library; what has not come yet, later."""
        data = self._unread[self._read_to : self._read_to + size]
        self._of_frame -= min(len(data), self._of_frame)
        self._advance(len(data))
        super().data_received(data)
        size = len(self.conn.reader.buffer) + self._frames_bytes
        if size and not self._is_lingering:
            self._unfinished.hold(self, size)
        else:
            self._unfinished.release(self)

    @property
    def _frames_bytes(self) -> int:
        """How many bytes of the message that is coming came in its earlier frames."""
        return sum(map(len, self.frames))

    def _too_much(self, first: int, payload: int) -> str:
        """Why a frame with that first byte, and so much payload, is too much for its message; empty if it is not."""
        self._fragments = 1 if first & _OPCODE else self._fragments + 1
        size = max(payload + self._frames_bytes, self._fragments * FRAGMENT_BYTES_MIN)
        if size > STRANGER_BYTES_MAX and not self._is_known():
            return _STRANGER
        return _FRAGMENTS if self._fragments > FRAGMENTS_MAX else ""

    def _let_go(self) -> None:
        """Forget all received data that is no whole message."""
        self._unread, self._read_to, self._head, self.frames = b"", 0, b"", []
        self.conn.reader.discard()
        self._unfinished.release(self)

    def _advance(self, size: int) -> None:
        self._read_to += size
        if self._read_to >= len(self._unread):
            self._unread, self._read_to = b"", 0

    async def _look_at_rest(self) -> None:
        await asyncio.sleep(0)  # the slice of what was received is used up
        slices = Slices()
        try:
            while self._unread and not self.transport.is_closing():
                await slices.pause()
                self._look_at_some()
        except BaseException:
            self.transport.abort()  # as the loop does where data_received fails
            raise
        finally:
            self._rest, self._unread, self._read_to = None, b"", 0
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def handle_cont(self, event: Any) -> None:
        """See WebSocketsSansIOProtocol, which would keep each frame by itself: of the shortest, most is not payload."""
        frames = cast("list[bytes | bytearray]", self.frames)
        if not isinstance(frames[0], bytearray):
            frames[0] = bytearray(frames[0])
        frames[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        """See WebSocketsSansIOProtocol, which would keep the answers for a peer that does not read: the last one is
        enough (RFC 6455, 5.5.3).
        """
        if self.writable.is_set():
            super().handle_ping()
        else:
            self._pong = b"".join(self.conn.data_to_send())

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        super().resume_writing()
        if self._pong and not self.close_sent:
            self.transport.write(self._pong)
        self._pong = b""

    def send_receive_event_to_app(self) -> None:
        """See WebSocketsSansIOProtocol, which stops reading after each message, and fills the log with bad UTF-8."""
        [data] = self.frames
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
            self.queue.put_nowait({"type": "websocket.receive", "bytes": bytes(data)})
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
        self._let_go()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.read_paused = False
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.abort)

    def expel(self, reason: str) -> None:
        """End it: the peer gets a moment to read that it is unwanted here (1008), and why."""
        self._end(CLOSE_UNWANTED, reason)

    def give_up(self) -> None:
        """See Part. The upgrade was answered, so no status can be sent: 1013 (try again later) stands for 503."""
        self._end(CLOSE_TRY_LATER, self._unfinished.refusal("messages"))

    def _end(self, code: int, reason: str) -> None:
        if self.conn.state is not State.OPEN or self.close_sent:
            self._let_go()
            self.transport.abort()
            return
        self.conn.send_close(code, reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore"))
        self.handle_parser_exception()

    def keepalive_timeout(self) -> None:
        """See WebSocketsSansIOProtocol, which would wait until the peer has taken all that is still to be sent."""
        super().keepalive_timeout()
        self.transport.abort()


def _frame_parts(data: bytes, at: int) -> tuple[int, int]:
    """The lengths of the head and the payload of the frame that begins there; 0 and 0 while they are not known yet."""
    if len(data) < at + 2:
        return 0, 0
    masked, size = divmod(data[at + 1], _MASKED)
    width = _LENGTH_WIDTHS.get(size, 0)
    if len(data) < at + 2 + width:
        return 0, 0
    if width:
        size = int.from_bytes(data[at + 2 : at + 2 + width])
    return 2 + width + _MASK_BYTES * masked, size
