"""Parses one answer as it arrives (RFC 9112): bytes in, its fields and its body out. No I/O; uses httptools."""

from __future__ import annotations

import httptools


class NotHttp(ValueError):
    """The input is not an HTTP/1 answer."""


class Answer:
    """An answer and the part of it received so far."""

    __slots__ = (
        "_parser",
        "fields",
        "interim",
        "is_complete",
        "is_reusable",
        "pieces",
        "status",
    )

    def __init__(self, *, is_lenient: bool = False) -> None:
        """A lenient parser accepts deviations that harm only the sender, such as lines ending with LF (RFC 9112,
        2.2).
        """
        self.status = 0
        """The status once the head is complete; 0 before."""
        self.interim = 0
        """Interim answers (1xx) received before."""
        self.pieces: list[bytes] = []
        """Received pieces of the body that have not been taken yet."""
        self.is_complete = False
        self.is_reusable = False
        """Whether the connection may carry another request after this answer."""
        self.fields: dict[bytes, bytes] = {}
        """Header fields by name, in lower case; the last one of each name."""
        self._parser = httptools.HttpResponseParser(self)
        if is_lenient:
            self._parser.set_dangerous_leniencies(
                lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
            )

    def receive_data(self, data: bytes) -> None:
        """Process received data. Raises NotHttp."""
        if self.is_complete:
            self.is_reusable = False
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise NotHttp("it switched to another protocol without a request to do so") from None
        except httptools.HttpParserError as error:
            if not self.is_complete:
                raise NotHttp(str(error)) from None
            self.is_reusable = False
        if self.is_complete:
            del self._parser  # it refers to this object, so both would remain in memory until a garbage collection

    def receive_eof(self) -> None:
        """End of input: ends a body without a declared length (RFC 9112, 6.3), and no other."""
        if self.status and not self.is_complete:
            coding = self.fields.get(b"transfer-encoding", b"").lower()
            self.is_complete = b"content-length" not in self.fields and b"chunked" not in coding

    def body(self) -> bytes:
        """The body received since the last call; all of it, if the answer is complete and none was taken."""
        pieces = self.pieces
        if not pieces:
            return b""
        self.pieces = []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def retry_after_s(self) -> float | None:
        """The value of `Retry-After`, in seconds."""
        value = self.fields.get(b"retry-after", b"")
        return float(value) if value.isdigit() else None

    # httptools

    def on_message_begin(self) -> None:
        """See httptools. Called also for unrequested answers."""
        self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        if not self.is_complete:
            self.fields[name.lower()] = value

    def on_headers_complete(self) -> None:
        """See httptools; more follows after the head of a 1xx (RFC 9110, 15.2)."""
        status = int(self._parser.get_status_code())
        if not self.is_complete and status >= 200:
            self.status = status

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        if not self.is_complete:
            self.pieces.append(body)

    def on_message_complete(self) -> None:
        """See httptools, which only now knows whether the connection is kept."""
        if self.is_complete:
            return
        if self.status:
            self.is_complete, self.is_reusable = True, bool(self._parser.should_keep_alive())
        else:
            self.interim += 1
            self.fields.clear()
