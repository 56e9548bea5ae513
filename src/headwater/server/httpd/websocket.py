"""One WebSocket connection, over the sans-I/O layer of websockets. It passes messages to the application
(`websocket_cycle.py`), and bounds the message size and the peer's silence.

Memory for a frame is taken from the connection's share as soon as its length is known; without room the connection
ends. It is given back when the application asks for the next message, unless it removes `HELD` from the message and
gives the bytes back itself. A lost connection frees its bytes at once. The library gets one frame at a time; only its
length and kind are read here first.

The connection ends in one of three ways, each within a bounded time:

- *closed* by the application: the peer has `CLOSE_S` to answer the close, and to read all messages before it;
- *hung up*: the peer closed, or the upgrade failed; the last bytes must be sent within `CLOSE_S`;
- *failed* because the peer violated the protocol or a limit: it can read the reason; its further data is discarded
  (`core.loop.linger`).
"""

from __future__ import annotations

import asyncio
import os
from http import HTTPStatus
from urllib.parse import unquote

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from ...core.loop.deadline import Deadline
from ...core.loop.memory import Share
from ...core.loop.slices import Slices
from ...core.shared_bytes import FREE_BYTES
from ...http import Message, Scope
from ...http.asgi import HELD, MEMORY, WRITER
from ...http.body_memory import largest_within, memory_of
from .heads import Field
from .server_state import PeerConnection, ServerState
from .tunnel import FarEnd, TunnelEnd
from .websocket_cycle import Fields, WebSocketCycle
from .websocket_frames import cut_reason, frame_parts

MESSAGE_BYTES_MAX = 8 * 2**20 + 4096
"""The largest message of any front end, with its envelope."""
UNCOUNTED_BYTES = 1024
"""A message up to this size fits in the bytes that each connection has in addition to the budget."""
FRAGMENT_BYTES_MIN = 256
"""The minimum size that each fragment of a message counts as. This limits empty fragments, which cost 4 µs each: a
message may have 32,784 of them, and 256 before the login. """
FRAGMENTS_MAX = MESSAGE_BYTES_MAX // FRAGMENT_BYTES_MIN
STRANGER_FRAGMENTS_MAX = 256
PING_INTERVAL_S = 20.0
PING_TIMEOUT_S = 20.0
"""A peer that disappears, or does not read, is disconnected after both."""

PING_BYTES = 4
"""The size of a ping's payload, which identifies its pong."""
CLOSE_S = 10.0
"""How long a peer may take to read all messages before a close, and to answer the close."""

MESSAGES_WAITING_MAX = 16
"""How many messages may wait for the application. Above this, reading stops."""

_OPCODE, _CONTROL = 0x0F, 0x08


