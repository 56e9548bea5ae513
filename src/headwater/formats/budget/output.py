"""Writes long bytes span by span, because a copy of 60 MiB in one step takes 40 ms, and 300 ms next to a busy
process.
"""

from __future__ import annotations

from io import BytesIO

from ...core.loop.slices import Slices

SPAN_BYTES = 128 * 1024
"""How many bytes one call approximately copies, checks or decodes."""


class Output:
    """Bytes that are written in spans into preallocated space, because a growing buffer is sometimes copied in one
    step.
    """

    def __init__(self, size: int) -> None:
        """At most `size` bytes will be written."""
        self._out = BytesIO(bytes(size))

    def write(self, content: bytes) -> None:
        """Append a short piece."""
        self._out.write(content)

    async def copy(self, content: bytes, start: int, end: int, slices: Slices) -> None:
        """Append a part of the content, in spans."""
        view = memoryview(content)
        for at in range(start, end, SPAN_BYTES):
            self._out.write(view[at : min(at + SPAN_BYTES, end)])
            await slices.pause()

    def value(self) -> bytes:
        """The written bytes."""
        self._out.truncate()
        return self._out.getvalue()
