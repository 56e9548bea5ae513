"""Where the frames of a WebSocket begin and end (RFC 6455, 5.2); their payload is not read."""

from __future__ import annotations

_OPCODE, _CLOSE, _MASKED, _MASK_BYTES = 0x0F, 0x08, 0x80, 4
_LENGTH_WIDTHS = {126: 2, 127: 8}
"""The width of the extended payload length."""
REASON_BYTES_MAX = 123
"""The size limit of a close reason (5.5)."""


def frame_parts(data: bytes, at: int) -> tuple[int, int]:
    """The lengths of the head and the payload of the next frame; 0 and 0 while unknown."""
    if len(data) < at + 2:
        return 0, 0
    masked, size = divmod(data[at + 1], _MASKED)
    width = _LENGTH_WIDTHS.get(size, 0)
    if len(data) < at + 2 + width:
        return 0, 0
    if width:
        size = int.from_bytes(data[at + 2 : at + 2 + width])
    return 2 + width + _MASK_BYTES * masked, size


def cut_reason(reason: str) -> str:
    """As much of a close reason as is allowed."""
    return reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")


class PassedFrames:
    """The frames in one direction, as they pass through."""

    def __init__(self) -> None:
        self._rest = 0
        """Remaining bytes of the current frame."""
        self._head = b""
        """The first bytes of the next one, too few to know its length."""
        self._has_closed = False

    def see(self, data: bytes) -> None:
        """Process the next bytes."""
        at, data = 0, self._head + data
        self._head = b""
        while at < len(data):
            if not self._rest:
                self._rest = sum(frame_parts(data, at))
                if not self._rest:
                    self._head = data[at:]
                    return
                self._has_closed = self._has_closed or data[at] & _OPCODE == _CLOSE
            step = min(self._rest, len(data) - at)
            self._rest -= step
            at += step

    @property
    def may_close(self) -> bool:
        """Whether a close may follow: the last frame has passed completely, and was not a close."""
        return not (self._rest or self._head or self._has_closed)
