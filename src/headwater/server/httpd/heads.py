"""Heads of HTTP requests, and a cache of those that arrived whole.

A client sends the same head again and again, byte for byte, and parsing it takes longer than many requests. So a head
in the plainest form is parsed strictly, by its own parser, and remembered. Any other head is parsed by the connection's
parser: one that arrived in pieces, is long, or has a field that affects where the request ends."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import httptools

from ...http.browsers import HEAD, head_of

Field = tuple[bytes, bytes]

WHOLE_BYTES_MAX = 1024
"""The size limit of a cached head."""
HEADS_KEPT = 1024
_LENGTH_DIGITS = 9
_END = b"\r\n\r\n"
_FRAMING = frozenset({b"transfer-encoding", b"upgrade", b"expect", b"trailer", b"te", b"http2-settings"})
"""Fields that affect where a request ends, or which protocol follows. Heads with these fields are not cached."""


class Head:
    """The head of one request."""

    __slots__ = ("expects_continue", "keeps_alive", "length", "scope")

    def __init__(
        self, method: bytes, target: bytes, version: str, fields: list[Field], *, keeps_alive: bool, length: int = 0
    ) -> None:
        """`target` is the request's, in origin form. Names of `fields` are in lower case.

        `length` is that of the body, where the whole head is known. Raises httptools.HttpParserError,
        UnicodeDecodeError.
        """
        url = httptools.parse_url(target)
        path = url.path.decode("ascii")
        self.scope: dict[str, Any] = {
            "type": "http",
            "http_version": version,
            "method": method.decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": fields,
            HEAD: head_of(fields),
        }
        """The ASGI fields of this request only. Callers must not change it."""
        self.keeps_alive = keeps_alive and version != "1.0"
        expected = [value.lower() for name, value in fields if name == b"expect"]
        self.expects_continue = version >= "1.1" and b"100-continue" in expected  # RFC 9110, 10.1.1
        self.length = length


@lru_cache(HEADS_KEPT)
def whole_head(data: bytes) -> Head | None:
    """The head in `data`, up to its empty line; None if it is not in the plainest form.

    That form is HTTP/1.1, correct line ends, at most one Content-Length, no other field that affects where the request
    ends, and a connection that stays open. `data` has at most WHOLE_BYTES_MAX bytes.
    """
    if data.count(b"\n") != data.count(b"\r\n") or data.count(_END) != 1:
        return None
    reading = _Reading()
    try:
        head = reading.head_of(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade, UnicodeDecodeError):
        return None
    return head


class _Reading:
    """Collects what the parser reports of one head."""

    def __init__(self) -> None:
        self._parser: Any = None
        self._target = b""
        self._fields: list[Field] = []
        self._begun = self._heads = self._ended = 0
        self._has_body = self._keeps_alive = False

    def head_of(self, data: bytes) -> Head | None:
        parser = self._parser = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        length = self._length()
        if length is None or self._has_body or (self._begun, self._heads, self._ended) != (1, 1, not length):
            return None
        if parser.get_http_version() != "1.1" or not self._keeps_alive or parser.should_upgrade():
            return None
        target, fields = in_origin_form(self._target, self._fields, "1.1")
        return Head(parser.get_method(), target, "1.1", fields, keeps_alive=True, length=length)

    def _length(self) -> int | None:
        """The body length from the fields; None if they are not in the plainest form."""
        lengths = [value for name, value in self._fields if name == b"content-length"]
        if any(name in _FRAMING for name, _ in self._fields):
            return None
        if any(name == b"connection" and value.lower() != b"keep-alive" for name, value in self._fields):
            return None
        if not lengths:
            return 0
        (first, *more) = lengths
        return int(first) if not more and first.isdigit() and len(first) <= _LENGTH_DIGITS else None

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._heads += 1
        self._keeps_alive = self._parser.should_keep_alive()  # after a complete message it reports nothing

    def on_body(self, body: bytes) -> None:
        self._has_body = True

    def on_message_complete(self) -> None:
        self._ended += 1


def in_origin_form(target: bytes, fields: list[Field], version: str) -> tuple[bytes, list[Field]]:
    """Target and fields. A host in the target overrides the Host field (RFC 9112, 3.2.2).

    Raises httptools.HttpParserInvalidURLError.
    """
    if target.startswith(b"/"):
        return target, fields
    url = httptools.parse_url(target)
    if url.host is None:
        return target, fields
    name = b"[%b]" % url.host if b":" in url.host else url.host
    host = name if url.port is None else b"%b:%d" % (name, url.port)
    changed = [(name, host if name == b"host" else value) for name, value in fields]
    if version == "1.0" and not any(name == b"host" for name, _ in fields):
        changed.append((b"host", host))
    return (url.path or b"/") + (b"?" + url.query if url.query else b""), changed
