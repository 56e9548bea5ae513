"""One answer as it comes in (RFC 9112): bytes in, its fields and its body out. No I/O.

Most answers are plain: their head comes in one piece, every field is a name and some printable text, and the length of
the body is said, or it is a 204, which has none. Of these the end of the head is found by a search; all others are the
parser's (httptools), in which they begin anew. What the quick way reads, the parser reads alike.
"""

from __future__ import annotations

import re

import httptools

PLAIN_HEAD_BYTES_MAX = 4096
_HARMLESS = (
    rb"(?:(?i:connection: keep-alive)\r\n|"
    rb"(?![CcTtUuPp](?i:ontent-length|ransfer-encoding|onnection|pgrade|railer|roxy-connection):)"
    rb"[A-Za-z0-9-]++: [!-~][ -~]*+(?<! )\r\n)*+"
)
"""Fields that say neither how long the body is nor how long the connection lasts; nothing folded, empty or obscure."""
_PLAIN_HEAD = re.compile(
    rb"HTTP/1\.1 (?!204|304)([2-5][0-9][0-9]) [ -~]*+\r\n"
    rb"(" + _HARMLESS + rb"(?i:content-length): ([0-9]{1,15})\r\n" + _HARMLESS + rb")\r\n"
)
"""The length of the body is said once."""
_NO_CONTENT = re.compile(
    rb"HTTP/1\.1 204 [ -~]*+\r\n(" + _HARMLESS + rb"(?:(?i:content-length): 0\r\n" + _HARMLESS + rb")?+)\r\n"
)


class NotHttp(ValueError):
    """What came is no answer in HTTP/1."""


class Answer:
    """An answer, and how much of it has come."""

    __slots__ = (
        "_fields",
        "_is_lenient",
        "_lines",
        "_missing",
        "_parser",
        "interim",
        "is_complete",
        "is_reusable",
        "pieces",
        "status",
    )

    def __init__(self, *, is_lenient: bool = False) -> None:
        """A lenient one takes what harms only who sends it, such as lines that end with LF (RFC 9112, 2.2)."""
        self._is_lenient = is_lenient
        self.status = 0
        """Of a head that is complete; 0 before."""
        self.interim = 0
        """Interim answers (1xx) that came before."""
        self.pieces: list[bytes] = []
        """Of the body, those that nobody took yet."""
        self.is_complete = False
        self.is_reusable = False
        """Whether the connection may carry another request after this answer."""
        self._missing = 0
        self._parser: _Parser | None = None
        self._lines = b""
        """Those of a plain head, as long as nobody asked for a field."""
        self._fields: dict[bytes, bytes] = {}

    @property
    def fields(self) -> dict[bytes, bytes]:
        """Header fields by name, in lower case; of several of one name the last."""
        if self._lines:
            for line in self._lines.splitlines():
                name, _, value = line.partition(b": ")
                self._fields[name.lower()] = value
            self._lines = b""
        return self._fields

    def receive_data(self, data: bytes) -> None:
        """What came next. Raises NotHttp."""
        if self._parser is not None:
            self._parser.receive_data(data)
        elif self._missing:
            self._take(data)
        elif self.is_complete:
            self.is_reusable = False  # nobody asked for this
        elif not self._takes_plain(data):
            self._parser = _Parser(self, self._is_lenient)
            self._parser.receive_data(data)

    def receive_eof(self) -> None:
        """Nothing more comes: the end of a body whose length was not said (RFC 9112, 6.3), and of no other."""
        if self.status and self._parser is not None and not self.is_complete:
            coding = self.fields.get(b"transfer-encoding", b"").lower()
            self.is_complete = b"content-length" not in self.fields and b"chunked" not in coding

    def body(self) -> bytes:
        """What came of the body since it was last asked for; all of it, if the answer is complete and was not asked."""
        pieces = self.pieces
        if not pieces:
            return b""
        self.pieces = []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def retry_after_s(self) -> float | None:
        """What `Retry-After` asks for, in seconds."""
        value = self.fields.get(b"retry-after", b"")
        return float(value) if value.isdigit() else None

    def _takes_plain(self, data: bytes) -> bool:
        found = _PLAIN_HEAD.match(data, 0, PLAIN_HEAD_BYTES_MAX)
        if found is not None:
            status, self._lines, length = found.groups()
            self.status, self._missing = int(status), int(length)
        elif (found := _NO_CONTENT.match(data, 0, PLAIN_HEAD_BYTES_MAX)) is not None:
            self.status, self._lines = 204, found[1]
        else:
            return False
        self._take(data[found.end() :])
        return True

    def _take(self, data: bytes) -> None:
        """A part of the body whose length is known."""
        missing = self._missing - len(data)
        if missing > 0:
            self._missing = missing
        else:
            self._missing, self.is_complete, self.is_reusable = 0, True, missing == 0
            if missing:
                data = data[:missing]  # what is behind it was not asked for
        if data:
            self.pieces.append(data)


class _Parser:
    """The way of all that is not plain; httptools calls the `on_` methods."""

    __slots__ = ("_answer", "_parser")

    def __init__(self, answer: Answer, is_lenient: bool = False) -> None:
        self._answer = answer
        self._parser = httptools.HttpResponseParser(self)
        if is_lenient:
            self._parser.set_dangerous_leniencies(
                lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
            )

    def receive_data(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise NotHttp("it changes the protocol, which nobody asked for") from None
        except httptools.HttpParserError as error:
            if not self._answer.is_complete:
                raise NotHttp(str(error)) from None
            self._answer.is_reusable = False

    def on_message_begin(self) -> None:
        """Called by the parser: also for what nobody asked for."""
        self._answer.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if not self._answer.is_complete:
            self._answer.fields[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Called by the parser; there is more to come after a head of 1xx (RFC 9110, 15.2)."""
        answer, status = self._answer, int(self._parser.get_status_code())
        if not answer.is_complete and status >= 200:
            answer.status = status

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        if not self._answer.is_complete:
            self._answer.pieces.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser, which knows only now whether the connection is kept."""
        answer = self._answer
        if answer.is_complete:
            return
        if answer.status:
            answer.is_complete, answer.is_reusable = True, bool(self._parser.should_keep_alive())
        else:
            answer.interim += 1
            answer.fields.clear()
