"""Parses one answer as it arrives (RFC 9112): bytes in, its fields and its body out. No I/O; uses httptools."""

from __future__ import annotations

import re
from typing import NamedTuple

import httptools

KNOWN_MAX = 4
"""How many heads a connection knows; a further one replaces the oldest."""
_LENGTH = b"\r\ncontent-length: "
_NUMBERS = re.compile(rb"([0-9]{1,18})\r\n(?:headwater-head: ([0-9]{1,18})\r\n)?")
"""The numbers in which one head differs from the next: the length, and the head of the log if it comes next."""


class NotHttp(ValueError):
    """The input is not an HTTP/1 answer."""


class _KnownHead(NamedTuple):
    """A parsed head, and with it all heads that differ from it only in digits of _NUMBERS."""

    start: bytes
    """The bytes before the numbers."""
    numbers: int
    """How many they are."""
    rest: bytes
    """The bytes after them, with the empty line."""
    status: int
    fields: dict[bytes, bytes]


class KnownHeads:
    """The last heads of answers on one connection. A server repeats them within a second, except for two numbers.

    Such a head means the same as the one that was parsed, apart from these numbers:

    - Each line of the parsed head was one field, `name: value`, and each name occurred once. So the numbers are values.
    - Of the values that differ, a parser uses only Content-Length: as the length of the body.
    - The parsed head had a body of that length, not an empty one, and its connection stayed open. So it belongs to a
      final answer with content, which is framed by Content-Length alone and does not end the connection.

    Only an answer that is whole in the first data received is recognised. Any other is parsed from its first byte.
    """

    def __init__(self) -> None:
        self.all: tuple[_KnownHead, ...] = ()

    def learn(self, data: bytes, answer: Answer) -> None:
        """Remember the head of a whole answer, parsed strictly from `data`, that leaves its connection open."""
        head, _, body = data.partition(b"\r\n\r\n")
        lines = [line.partition(b": ") for line in head.split(b"\r\n")[1:]]
        fields = [(name.lower(), value) for name, _, value in lines]
        if answer.pieces != [body] or list(answer.fields.items()) != fields:
            return
        start, length, rest = data[: len(data) - len(body)].partition(_LENGTH)
        found = _NUMBERS.match(rest)
        if found is not None and int(found[1]) == len(body):
            after, copied = rest[found.end() :], answer.fields.copy()
            known = _KnownHead(start + length, found.lastindex or 0, after, answer.status, copied)
            self.all = (known, *self.all[: KNOWN_MAX - 1])


class Answer:
    """An answer and the part of it received so far."""

    __slots__ = (
        "_has_begun",
        "_is_lenient",
        "_known",
        "_parser",
        "fields",
        "interim",
        "is_complete",
        "is_reusable",
        "pieces",
        "status",
    )

    def __init__(self, known: KnownHeads | None = None, *, is_lenient: bool = False) -> None:
        """`known`: the heads of its connection, if its parser is strict.

        A lenient parser accepts deviations that harm only the sender, such as lines ending with LF (RFC 9112, 2.2).
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
        self._known, self._is_lenient = known, is_lenient
        self._parser: httptools.HttpResponseParser
        """Begins with the first data, if that is no whole answer with a known head."""
        self._has_begun = False

    def receive_data(self, data: bytes) -> None:
        """Process received data. Raises NotHttp."""
        if self.is_complete:
            self.is_reusable = False
            return
        if self._has_begun:
            self._parse(data)
            return
        self._has_begun = True
        for start, numbers, rest, status, fields in self._known.all if self._known is not None else ():
            if not data.startswith(start):
                continue
            found = _NUMBERS.match(data, len(start))
            if found is None or found.lastindex != numbers or not data.startswith(rest, found.end()):
                continue
            body = data[found.end() + len(rest) :]
            if len(body) == int(found[1]):
                self.status, self.is_complete, self.is_reusable = status, True, True
                self.fields = fields = fields.copy()
                fields[b"content-length"] = found[1]
                if numbers == 2:
                    fields[b"headwater-head"] = found[2]
                if body:
                    self.pieces.append(body)
                return
        self._parser = httptools.HttpResponseParser(self)
        if self._is_lenient:
            self._parser.set_dangerous_leniencies(
                lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
            )
        self._parse(data)
        if self.is_reusable and self._known is not None:
            self._known.learn(data, self)

    def _parse(self, data: bytes) -> None:
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