class WebSocketProtocol(PeerConnection):
    """One connection, dropped when its peer does not answer a ping in time.

    Data that takes long to examine, such as many small frames, is processed in slices of the loop's time.
    """

    protocol_name = "websocket"
    """Its name in management."""
    is_answering = True
    """As of a request: it lasts as long as the connection."""

    def __init__(self, state: ServerState, share: Share | None = None) -> None:
        """As PeerConnection."""
        super().__init__(state, share)
        self._library = ServerProtocol(max_size=MESSAGE_BYTES_MAX)
        self._cycle: WebSocketCycle
        self._accepted: Response
        """The response that opens the WebSocket, if the application accepts it."""
        self._is_open = self._is_ending = self._is_lingering = False
        """Whether the WebSocket was accepted; whether the connection is about to close; whether data is dropped till
        then.
        """

        self._head = b""
        """The first bytes of a frame, too few to know its length."""
        self._of_frame = 0
        """Remaining bytes of the frame that the library is reading."""
        self._fragments = 0
        """How many frames of the current message have arrived."""
        self._message: bytes | bytearray = b""
        """The earlier frames of the current message."""
        self._taken = 0
        """How many bytes of the share are reserved for it."""
        self._is_text = False
        """Whether it is text."""
        self._rest: asyncio.Task[None] | None = None
        self._holds_reading = False
        """Whether the application has received enough messages for now."""

        self._pong = b""
        """The answer to the last ping, while the peer does not read."""
        self._ping: bytes | None = None
        """The payload of an unanswered ping."""
        self._patience = Deadline(self.loop, self._lose_patience)
        """The time of the next ping, the deadline for its answer, or the end of the connection."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._state.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol. Frees its bytes and breaks its cycles: a collection may be half an hour away."""
        self._state.remove(self)
        self._is_ending = True
        self._patience.end()
        self._cycle.end(CloseCode.ABNORMAL_CLOSURE)
        self._let_go()
        self._pong = b""
        self.resume_writing()
        self.share.close()
        self.scope.pop(WRITER, None)
        self._library.parser.close()
        _forget_frames(self._library.handshake_exc)
        self._library.parser_exc = self._library.handshake_exc = None
        del self._cycle, self._patience

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        slices, is_later = Slices(), bool(self._unread) or not self._is_open
        self._unread = self._unread[self._read_to :] + data if self._unread else self._head + data
        self._read_to, self._head = 0, b""
        while self._unread and not is_later:
            self._look_at_some()
            is_later = slices.is_over
        if self._unread and not self._is_lingering:
            if not self._has_room_for_unread():
                self._fail(CloseCode.TRY_AGAIN_LATER, "there is currently not enough memory for more data")
                return
            self.transport.pause_reading()
            self._look_on_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._pong and not self._is_ending:
            self.transport.write(self._pong)
        self._pong = b""

    # calls from outside

    def begin(self, method: bytes, target: bytes, fields: list[Field], base: Scope) -> None:
        """Pass the WebSocket request to the application; `base` has the scope fields shared by the connection.

        A head that is not a WebSocket's is refused.
        """
        self.client = base["client"]
        self._cycle = WebSocketCycle(self, self.scope)
        lines = [b"%b %b HTTP/1.1" % (method, target), *(b"%b: %b" % field for field in fields)]
        self._library.receive_data(b"\r\n".join([*lines, b"", b""]))
        request = next(iter(self._library.events_received()), None)
        if not isinstance(request, Request):
            self._refuse_head()
            return
        self._accepted = self._library.accept(request)
        if self._accepted.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._cycle.end(CloseCode.ABNORMAL_CLOSURE)
            self.refuse(self._accepted)
            return
        self.scope.update(self._scope(target, fields, base))
        self._state.keep(self.loop.create_task(self._cycle.run(self._state.application)))

    def shutdown(self) -> None:
        """End it because the server stops."""
        if self._is_ending:
            self.transport.close()
        elif self._is_open:
            self._library.send_close(CloseCode.SERVICE_RESTART)
            self._cycle.end(CloseCode.SERVICE_RESTART)
            self._write_out()
            self._hang_up()
        else:
            self._cycle.refuse(HTTPStatus.SERVICE_UNAVAILABLE, [], b"the server is stopping")

    def expel(self, reason: str) -> None:
        """End it. The peer gets a moment to read the refusal (1008) and its reason."""
        self._fail(CloseCode.POLICY_VIOLATION, reason)

    # calls from the cycle

    def accept(self, fields: Fields) -> None:
        """See Connection. Examines what the peer sent too early."""
        self._accepted.headers.update(fields)
        self._library.send_response(self._accepted)
        self._write_out()
        self._is_open = True
        self._patience.set(PING_INTERVAL_S)
        if self._unread:
            self._look_on_later()

    def refuse(self, response: Response) -> None:
        """See Connection."""
        self._library.send_response(response)
        self._write_out()
        self._hang_up()

    def send(self, data: bytes, *, is_text: bool) -> None:
        """See Connection."""
        (self._library.send_text if is_text else self._library.send_binary)(data)
        self._write_out()

    def close(self, code: int, reason: str) -> None:
        """See Connection."""
        reason = cut_reason(reason)
        self._library.send_close(code, reason)
        self._cycle.end(code, reason)
        self._write_out()
        self._is_ending = True
        self._patience.set(CLOSE_S)
        self.read_on()

    def read_on(self) -> None:
        """See Connection."""
        if self._holds_reading:
            self._holds_reading = False
            if not self._unread and not self.transport.is_closing():
                self.transport.resume_reading()

    # instead of the cycle

    def pass_through(self, answer: bytes, far: FarEnd) -> TunnelEnd | None:
        """Send that answer, which opens the WebSocket, and from now on pass its bytes on unchanged.

        Returns None if the peer has disconnected.
        """
        if self.transport.is_closing() or self._is_ending:
            return None
        early = self._unread[self._read_to :]
        self._let_go()
        self._patience.end()
        end = TunnelEnd(self._state, self.share, far, self.scope)
        end.connection_made(self.transport)
        end.opened_at = self.opened_at
        self._state.remove(self)
        self.scope.pop(WRITER, None)
        self._cycle.end(CloseCode.NORMAL_CLOSURE)
        self.transport.write(answer)
        self._give_to(end)
        if early:
            far.write(early)
        return end

    # received data

    def _scope(self, target: bytes, fields: list[Field], base: Scope) -> Scope:
        path, _, query = target.partition(b"?")
        named = [value.decode("latin-1") for name, value in fields if name == b"sec-websocket-protocol"]
        return {
            **base,
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "wss" if base["scheme"] == "https" else "ws",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "headers": fields,
            "subprotocols": [token.strip() for value in named for token in value.split(",")],
            "extensions": {**base.get("extensions", {}), "websocket.http.response": {}},
            MEMORY: self.share,
            WRITER: self,
        }

    def _refuse_head(self) -> None:
        """The library could not read the data. It has told the peer so, or cannot."""
        self._cycle.end(CloseCode.ABNORMAL_CLOSURE)
        if not self._write_out():
            problem = self._library.handshake_exc
            refusal = self._library.reject(HTTPStatus.BAD_REQUEST, f"{problem}: {problem and problem.__cause__}\n")
            self.transport.write(refusal.serialize())
        self._hang_up()

    def _look_at_some(self) -> None:
        """Examine the available data of one frame."""
        data, at = self._unread, self._read_to
        if self._of_frame:
            self._feed(self._of_frame)
        else:
            head, payload = frame_parts(data, at)
            self._of_frame = head + payload
            if not self._of_frame:
                self._head = data[at:]
                self._advance(len(self._head))
            elif data[at] & _CONTROL or self._has_room(data[at], payload):
                self._feed(self._of_frame)

    def _feed(self, size: int) -> None:
        """Pass this many unread bytes to the library; if fewer have arrived, the rest follows."""
        data = self._unread[self._read_to : self._read_to + size]
        self._of_frame -= min(len(data), self._of_frame)
        self._advance(len(data))
        self._library.receive_data(data)
        for event in self._library.events_received():
            assert isinstance(event, Frame)
            self._take(event)
        if self._library.parser_exc is not None:
            self._linger()

    def _has_room(self, first: int, payload: int) -> bool:
        """Reserve memory for a frame with that first byte and payload size, or end the connection.

        The upgrade was answered, so no status can be sent. 1009 is used for 413, and 1013 (try again later) for 503.
        """
        self._fragments = 1 if first & _OPCODE else self._fragments + 1
        if self._fragments > STRANGER_FRAGMENTS_MAX:
            is_known = self.share.owner not in (None, self.share.account.strangers)
            if not is_known or self._fragments > FRAGMENTS_MAX:
                most = FRAGMENTS_MAX if is_known else STRANGER_FRAGMENTS_MAX
                self._fail(CloseCode.MESSAGE_TOO_BIG, f"a message can have at most {most} fragments")
                return False
        size = payload + len(self._message)
        if size <= UNCOUNTED_BYTES or size > MESSAGE_BYTES_MAX:  # the library refuses larger ones
            return True
        more = memory_of(size) - self._taken
        if self.share.take(more):
            self._taken += more
            return True
        if size > (most := largest_within(self.share.largest)):
            reason = f"the message has {size} bytes, but there is memory for at most {most}"
            self._fail(CloseCode.MESSAGE_TOO_BIG, reason)
        else:
            self._fail(CloseCode.TRY_AGAIN_LATER, f"there is currently not enough memory for a message of {size} bytes")
        return False

    def _let_go(self) -> None:
        """Discard received data of incomplete messages."""
        self._unread, self._read_to, self._head, self._message = b"", 0, b"", b""
        self._has_room_for_unread()
        self._library.reader.discard()
        self.share.give(self._taken)
        self._taken = 0

    def _look_on_later(self) -> None:
        if self._rest is None and self._is_open:
            self._rest = self.loop.create_task(self._look_at_rest())

    async def _look_at_rest(self) -> None:
        await asyncio.sleep(0)  # the slice for received data is used up
        slices = Slices()
        try:
            while self._unread and not self.transport.is_closing():
                self._look_at_some()
                await slices.pause()
        except BaseException:
            self.transport.abort()  # as the loop does where data_received fails
            raise
        finally:
            self._rest, self._unread, self._read_to = None, b"", 0
            self._has_room_for_unread()
        if not self._holds_reading and not self.transport.is_closing():
            self.transport.resume_reading()

    def _take(self, frame: Frame) -> None:
        """Accept a whole frame that the library found correct."""
        match frame.opcode:
            case Opcode.TEXT | Opcode.BINARY:
                self._message, self._is_text = bytes(frame.data), frame.opcode is Opcode.TEXT
            case Opcode.CONT:  # joined at once, because the shortest frames are mostly overhead
                if not isinstance(self._message, bytearray):
                    self._message = bytearray(self._message)
                self._message += frame.data
            case Opcode.PING:
                self._answer_ping()
                return
            case Opcode.PONG:
                self._take_pong(bytes(frame.data))
                return
            case Opcode.CLOSE:
                self._take_close()
                return
        if frame.fin:
            self._take_message()

    def _take_message(self) -> None:
        data, self._message = self._message, b""
        if self._is_ending:
            return
        message: Message = {"type": "websocket.receive"}
        if self._is_text:
            try:
                message["text"] = data.decode()
            except UnicodeDecodeError:
                self._fail(CloseCode.INVALID_DATA, "")
                return
        else:
            message["bytes"] = bytes(data)
        if self._taken:
            message[HELD], self._taken = self._taken, 0
        self._cycle.add(message)
        if not self._holds_reading and self._cycle.waiting >= MESSAGES_WAITING_MAX:
            self._holds_reading = True
            self.transport.pause_reading()

    def _answer_ping(self) -> None:
        """Send what the library wrote; for a peer that does not read, the last answer is enough (RFC 6455, 5.5.3)."""
        if self.is_full:
            self._pong = b"".join(self._library.data_to_send())
        else:
            self._write_out()

    def _take_pong(self, payload: bytes) -> None:
        if payload == self._ping:
            self._ping = None
            if not self._is_ending:
                self._patience.set(PING_INTERVAL_S)

    def _take_close(self) -> None:
        if not self._is_ending:
            close = self._library.close_rcvd
            assert close is not None
            self._cycle.end(close.code, close.reason)
            self._write_out()
        self._hang_up()

    # ends

    def _write_out(self) -> bool:
        """Send the bytes that the library has written. Returns whether there were any."""
        data = b"".join(self._library.data_to_send())
        if data and not self.transport.is_closing():
            self.transport.write(data)
        return bool(data)

    def _hang_up(self) -> None:
        """Close after everything is sent. Data that still arrives is dropped."""
        self._is_ending = True
        self._let_go()
        self.transport.close()
        self._patience.set(CLOSE_S)

    def _fail(self, code: int, reason: str) -> None:
        """End it, and let the peer read the reason. End it at once if the peer has the reason, or no WebSocket is
        open.
        """
        if self._library.state is not State.OPEN:
            self._let_go()
            self.transport.abort()
            return
        self._library.send_close(code, cut_reason(reason))
        self._linger()

    def _linger(self) -> None:
        """Let the peer read the reason (1009 for a message that is too long, 1007, 1002)."""
        close = self._library.close_sent
        assert close is not None
        self._cycle.end(close.code, close.reason)
        self._write_out()
        self._is_ending = self._is_lingering = True
        self._let_go()
        self.loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        if self.transport.get_write_buffer_size() > FREE_BYTES and not self.transport.is_closing():
            self._hang_up()  # it must still be counted
        else:
            super()._hand_over()

    def _lose_patience(self) -> None:
        if self._is_ending:
            self.transport.abort()
        elif self._ping is None:
            self._ping = os.urandom(PING_BYTES)
            self._library.send_ping(self._ping)
            self._write_out()
            self._patience.set(PING_TIMEOUT_S)
        elif self._holds_reading and not self.is_full:
            self._patience.set(PING_TIMEOUT_S)  # we caused the pause, because we do not read the answer
        else:
            self._library.send_close(CloseCode.INTERNAL_ERROR, "no pong was received in time")
            self._write_out()
            self.transport.abort()  # the peer does not have to read data that has not been sent yet


def _forget_frames(error: BaseException | None) -> None:
    """Drop the tracebacks of an error that is kept, because their frames would keep everything that they refer to."""
    while error is not None:
        error.__traceback__, error = None, error.__context__
