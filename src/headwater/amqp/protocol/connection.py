"""A connection (2.4) of a server or a client. It converts bytes to events, and calls to bytes, without I/O or a clock.

The owner passes input to `receive_data`, handles the events, and writes the output of `data_to_send`; it calls `tick`
by the time that `next_tick` returns. `now` is any monotonic time in seconds. Any input results in events, at worst a
close with the standard's condition, and never in an exception. All state of a connection changes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from . import conditions
from .codec import DecodeError
from .conditions import ConnectionFault, LinkFault, SessionFault
from .events import ConnectionClosed, ConnectionOpened, Event
from .fitting import fitted
from .frames import EMPTY_FRAME, FRAME_MIN
from .link import Link
from .negotiation import Negotiation, Stage, bad_head
from .performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Flow,
    Open,
    Performative,
    Transfer,
    decode_performative,
    encode_performative,
)
from .runs import USUAL_TRANSFER
from .session import Session
from .settings import IDLE_MS_MIN, ConnectionSettings
from .sizes import held_bytes
from .types import Described
from .wire import DISPOSITION, TRANSFER, accepted_frame, read_disposition, read_transfer

_head = Struct(">IBBH")
_unpack_head, _pack_head = _head.unpack_from, _head.pack


SESSION_BYTES = 3072
"""Memory of a session, excluding its links and deliveries. Measured."""
LINK_BYTES = 6144
"""Memory of a link in addition to the peer's attach, including its owner's end. Measured."""
PARTIAL_FACTOR = 2
"""Memory of a partial message, as a multiple of its size. Two copies exist while its parts are joined."""


class Connection(Negotiation):
    """A connection, seen from this side."""

    def __init__(self, settings: ConnectionSettings, container_id: str, *, is_server: bool, now: float = 0.0) -> None:
        super().__init__(settings, is_server=is_server)
        self.container_id = container_id
        self.remote: Open | None = None
        """The peer's open."""
        self.frame_bytes_max = FRAME_MIN
        """The largest frames that this side is allowed to send."""
        self.context: Any = None
        """For use by the owner."""
        self._chunks: list[bytes] = []
        self._chunks_bytes = 0
        self._is_open_sent = self._is_close_sent = False
        self._sessions: dict[int, Session] = {}
        """By our channel."""
        self._by_remote_channel: dict[int, Session] = {}
        self._ended_channels: set[int] = set()
        """Channels on which the peer has ended a session; some peers still send detaches there."""
        self._attached: dict[tuple[str, bool], Link] = {}
        """Links that the peer has attached, by name and by whether this side sends."""
        self._large: dict[Session, None] = {}
        """Sessions that may now send a part of a large delivery, in turn."""
        self._now = self._heard_at = self._sent_at = now
        self._remote_idle_s: float | None = None
        self._idle_s = None if settings.idle_ms is None else settings.idle_ms / 1000

    # Called by the owner

    @property
    def is_over(self) -> bool:
        """Whether the connection is over. If so, write the remaining output, and close the transport."""
        return self.stage is Stage.OVER

    @property
    def sessions(self) -> Sequence[Session]:
        """The sessions that have not ended."""
        return tuple(self._sessions.values())

    @property
    def has_large(self) -> bool:
        """Whether `data_to_send` can make more frames of large deliveries."""
        return bool(self._large)

    def data_to_send(self, bytes_max: int | None = None) -> bytes:
        """Return the pending output, and clear it.

        Frames of large deliveries are made here, and only until there are `bytes_max` bytes. After a large delivery
        ends, `take_events` reports that its session may send again."""
        while self._large and (bytes_max is None or self.bytes_to_send < bytes_max):
            session = next(iter(self._large))
            del self._large[session]
            if session.send_part():
                self._large[session] = None
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out.clear()
        self.bytes_to_send = 0
        self._sent_at = self._now
        return data

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Process bytes from the peer, and return the events. After ConnectionClosed, further bytes are ignored."""
        self._now = now
        if data:
            self._heard_at = now
        if self._chunks:
            if not self._keep(data):
                return self.take_events()
            if self._chunks_bytes < self._wanted:
                return []
            data = b"".join(self._chunks)
            self._drop_chunks()
        try:
            at = self._read(data)
        except ConnectionFault as fault:
            self._fail(fault)
        except DecodeError as error:
            self._fail(ConnectionFault(conditions.DECODE_ERROR, str(error)))
        else:
            if at < len(data) and self.stage is not Stage.OVER:
                self._keep(data[at:])
        return self.take_events()

    def tick(self, now: float) -> list[Event]:
        """Keep the connection alive, or close it after a timeout. Call this at `next_tick`; calling it more often is
        harmless.
        """
        self._now = now
        if self.stage is Stage.OVER:
            return []
        if self._idle_s is not None and now - self._heard_at >= self._idle_s and self.stage is Stage.FRAMES:
            problem = (
                f"nothing was received for {now - self._heard_at:.0f} s; the idle time-out is {self._idle_s:.0f} s"
            )
            self._fail(ConnectionFault(conditions.RESOURCE_LIMIT_EXCEEDED, problem))
        elif self._remote_idle_s is not None and not self._out and now - self._sent_at >= self._remote_idle_s / 2:
            self._write(EMPTY_FRAME)
        return self.take_events()

    def take_events(self) -> list[Event]:
        """The events since the last call; `receive_data` and `tick` return theirs directly."""
        events, self._events = self._events, []
        return events

    def not_listening(self, now: float) -> None:
        """Reading is paused, so the peer's silence does not count."""
        self._heard_at = now

    def next_tick(self) -> float | None:
        """The deadline for the next call of `tick`; None if there is none."""
        times = []
        if self._remote_idle_s is not None:
            times.append(self._sent_at + self._remote_idle_s / 2)
        if self._idle_s is not None:
            times.append(self._heard_at + self._idle_s)
        return min(times, default=None)

    def open(self, **fields: Any) -> None:
        """Send our open, with `fields` in addition to those of the settings."""
        if self._is_open_sent:
            return
        settings = self.settings
        self._is_open_sent = True
        announced = Open(
            container_id=self.container_id,
            max_frame_size=settings.frame_bytes_max,
            channel_max=settings.channel_max,
            idle_time_out=None if settings.idle_ms is None else settings.idle_ms // 2,
            **{**settings.open_fields, **fields},
        )
        self.send(0, announced)

    def begin(self) -> Session:
        """Begin a session. Raises ValueError if no channel is free."""
        session = self._new_session()
        if session is None:
            raise ValueError("no channel is free")
        self._send_begin(session, None)
        return session

    def close(self, error: ErrorCondition | Described | None = None) -> None:
        """Close properly. The peer's answer is reported as ConnectionClosed. Does nothing if it is already closed."""
        if self._is_close_sent or self.stage is Stage.OVER:
            return
        if self.stage in (Stage.HEADER, Stage.SASL):
            self._end(ConnectionClosed(error))
            return
        self.open()
        self._is_close_sent = True
        self.send(0, Close(error=error))
        for session in self._sessions.values():
            session.on_connection_closed()

    def lost(self) -> None:
        """The transport is closed. Everything on this connection ends, without further events."""
        self._end(ConnectionClosed(None))
        self._events.clear()
        self._out.clear()
        self.bytes_to_send = 0

    # Called by sessions and links

    def send(self, channel: int, performative: Performative) -> None:
        """Send a frame without payload. If even its shortened form is too large for the peer, close the connection."""
        if self._is_close_sent and not isinstance(performative, Close):
            return
        body = encode_performative(performative)
        fits = len(body) + 8 <= self.frame_bytes_max or self.remote is None
        if fits or (body := fitted(performative, self.frame_bytes_max - 8)):
            self._write_body(channel, bytes(body))
        else:
            name = type(performative).__name__.lower()
            problem = f"this {name} does not fit into a frame of {self.frame_bytes_max} bytes"
            self.close(ErrorCondition(conditions.FRAME_SIZE_TOO_SMALL, problem))

    def send_frames(self, parts: Sequence[bytes]) -> None:
        """Send encoded frames, in these parts."""
        self._out += parts
        self.bytes_to_send += sum(map(len, parts))

    def send_accepted(self, channel: int, first: int, last: int) -> None:
        """Report the deliveries `first` to `last` as accepted and settled."""
        if not self._is_close_sent:
            self._write(accepted_frame(channel, first, last))

    def send_body(self, channel: int, performative: bytes, *payload: bytes | memoryview) -> None:
        """Send a frame with an encoded performative and its payload."""
        self._write_body(channel, performative, *payload)

    def may_send_large(self, session: Session) -> None:
        """Record that the session has a large delivery, and its window is open."""
        self._large[session] = None

    def has_sent_large(self, session: Session) -> None:
        """Record that the session no longer has a large delivery."""
        self._large.pop(session, None)

    def hold(self, size: int) -> None:
        """Reserve memory for a piece of a message. Raises LinkFault if there is not enough."""
        if not self.settings.take(size * PARTIAL_FACTOR):
            problem = f"there is not enough memory for {size} more bytes of an unfinished message; try again later"
            raise LinkFault(conditions.RESOURCE_LIMIT_EXCEEDED, problem)

    def release(self, size: int) -> None:
        """Release memory."""
        self.settings.give(size * PARTIAL_FACTOR)

    def attached(self, link: Link, attach: Attach) -> None:
        """Register a link that the peer attaches: another link with this name and direction is detached (2.6.1). Raises
        SessionFault if there is no memory for it."""
        size = LINK_BYTES + held_bytes(attach)
        if not self.settings.take(size):
            problem = f"there is not enough memory for another link, which needs {size} bytes; try again later"
            raise SessionFault(conditions.RESOURCE_LIMIT_EXCEEDED, problem)
        link.held_bytes = size
        key = link.name, link.is_sender
        old = self._attached.get(key)
        self._attached[key] = link
        if old is not None and not old.is_detaching:
            old.fail(LinkFault(conditions.LINK_STOLEN, "a link of this name was attached again"))

    def detached(self, link: Link) -> None:
        """Forget a link that has ended."""
        self.settings.give(link.held_bytes)
        link.held_bytes = 0
        key = link.name, link.is_sender
        if self._attached.get(key) is link:
            del self._attached[key]

    # Bytes in

    def _read(self, data: bytes) -> int:
        """Process all complete frames; returns where the rest begins."""
        at = 0
        while self.stage is Stage.HEADER or self.stage is Stage.SASL:
            start = at
            at = self._read_header(data, at) if self.stage is Stage.HEADER else self._read_sasl(data, at)
            if at == start:
                return at
        return self._read_frames(data, at)

    def _read_frames(self, data: bytes, at: int) -> int:
        size_max = self.settings.frame_bytes_max
        length = len(data)
        while length - at >= 8 and self.stage is not Stage.OVER:
            if data.startswith(USUAL_TRANSFER, at + 8) and (after := self._on_run(data, at)) > at:
                at = after
                continue
            size, doff, kind, channel = _unpack_head(data, at)
            if size > size_max or doff < 2 or doff * 4 > size or kind != 0:
                raise bad_head(size, doff, kind, size_max)
            end = at + size
            if end > length:
                self._wanted = size
                return at
            self._on_frame(data, at + doff * 4, end, channel)
            at = end
        self._wanted = 8
        return at

    def _on_frame(self, data: bytes, at: int, end: int, channel: int) -> None:
        if at == end:
            return  # heartbeat
        if data.startswith(TRANSFER, at):
            self._on_transfer(data, at, end, channel)
        elif data.startswith(DISPOSITION, at):
            self._on_disposition(data, at, end, channel)
        else:
            performative, payload_at = decode_performative(data, at, end)
            if isinstance(performative, Transfer):  # its descriptor has another encoding
                self._on_transfer(data, at, end, channel)
            elif payload_at != end:
                raise DecodeError(
                    f"{end - payload_at} unexpected bytes after a {type(performative).__name__.lower()}", payload_at
                )
            elif isinstance(performative, Disposition):
                self._on_disposition(data, at, end, channel)
            else:
                self._on_performative(performative, channel)

    def _on_run(self, data: bytes, at: int) -> int:
        """Process a run of ordinary transfers, if there is one. Returns where the next frame begins."""
        session = self._by_remote_channel.get(data[at + 6] << 8 | data[at + 7])
        return at if session is None or session.is_ending or session.is_over else session.on_run(data, at)

    def _on_transfer(self, data: bytes, at: int, end: int, channel: int) -> None:
        session = self._session(channel)
        if session is not None:
            try:
                session.on_transfer(read_transfer(data, at, end), data, end)
            except SessionFault as fault:
                session.fail(fault)

    def _on_disposition(self, data: bytes, at: int, end: int, channel: int) -> None:
        session = self._session(channel)
        if session is not None:
            try:
                session.on_disposition(read_disposition(data, at, end))
            except SessionFault as fault:
                session.fail(fault)

    def _on_performative(self, performative: Performative, channel: int) -> None:
        if isinstance(performative, Open):
            self._on_open(performative, channel)
        elif isinstance(performative, Close):
            self._on_close(performative)
        elif self.stage is not Stage.FRAMES:
            raise ConnectionFault(
                conditions.ILLEGAL_STATE, f"expected an open, got {type(performative).__name__.lower()}"
            )
        elif isinstance(performative, Begin):
            self._on_begin(performative, channel)
        elif isinstance(performative, End):
            self._on_end(performative, channel)
        elif (session := self._session(channel, is_detach=isinstance(performative, Detach))) is not None:
            try:
                self._on_link_performative(session, performative)
            except SessionFault as fault:
                session.fail(fault)

    @staticmethod
    def _on_link_performative(session: Session, performative: Performative) -> None:
        if isinstance(performative, Flow):
            session.on_flow(performative)
        elif isinstance(performative, Attach):
            session.on_attach(performative)
        else:
            assert isinstance(performative, Detach)
            session.on_detach(performative)

    def _session(self, channel: int, *, is_detach: bool = False) -> Session | None:
        """The session of a frame; None if the frame is ignored. Raises ConnectionFault."""
        session = self._by_remote_channel.get(channel)
        if session is None:
            if self._is_close_sent or (is_detach and channel in self._ended_channels):
                return None
            raise ConnectionFault(conditions.NOT_ALLOWED, f"channel {channel} has no session")
        return None if session.is_ending or session.is_over else session

    def _on_open(self, opened: Open, channel: int) -> None:
        if self.stage is not Stage.OPEN:
            raise ConnectionFault(conditions.ILLEGAL_STATE, "the connection is already open")
        if channel:  # before negotiation, 0 is the only channel (2.4.1)
            raise ConnectionFault(
                conditions.CONNECTION_FRAMING_ERROR, f"expected the open on channel 0, got channel {channel}"
            )
        if opened.max_frame_size < FRAME_MIN:
            problem = f"max-frame-size must be at least {FRAME_MIN}, got {opened.max_frame_size}"
            raise ConnectionFault(conditions.INVALID_FIELD, problem)
        if opened.idle_time_out is not None and 0 < opened.idle_time_out < IDLE_MS_MIN:
            problem = f"idle-time-out must be at least {IDLE_MS_MIN} ms here, got {opened.idle_time_out}"
            raise ConnectionFault(conditions.NOT_ALLOWED, problem)
        self.remote = opened
        self.frame_bytes_max = min(opened.max_frame_size, max(self.settings.frame_bytes_max, FRAME_MIN))
        self._remote_idle_s = opened.idle_time_out / 1000 if opened.idle_time_out else None
        self._expect(Stage.FRAMES)
        self.tell(ConnectionOpened(opened))

    def _on_close(self, close: Close) -> None:
        if self.stage is Stage.OPEN and not self._is_open_sent and self.is_server:
            raise ConnectionFault(conditions.ILLEGAL_STATE, "expected an open, got close")
        self.close()
        self._end(ConnectionClosed(close.error))

    def _on_begin(self, begin: Begin, channel: int) -> None:
        if self._is_close_sent:
            return
        if channel > self.settings.channel_max or channel in self._by_remote_channel:
            problem = (
                "is in use"
                if channel in self._by_remote_channel
                else f"is above the maximum {self.settings.channel_max}"
            )
            raise ConnectionFault(conditions.CONNECTION_FRAMING_ERROR, f"begin on channel {channel}, which {problem}")
        if begin.remote_channel is not None:
            session = self._sessions.get(begin.remote_channel)
            if session is None or session.remote is not None:
                raise ConnectionFault(
                    conditions.NOT_ALLOWED, f"no session is waiting on channel {begin.remote_channel}"
                )
        else:
            session = self._new_session()
            if session is None:
                problem = "no channel is free, or there is not enough memory for another session"
                raise ConnectionFault(conditions.RESOURCE_LIMIT_EXCEEDED, problem)
            self.open()  # a peer that sent its begin together with its open is answered in order too
            self._send_begin(session, channel)
        self._by_remote_channel[channel] = session
        self._ended_channels.discard(channel)
        session.on_begin(begin)

    def _on_end(self, end: End, channel: int) -> None:
        session = self._by_remote_channel.pop(channel, None)
        if session is None:
            if self._is_close_sent:
                return
            raise ConnectionFault(conditions.NOT_ALLOWED, f"channel {channel} has no session")
        self._ended_channels.add(channel)
        session.on_end(end)
        if self._sessions.pop(session.channel, None) is not None:
            self.settings.give(SESSION_BYTES)

    def _new_session(self) -> Session | None:
        highest = min(self.settings.channel_max, self.remote.channel_max if self.remote else 0xFFFF)
        channel = next((n for n in range(highest + 1) if n not in self._sessions), None)
        if channel is None or not self.settings.take(SESSION_BYTES):
            return None
        session = self._sessions[channel] = Session(self, channel)
        return session

    def _send_begin(self, session: Session, remote_channel: int | None) -> None:
        window = self.settings.incoming_window
        begin = Begin(
            remote_channel=remote_channel,
            next_outgoing_id=0,
            incoming_window=window,
            outgoing_window=window,
            handle_max=self.settings.handle_max,
        )
        self.send(session.channel, begin)

    # State and bytes out

    def _fail(self, fault: ConnectionFault) -> None:
        """Close with the fault's error; later input is not read."""
        error = ErrorCondition(fault.condition, fault.description, fault.info)
        if self.stage in (Stage.OPEN, Stage.FRAMES):
            self.close(error)
        elif self.stage is Stage.OVER:
            return
        self._end(ConnectionClosed(error, is_fault=True))

    def _keep(self, data: bytes) -> bool:
        """Keep a part of a frame. If there is no memory for it, the connection fails, and the result is False."""
        if not self.settings.take(len(data)):
            problem = f"there is not enough memory for {len(data)} more bytes of a frame; try again later"
            self._fail(ConnectionFault(conditions.RESOURCE_LIMIT_EXCEEDED, problem))
            return False
        self._chunks.append(data)
        self._chunks_bytes += len(data)
        return True

    def _drop_chunks(self) -> None:
        self.settings.give(self._chunks_bytes)
        self._chunks.clear()
        self._chunks_bytes = 0

    def _let_go(self) -> None:
        self._drop_chunks()
        self.settings.give(SESSION_BYTES * len(self._sessions))
        for session in self._sessions.values():
            session.on_connection_closed()
        self._sessions.clear()  # they refer to this connection: free what is over at once, without garbage collection
        self._by_remote_channel.clear()
        self._large.clear()

    def _write_body(self, channel: int, performative: bytes, *payload: bytes | memoryview) -> None:
        size = 8 + len(performative) + sum(map(len, payload))
        self._out += (_pack_head(size, 2, 0, channel), performative, *payload)
        self.bytes_to_send += size
