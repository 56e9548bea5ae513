"""A thread that makes pieces of a file durable, one at a time, so that an event loop need not wait for the disk.

It belongs to the extension and never asks for the interpreter lock. The end of a piece makes an eventfd readable.
"""

from __future__ import annotations

import os
import select

from ...speedups import IS_NATIVE

if IS_NATIVE:
    from ...speedups import _native

HAS_WRITER = IS_NATIVE and hasattr(_native, "writer")
"""Whether there is such a thread: in builds with the extension, on Linux."""


class BackgroundWriter:
    """One thread. Use it from one thread at a time."""

    def __init__(self) -> None:
        """Start the thread. Raises OSError."""
        self.ended = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable from the end of a piece until `has_ended`."""
        self._content = b""
        """The piece, as long as the thread needs it."""
        try:
            self._start()
        except OSError:
            os.close(self.ended)
            raise

    def _start(self) -> None:
        self._writer = _native.writer(self.ended)

    def begin(self, fd: int, content: bytes, offset: int) -> None:
        """Write a piece and sync it, like `Disk.write_durably`. The last one has ended."""
        self._content = content
        _native.write_behind(self._writer, fd, content, offset)

    def has_ended(self, *, waits: bool = False) -> bool:
        """Whether the piece is durable; False while it is being written, unless the call `waits`.

        Once a call has returned True or raised an error, only the next piece can end. Raises OSError: the content of
        the disk is unknown.
        """
        if waits:
            waiting = select.poll()
            waiting.register(self.ended, select.POLLIN)
            waiting.poll()
        try:
            failure = os.eventfd_read(self.ended) - 1
        except BlockingIOError:
            return False
        if failure:
            raise OSError(failure, os.strerror(failure))
        return True

    def close(self) -> None:
        """End the thread. No piece is under way."""
        self._end()
        os.close(self.ended)

    def _end(self) -> None:
        _native.write_behind(self._writer, -1, b"", 0)
