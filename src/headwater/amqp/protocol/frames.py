"""Frames and protocol headers (part 2, sections 2.2 and 2.3): their names and layout.

The receiver of a stream splits it into frames (`connection`); this module keeps no state.
"""

from __future__ import annotations

import struct
from typing import Final

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

FRAME_HEADER: Final = struct.Struct(">IBBH")
"""Size of the whole frame in bytes, data offset in words of 4 bytes, type, channel (of an AMQP frame)."""

FRAME_HEADER_SIZE: Final = 8
DATA_OFFSET_MIN: Final = 2
"""The data offset of a frame without an extended header, in words of 4 bytes."""

FRAME_MIN: Final = 512
"""MIN-MAX-FRAME-SIZE: every peer accepts frames of this size, and SASL frames are at most this large."""

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1


def frame(channel: int, body: bytes | bytearray, type: int = AMQP_FRAME) -> bytes:
    """A frame around the body: a performative, followed by a transfer's payload."""
    return FRAME_HEADER.pack(FRAME_HEADER_SIZE + len(body), DATA_OFFSET_MIN, type, channel) + body


EMPTY_FRAME: Final = frame(0, b"")
"""An empty frame, which only shows that the sender is alive (part 2, section 2.4.5)."""
