"""One HTTP request and its response, between a connection and an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from msgspec import Struct

from ...http import Message, Scope
from ...http.asgi import DONE, Later
from ...http.errors import BrokenOff
from .server_state import Date

logger = logging.getLogger("headwater.server")

JOINED_BYTES_MAX = 8 * 1024
"""Up to this size, the head of a response or chunk is joined with its body. Larger bodies are not copied."""
BODY_WAITING_MAX = 64 * 1024
"""The maximum number of body bytes that the application has not asked for. Above this, reading stops."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]{1,64}")
"""A field's name, in lower case (RFC 9110, 5.6.2)."""
_IN_VALUES = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])
"""The bytes that values consist of (5.5)."""
_NAMES_KEPT = 256
_FAILED = b"Internal Server Error"
_FAILED_FIELDS = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(_FAILED))]


def _status_line(status: int) -> bytes:
    known = status in HTTPStatus._value2member_map_
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode() if known else b"")


_STATUS_LINES = {status: _status_line(status) for status in range(100, 600)}


class _Names(dict[bytes, bytes]):
    """Beginnings of lines (`name: `) by names of header fields, as applications write them.

    Raises RuntimeError for an invalid name.
    """

    def __missing__(self, given: bytes) -> bytes:
        name = given.lower()
        if _NAME.fullmatch(name) is None:
            raise RuntimeError(f"invalid header field name: {given[:200]!r}")
        begin = name + b": "
        if len(self) < _NAMES_KEPT:
            self[given] = begin
        return begin


_NAMES = _Names()
_LENGTH, _CODING, _CONNECTION = b"content-length: ", b"transfer-encoding: ", b"connection: "
_FRAMING = frozenset({_LENGTH, _CODING, _CONNECTION})


class CycleConnection(Protocol):
    """What a cycle needs from its connection."""

    date: Date
    is_full: bool
    """Whether the peer is not reading what the server sends."""

    def write(self, data: bytes) -> None:
        """Send it, unless the connection is closing."""

    def write_parts(self, parts: list[bytes]) -> None:
        """Send the parts one after the other, without a copy, unless the connection is closing."""

    def close(self) -> None:
        """Close after what was sent."""

    async def drained(self) -> None:
        """Wait until the peer reads what the server sends, or has disconnected."""

    def hold_body(self, holds: bool) -> None:
        """Whether the application has received enough of a body for now."""

    def answered(self, end: bytes, keeps_alive: bool) -> None:
        """Send the end of the response, after which the connection may stay open or not."""


