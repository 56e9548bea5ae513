"""WebSocket frames (RFC 6455, 5.2) as most of them are: a whole message of less than 64 KiB each.

Such are read and written here. Everything else is the library's: pieces of messages, control frames, and whatever
breaks the protocol. So that the library sees each of its frames from the first byte to the last, the length of every
frame is known here.
"""

from __future__ import annotations

import struct

TEXT, BINARY = 0x81, 0x82
"""First bytes of a frame that is a whole message."""
_OPCODE = 0x0F
_CONTROL = 0x08
_MASKED = 0x80
_LENGTH_16, _LENGTH_64 = 126, 127
_MASK_BYTES = 4
_head_16, _head_64 = struct.Struct(">BBH").pack, struct.Struct(">BBQ").pack


def plain_at(data: bytes, at: int) -> tuple[int, int] | None:
    """Where the masked payload begins and ends of the message that begins there, if it came whole in a short frame."""
    if len(data) < at + 6 or (data[at] != BINARY and data[at] != TEXT):
        return None
    size = data[at + 1] - _MASKED
    if 0 <= size < _LENGTH_16:
        begin = at + 6
    elif size == _LENGTH_16 and len(data) >= at + 8:
        begin, size = at + 8, data[at + 2] << 8 | data[at + 3]
    else:
        return None
    return (begin, begin + size) if begin + size <= len(data) else None


def unmasked(data: bytes, begin: int, end: int) -> bytes:
    """The payload that stands there, behind its mask (RFC 6455, 5.3)."""
    size = end - begin
    mask = data[begin - _MASK_BYTES : begin]
    whole = int.from_bytes(data[begin:end], "little") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "little")
    return whole.to_bytes(size, "little")


def frame_bytes(data: bytes, at: int) -> int:
    """How long the frame is that begins there, with its head; 0 while too little of that is there to know."""
    head, payload = frame_parts(data, at)
    return head + payload


def frame_parts(data: bytes, at: int) -> tuple[int, int]:
    """The lengths of the head and the payload of the frame that begins there; 0 and 0 while they are not known yet."""
    if len(data) < at + 2:
        return 0, 0
    masked, size = divmod(data[at + 1], _MASKED)
    width = {_LENGTH_16: 2, _LENGTH_64: 8}.get(size, 0)
    if len(data) < at + 2 + width:
        return 0, 0
    if width:
        size = int.from_bytes(data[at + 2 : at + 2 + width])
    return 2 + width + _MASK_BYTES * masked, size


def is_control(data: bytes, at: int) -> bool:
    """Whether the frame that begins there is a control frame (5.5): no part of a message."""
    return bool(data[at] & _CONTROL)


def is_continuation(first: int) -> bool:
    """Whether a frame with that first byte is a further part of a message (5.4)."""
    return not first & _OPCODE


def binary_frame(body: bytes) -> bytes:
    """A message of a server."""
    size = len(body)
    if size < _LENGTH_16:
        return b"%c%c%b" % (BINARY, size, body)
    if size < 2**16:
        return _head_16(BINARY, _LENGTH_16, size) + body
    return _head_64(BINARY, _LENGTH_64, size) + body
