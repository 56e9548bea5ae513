"""One WebSocket between a connection and an ASGI application: what each may send, and when.

| phase | the application may | next phase |
| --- | --- | --- |
| asked | accept | open |
| | close (the peer gets 403), or begin an HTTP response | over, or answering |
| answering | continue that response | over, with its last piece |
| open | send messages, close | over, when either side closes or the connection is lost |
| over | nothing: sending raises | |

Messages before the end are received first; every later call receives the end.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Sequence
from email.utils import formatdate
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Protocol

from websockets.datastructures import Headers
from websockets.frames import CloseCode
from websockets.http11 import Response

from ...http import Application, Message, Scope
from ...http.asgi import HELD, MEMORY

logger = logging.getLogger("headwater.server")

_UNWRITABLE = re.compile(r"[\r\n\0]")
Fields = list[tuple[str, str]]


class Left(OSError):
    """The peer has disconnected, or was disconnected. Nothing reaches it."""


class Phase(Enum):
    """The phase of a WebSocket: see the table above."""

    ASKED = auto()
    ANSWERING = auto()
    OPEN = auto()
    OVER = auto()


class WebSocketConnection(Protocol):
    """What a cycle needs from its connection."""

    is_full: bool
    """Whether the peer is not reading what the server sends."""

    async def drained(self) -> None:
        """Wait until the peer reads what the server sends, or has disconnected."""

    def accept(self, fields: Fields) -> None:
        """Open the WebSocket, with these additional header fields."""

    def refuse(self, response: Response) -> None:
        """Send that response instead, and close the connection."""

    def send(self, data: bytes, *, is_text: bool) -> None:
        """Send a message; text is UTF-8."""

    def close(self, code: int, reason: str) -> None:
        """Close the WebSocket, and close the connection after the peer has answered."""

    def read_on(self) -> None:
        """The application has taken all messages."""


class WebSocketCycle:
    """A WebSocket request, and the WebSocket that it opens."""

    __slots__ = (
        "_answer", "_body", "_connection", "_farewell", "_has_closed", "_messages", "_news", "_taken", "phase", "scope",
    )  # fmt: skip

    def __init__(self, connection: WebSocketConnection, scope: Scope) -> None:
        self._connection = connection
        self.scope = scope
        self.phase = Phase.ASKED
        self._messages: deque[Message] = deque([{"type": "websocket.connect"}])
        self._taken: Message = {}
        """The application's current message. Its part of the share is released with the next one."""
        self._farewell: Message | None = None
        """The final message, once the WebSocket has ended."""
        self._has_closed = False
        """Whether the application ended it. Sending after that is an error in the application."""
        self._news = asyncio.Event()
        self._answer: tuple[int, Fields] = (0, [])
        self._body = b""

    # calls from the connection

    @property
    def waiting(self) -> int:
        """The number of messages that the application has not taken yet."""
        return len(self._messages)

    def add(self, message: Message) -> None:
        """Add a received message. After the end it is ignored."""
        if self.phase is not Phase.OVER:
            self._messages.append(message)
            self._news.set()
        else:
            self._give_back(message)

    def end(self, code: int, reason: str = "") -> None:
        """End it; the first call sets the reason."""
        self.phase = Phase.OVER
        if self._farewell is None:
            self._farewell = {"type": "websocket.disconnect", "code": code, "reason": reason}
            self._news.set()

    # calls from the application

    async def run(self, application: Application) -> None:
        """Run the application. If it fails or ends too early, this is logged, and the peer gets a close or a 500."""
        code = CloseCode.NORMAL_CLOSURE
        try:
            await application(self.scope, self.receive, self.send)
        except Left:
            pass
        except BaseException as error:  # including a cancellation, because nothing else ends this connection
            logger.error("the application failed", exc_info=error)
            code = CloseCode.INTERNAL_ERROR
        else:
            if self.phase in (Phase.ASKED, Phase.ANSWERING):
                logger.error("the application returned without accepting or closing a WebSocket")
        for message in (self._taken, *self._messages):
            self._give_back(message)
        self._messages.clear()
        if self.phase is Phase.OPEN:
            self._connection.close(code, "")
        elif self.phase is not Phase.OVER:
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, [], b"Internal Server Error")

    async def receive(self) -> Message:
        """See ASGI: the request, each message, and finally the end."""
        self._give_back(self._taken)
        while not self._messages:
            if self._farewell is not None:
                return dict(self._farewell)
            self._news.clear()
            await self._news.wait()
        message = self._taken = self._messages.popleft()
        if not self._messages:
            self._connection.read_on()
        return message

    async def send(self, message: Message) -> None:
        """See ASGI. Waits while the peer does not read.

        Raises OSError if the peer has disconnected; RuntimeError for a message out of order, or with header fields that
        HTTP cannot write.
        """
        if self._connection.is_full:
            await self._connection.drained()
        kind = message["type"]
        match self.phase:
            case Phase.OPEN:
                self._send(kind, message)
            case Phase.ASKED:
                self._send_answer(kind, message)
            case Phase.ANSWERING:
                self._send_body(kind, message)
            case Phase.OVER if self._has_closed:
                raise RuntimeError(f"{kind} after the application closed the WebSocket")
            case Phase.OVER:
                raise Left("the peer has disconnected")

    def refuse(self, status: int, fields: Fields, body: bytes) -> None:
        """Answer the WebSocket request in HTTP."""
        headers = Headers(fields)
        headers.setdefault("Date", formatdate(usegmt=True))
        headers.setdefault("Connection", "close")
        headers.setdefault("Content-Length", str(len(body)))
        headers.setdefault("Content-Type", "text/plain; charset=utf-8")
        known = status in HTTPStatus._value2member_map_
        self.end(CloseCode.ABNORMAL_CLOSURE)
        self._connection.refuse(Response(status, HTTPStatus(status).phrase if known else "", headers, body))

    def _give_back(self, message: Message) -> None:
        """Release a message's part of the connection's share."""
        if held := message.pop(HELD, 0):
            self.scope[MEMORY].give(held)

    def _send(self, kind: str, message: Message) -> None:
        if kind == "websocket.send":
            data: bytes | None = message.get("bytes")
            if data is None:
                self._connection.send(message["text"].encode(), is_text=True)
            else:
                self._connection.send(data, is_text=False)
        elif kind == "websocket.close":
            self._connection.close(message.get("code", CloseCode.NORMAL_CLOSURE), message.get("reason") or "")
            self._has_closed = True
        else:
            raise RuntimeError(f"expected websocket.send or websocket.close, got {kind}")

    def _send_answer(self, kind: str, message: Message) -> None:
        if kind == "websocket.accept":
            fields = _written(message.get("headers", ()))
            if chosen := message.get("subprotocol"):
                fields.append(("Sec-WebSocket-Protocol", chosen))
            self.phase = Phase.OPEN
            self._connection.accept(fields)
        elif kind == "websocket.close":
            self._has_closed = True
            self.refuse(HTTPStatus.FORBIDDEN, [], b"")
        elif kind == "websocket.http.response.start":
            status = message["status"]
            if not 200 <= status < 600:
                raise RuntimeError(f"{status} is not the status of a final response")
            self._answer = status, _written(message.get("headers", ()))
            self.phase = Phase.ANSWERING
        else:
            raise RuntimeError(
                f"expected websocket.accept, websocket.close or websocket.http.response.start, got {kind}"
            )

    def _send_body(self, kind: str, message: Message) -> None:
        if kind != "websocket.http.response.body":
            raise RuntimeError(f"expected websocket.http.response.body, got {kind}")
        self._body += message.get("body", b"")
        if not message.get("more_body", False):
            self._has_closed = True
            self.refuse(*self._answer, self._body)


def _written(fields: Sequence[Any]) -> Fields:
    """Header fields as text. Raises RuntimeError if one line would become two."""
    written = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]
    for field in written:
        if any(_UNWRITABLE.search(part) for part in field):
            raise RuntimeError(f"invalid header field: {field!r}")
    return written
