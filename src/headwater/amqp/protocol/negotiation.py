"""The start of a connection (2.2, and part 5): protocol headers, and SASL frames before AMQP's own.

This is the part of `connection` without sessions; it holds the pending output and events of both.
"""

from __future__ import annotations

from enum import Enum

from . import conditions, sasl
from .conditions import ConnectionFault
from .events import ConnectionClosed, Event, MechanismChosen, MechanismsOffered, SaslEnded, SaslResponded
from .frames import AMQP_HEADER, FRAME_HEADER, SASL_FRAME, SASL_HEADER, frame
from .performatives import ErrorCondition
from .settings import ConnectionSettings

SASL_FRAME_BYTES_MAX = 8192
"""The standard says 512 for SASL frames (5.3.1); tokens are longer than that."""


class Stage(Enum):
    """What the peer is expected to send next."""

    HEADER = "a protocol header"
    SASL = "SASL frames"
    OPEN = "an open"
    FRAMES = "frames"
    OVER = "nothing"


class Negotiation:
    """A connection up to the point where its peer may send an open."""

    def __init__(self, settings: ConnectionSettings, *, is_server: bool) -> None:
        self.settings = settings
        self.is_server = is_server
        self.stage = Stage.HEADER
        self.ended_in = Stage.OVER
        """The stage at which the connection ended; OVER until then."""
        self._out: list[bytes | memoryview] = []
        self.bytes_to_send = 0
        """The size of the output of `data_to_send`, without large deliveries."""
        self._events: list[Event] = []
        self._wanted = 8
        """How many bytes are needed before more can be processed."""
        self._uses_sasl = False
        self._owes_verdict = False
        """The owner has yet to answer the client's SASL frame; further input waits."""

    # Called by the owner

    def start(self, *, uses_sasl: bool = False) -> None:
        """Send the first header (client only)."""
        self._uses_sasl = uses_sasl
        self._write(SASL_HEADER if uses_sasl else AMQP_HEADER)

    def sasl_init(self, mechanism: str, response: bytes | None, hostname: str | None = None) -> None:
        """Choose a mechanism (client only)."""
        self._send_sasl(sasl.SaslInit(mechanism=mechanism, initial_response=response, hostname=hostname))

    def sasl_challenge(self, challenge: bytes) -> None:
        """Ask the client for more (server only). Then call `receive_data(b"", now)`, because its answer may have
        arrived already.
        """
        self._owes_verdict = False
        self._send_sasl(sasl.SaslChallenge(challenge=challenge))

    def sasl_response(self, response: bytes) -> None:
        """Answer a challenge (client only)."""
        self._send_sasl(sasl.SaslResponse(response=response))

    def sasl_outcome(self, code: int) -> None:
        """Send the verdict (server only): 0 lets the client continue; any other code ends the connection. Then call
        `receive_data(b"", now)`, because the client may have sent more already."""
        self._owes_verdict = False
        self._send_sasl(sasl.SaslOutcome(code=code))
        if code == 0:
            self._expect(Stage.HEADER)
        else:
            self._end(ConnectionClosed(None))

    # Bytes in

    def _read_header(self, data: bytes, at: int) -> int:
        if len(data) - at < 8:
            return at
        self._on_header(data[at : at + 8])
        return at + 8

    def _on_header(self, header: bytes) -> None:
        if header == SASL_HEADER and not self._uses_sasl and self.is_server and self.settings.sasl_mechanisms:
            self._uses_sasl = True
            self._write(SASL_HEADER)
            self._expect(Stage.SASL)
            self._send_sasl(sasl.SaslMechanisms(self.settings.sasl_mechanisms))
        elif header == SASL_HEADER and self._uses_sasl and not self.is_server:
            self._expect(Stage.SASL)
        elif header == AMQP_HEADER and (not self.is_server or self._uses_sasl or not self.settings.needs_sasl):
            if self.is_server:
                self._write(AMQP_HEADER)
            self._expect(Stage.OPEN)
        else:
            # Refused with the header that this side accepts (2.2).
            if self.is_server:
                self._write(SASL_HEADER if self.settings.needs_sasl and not self._uses_sasl else AMQP_HEADER)
            shown = ErrorCondition(conditions.CONNECTION_FRAMING_ERROR, f"protocol header {header!r} is not supported")
            self._end(ConnectionClosed(shown, is_fault=True))

    def _read_sasl(self, data: bytes, at: int) -> int:
        """Read one frame, unless the owner has not answered the last one yet."""
        if self._owes_verdict or len(data) - at < 8:
            return at
        size: int
        size, doff, kind, _ = FRAME_HEADER.unpack_from(data, at)
        if size > SASL_FRAME_BYTES_MAX or doff < 2 or doff * 4 > size or kind != SASL_FRAME:
            raise bad_head(size, doff, kind, SASL_FRAME_BYTES_MAX, expected=SASL_FRAME)
        if len(data) - at < size:
            self._wanted = size
            return at
        self._wanted = 8
        self._on_sasl(sasl.decode_sasl(data, at + doff * 4, at + size))
        return at + size

    def _on_sasl(self, body: sasl.SaslFrame) -> None:
        if self.is_server and isinstance(body, sasl.SaslInit):
            self._owes_verdict = True
            self.tell(MechanismChosen(str(body.mechanism), body.initial_response, body.hostname))
        elif self.is_server and isinstance(body, sasl.SaslResponse):
            self._owes_verdict = True
            self.tell(SaslResponded(body.response))
        elif not self.is_server and isinstance(body, sasl.SaslMechanisms):
            self.tell(MechanismsOffered(tuple(str(name) for name in body.sasl_server_mechanisms)))
        elif not self.is_server and isinstance(body, sasl.SaslOutcome):
            self.tell(SaslEnded(body.code))
            if body.code == 0:
                self._write(AMQP_HEADER)
                self._expect(Stage.HEADER)
            else:
                self._end(ConnectionClosed(None))
        else:
            raise ConnectionFault(conditions.ILLEGAL_STATE, f"{type(body).__name__} is not expected here")

    def _send_sasl(self, body: sasl.SaslFrame) -> None:
        self._write(frame(0, bytes(sasl.encode_sasl(body)), SASL_FRAME))

    # State, events, and bytes out

    def tell(self, event: Event) -> None:
        """Report an event to the owner."""
        self._events.append(event)

    def _expect(self, stage: Stage) -> None:
        self.stage = stage
        self._wanted = 8

    def _end(self, event: ConnectionClosed) -> None:
        if self.stage is Stage.OVER:
            return
        self.ended_in, self.stage = self.stage, Stage.OVER
        self._let_go()
        self.tell(event)

    def _let_go(self) -> None:
        """End everything on this connection, which has ended."""

    def _write(self, data: bytes) -> None:
        self._out.append(data)
        self.bytes_to_send += len(data)


def bad_head(size: int, doff: int, kind: int, size_max: int, expected: int = 0) -> ConnectionFault:
    """The error in a frame's head (2.3.1): its size, data offset or type."""
    if size > size_max:
        problem = f"a frame has {size} bytes, at most {size_max} are allowed"
    elif doff < 2 or doff * 4 > size:
        problem = f"a frame of {size} bytes has a header of {doff} words"
    else:
        problem = f"expected a frame of type {expected}, got {kind}"
    return ConnectionFault(conditions.CONNECTION_FRAMING_ERROR, problem)
