"""Parses a response from the primary as it arrives (RFC 9112). It converts bytes to a head and pieces of the body,
without I/O.
"""

from __future__ import annotations

from collections import deque

import httptools

from ....http import Header

HEAD_BYTES_MAX = 64 * 1024
"""The size limit of everything before the body."""
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class NotHttp(ValueError):
    """The input is not a response to the request."""


class ForwardedAnswer:
    """One answer. Interim answers (1xx) are only counted in `is_continued`; trailers are dropped."""

    def __init__(self, method: str, version: str = "1.1", *, is_upgrade: bool = False) -> None:
        """`method` and `version` are those of the request; `is_upgrade`: the request asks for a WebSocket."""
        self.status = 0
        """The status once the head is complete; 0 before."""
        self.fields: list[Header] = []
        """All header fields, in order; names are in lower case."""
        self.held_bytes = 0
        """The size of received pieces that have not been taken yet."""
        self.is_continued = self.is_complete = self.is_reusable = False
        """Whether the primary asked for the body (100); whether the answer is complete; whether its connection can be
        reused.
        """
        self.rest = b""
        """Input after the head of a 101 response, which belongs to the other protocol."""
        self._is_head, self._is_upgrade, self._ends_with_connection = method == "HEAD", is_upgrade, version == "1.0"
        self._pieces: deque[bytes] = deque()
        self._head_bytes = 0
        self._in_head = False
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def receive_data(self, data: bytes | memoryview) -> None:
        """Process received data. Raises NotHttp."""
        if self._parser is None:
            raise NotHttp("data after the end of a response")
        if not self.status:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                raise NotHttp(f"more than {HEAD_BYTES_MAX} bytes before the body of a response")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.status != 101:
                raise NotHttp("an unrequested protocol upgrade") from None
            self.rest, self.is_complete = bytes(data[upgrade.args[0] :]), True
        except httptools.HttpParserError as error:
            if not self.is_complete:
                raise NotHttp(str(error)) from None
            self.is_reusable = False
        if self.is_complete:
            self._parser = None  # it refers to this

    def receive_eof(self) -> None:
        """Process the end of input, which completes an answer only if it is HTTP/1.0 without a length."""
        is_open = self.status and not self.is_complete and self._ends_with_connection
        if is_open and not any(name in _FRAMING for name, _ in self.fields):
            self.is_complete = True

    @property
    def has_more(self) -> bool:
        """Whether another piece is or will be available."""
        return bool(self._pieces) or not self.is_complete

    def take(self) -> bytes:
        """All pieces received so far, as one."""
        taken = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self.held_bytes = 0
        return taken

    def give_up(self) -> None:
        """Stop parsing, and break reference cycles."""
        self._parser = None

    # httptools

    def on_message_begin(self) -> None:
        """See httptools."""
        self._in_head = True
        if self.is_complete:
            self.is_reusable = False  # a response without a request

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        if self._in_head and not self.is_complete:
            self.fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._in_head = False
        if self.is_complete or self._parser is None:
            return
        status = int(self._parser.get_status_code())
        if status >= 200 or (status == 101 and self._is_upgrade):
            self.status = status
            if self._is_head:
                self.is_complete, self.is_reusable = True, self._stays_open(self._parser.get_http_version())
        else:
            self.is_continued = self.is_continued or status == 100

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        if not self.is_complete:
            self._pieces.append(body)
            self.held_bytes += len(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        if self.is_complete or self._parser is None:
            return
        if self.status >= 200:
            self.is_complete, self.is_reusable = True, bool(self._parser.should_keep_alive())
        elif not self.status:
            self.fields.clear()

    def _stays_open(self, version: str) -> bool:
        closes = any(name == b"connection" and b"close" in value.lower() for name, value in self.fields)
        return version == "1.1" and not closes