class HttpCycle(Struct, eq=False):
    """A request that is answered once. If the application breaks ASGI's rules, the response breaks off."""

    _connection: CycleConnection
    scope: Scope
    keeps_alive: bool
    _expects_continue: bool
    body: bytes | bytearray = bytearray()
    """Received data that the application has not taken; all of it, if the body is whole."""
    has_more: bool = True
    """Whether more of the body arrives later, by `add` and `end_body`."""
    has_news: bool = False
    """Whether there is data or an end that the application has not received."""
    _news: asyncio.Event | None = None
    """Created when the application waits for it."""
    is_started: bool = False
    """Whether the response has begun."""
    _is_chunked: bool = False
    _ends_with_connection: bool = False
    """Whether the end of the connection ends the body."""
    _body_left: int = 0
    """Bytes left of a response with a declared length."""
    _unsent: bytes = b""
    """The head of a response, until the first piece of its body."""
    is_complete: bool = False
    """Whether the response is complete."""
    is_disconnected: bool = False
    """Whether the connection was lost earlier."""

    # calls from the connection

    def add(self, piece: bytes) -> None:
        """Add received body data."""
        assert isinstance(self.body, bytearray), "the body has not been read yet"
        self.body += piece
        if len(self.body) > BODY_WAITING_MAX:
            self._connection.hold_body(True)
        self._tell()

    def end_body(self) -> None:
        """The body is complete."""
        self.has_more = False
        self._tell()

    def disconnect(self) -> None:
        """The connection is lost."""
        self.is_disconnected = not self.is_complete
        self.body = bytearray()  # no longer handed out
        self._tell()

    def _tell(self) -> None:
        self.has_news = True
        if self._news is not None:
            self._news.set()

    # calls from the application

    async def receive(self) -> Message:
        """See ASGI. Returns the body received so far, or the event that the client has disconnected or has its
        answer.
        """
        if self._expects_continue:
            self._expects_continue = False
            if not self.is_started:
                self._connection.write(_CONTINUE)
        if not self.has_news and not self.is_disconnected and not self.is_complete:
            await self._wait_for_news()
        self.has_news = False
        if self.is_disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, bytearray()
        return {"type": "http.request", "body": bytes(body), "more_body": self.has_more}

    def send(self, message: Message) -> Awaitable[None]:
        """See ASGI, and WHOLE. Waits while the client does not read; and after a piece of a response until the client
        has taken it, so that the next piece is made when there is room for it.

        Raises RuntimeError for an invalid response: it is out of order, has fields that HTTP cannot write, or has
        another length than declared."""
        if self._connection.is_full:
            return Later(partial(self._send_when_drained, message))
        if self.is_disconnected:
            return DONE
        if self.is_complete:
            raise RuntimeError(f"{message['type']} after the answer was complete")
        expected = "http.response.body" if self.is_started else "http.response.start"
        if message["type"] != expected:
            raise RuntimeError(f"expected {expected}, got {message['type']}")
        if self.is_started:
            has_more = message.get("more_body", False)
            self._send_body(message.get("body", b""), has_more=has_more)
            return Later(self._connection.drained) if has_more and self._connection.is_full else DONE
        self._start(message["status"], message.get("headers", ()))
        self.is_started = True
        if "body" in message:
            self._send_body(message["body"], has_more=False)
        return DONE

    async def _send_when_drained(self, message: Message) -> None:
        await self._connection.drained()
        await self.send(message)

    async def _wait_for_news(self) -> None:
        self._connection.hold_body(False)
        if self._news is None:
            self._news = asyncio.Event()
        self._news.clear()
        await self._news.wait()

    async def fail(self, error: BaseException | None) -> None:
        """The application raised that, or returned too early: the client gets 500, or the response breaks off."""
        if isinstance(error, BrokenOff):
            logger.info("%s %s: %s", self.scope["method"], self.scope["path"], error)
        elif error is not None:
            logger.error("the application failed", exc_info=error)
        else:
            which = " that is complete" if self.is_started else ""
            logger.error("the application returned without a response" + which)
        if self.is_started:
            self._connection.close()
            return
        fields = [*_FAILED_FIELDS, (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": 500, "headers": fields, "body": _FAILED})

    def _start(self, status: int, fields: Any) -> None:
        length: bytes | None = None
        says_close = False
        parts: list[bytes] = []
        for given, value in fields:
            begin = _NAMES[given]
            if begin in _FRAMING:
                if begin == _LENGTH:
                    length = value
                elif begin == _CODING:
                    self._is_chunked = value.lower() == b"chunked"
                else:
                    says_close = says_close or b"close" in [token.strip() for token in value.lower().split(b",")]
            parts += begin, value, b"\r\n"
        text = b"".join(parts)
        if text.translate(None, _IN_VALUES) != b"\r\n" * (len(parts) // 3):
            raise RuntimeError(f"invalid header fields: {text[:200]!r}")
        if self._expects_continue and self.has_more and not self.body:
            self.keeps_alive = False  # the client may or may not send its body now, so the next bytes are unknown
        self.keeps_alive = self.keeps_alive and not says_close
        if not self.keeps_alive and not says_close:
            text += b"connection: close\r\n"
        if length is not None and not self._is_chunked:
            self._body_left = int(length)
        elif not self._is_chunked and self.scope["method"] != "HEAD" and status not in (204, 304):
            self._ends_with_connection = (
                self.scope["http_version"] < "1.1"
            )  # that version has no chunks (RFC 9112, 6.1)
            if not self._ends_with_connection:
                self._is_chunked = True
                text += b"transfer-encoding: chunked\r\n"
        date = self._connection.date
        if not 0 <= time.time() - date.at < 1:
            date.renew()
        head = b"".join((_STATUS_LINES[status], date.line, text, b"\r\n"))
        if self._is_chunked or self._ends_with_connection:
            self._connection.write(head)  # a stream may have nothing else to send for a long time
        else:
            self._unsent = head

    def _send_body(self, body: bytes, *, has_more: bool) -> None:
        if self.scope["method"] == "HEAD":
            self._body_left, body = 0, b""
        elif self._is_chunked and has_more and len(body) > JOINED_BYTES_MAX:
            self._connection.write_parts([b"%x\r\n" % len(body), body, b"\r\n"])
            return
        elif self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body = body if has_more else body + b"0\r\n\r\n"
        elif not self._ends_with_connection:
            self._body_left -= len(body)
            if self._body_left < 0:
                raise RuntimeError("the body is longer than its Content-Length")
            if not has_more and self._body_left:
                raise RuntimeError("the body is shorter than its Content-Length")
        if self._unsent and len(body) <= JOINED_BYTES_MAX:
            body = self._unsent + body
        elif self._unsent:
            self._connection.write(self._unsent)
        self._unsent = b""
        if has_more:
            if body:
                self._connection.write(body)
            return
        self.is_complete = True
        if self._news is not None:
            self._news.set()
        self._connection.answered(body, self.keeps_alive)
