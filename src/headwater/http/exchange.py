"""One HTTP request and its answer: header fields, content negotiation, body, parameters, streaming, problems."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from ..core.limits import SEQUENCE_NUMBER_MAX, show
from ..core.loop.memory import MemoryAccount, Share
from ..formats.problem import MEDIA_TYPE, Problem
from .asgi import DONE, HELD, MEMORY, WHOLE, Header, Message, Receive, Scope, Send
from .body_memory import SMALL_BYTES, largest_within, memory_of
from .errors import (
    BodyTooLarge,
    BrokenOff,
    CodedBody,
    Disconnected,
    HttpVersionTooOld,
    InvalidParameter,
    UnsupportedMediaType,
)

DROPS_AT_MOST = "drops_at_most"
"""The parameter of requests that may drop events."""
_DIGITS_MAX = len(str(SEQUENCE_NUMBER_MAX))


def whole_number(parameters: Mapping[str, str], name: str) -> int | None:
    """The parameter as a whole number from 0, or None if it is absent. Raises InvalidParameter."""
    text = parameters.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise InvalidParameter(name, f"expected 0 to {SEQUENCE_NUMBER_MAX}, got {show(text)}")
    return int(text)


def drops_at_most(parameters: Mapping[str, str]) -> int:
    """The number of events that the request may drop, according to that parameter; none by default.

    Raises InvalidParameter.
    """
    return whole_number(parameters, DROPS_AT_MOST) or 0


ACCEPT_BYTES_MAX = 4096
"""The number of bytes of an Accept header that are read: more than real clients send."""


def preferred(accept: bytes | None, offered: Mapping[str, str], otherwise: str) -> str:
    """The form that an Accept header prefers; `otherwise` if it prefers none.

    `offered` maps media types, in lower case, to forms; several may map to one form. One with a parameter
    (`type/subtype;name=value`) matches if the header has that parameter; the header's other parameters are ignored. At
    most ACCEPT_BYTES_MAX of the header are read.
    """
    best, best_quality = otherwise, 0.0
    for part in (accept or b"")[:ACCEPT_BYTES_MAX].decode("latin-1").lower().replace('"', "").split(","):
        media_range, *parameters = [piece.strip() for piece in part.split(";")]
        quality = next((_quality(each[2:]) for each in parameters if each.startswith("q=")), 1.0)
        forms = [f"{media_range};{each}" for each in parameters]
        found = next((each for each in (*forms, media_range) if each in offered), None)
        if found is not None and quality > best_quality:
            best, best_quality = offered[found], quality
    return best


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


JSON = b"application/json"
PROBLEM = MEDIA_TYPE.encode()
BODY_BYTES_MAX = 1024 * 1024
"""The default for routes without a separate limit."""
_LONG_BYTES = 4 * 1024 * 1024
"""When this much of a body has arrived, space for the longest allowed body is allocated."""
COLLECTED_BYTES_MAX = 8 * 1024 * 1024
"""Limit for a streamed answer to HTTP/1.0, which is collected and sent whole; a longer one is refused."""
EVENT_STREAM = b"text/event-stream; charset=utf-8"
"""Its events are always UTF-8. Without the parameter, some clients decode it as Latin-1, like other text."""

as_json = msgspec.json.Encoder().encode
"""A value as JSON: the body of most answers."""


def _with_space(grown: BytesIO, size: int) -> BytesIO:
    """The same buffer with space for `size` bytes.

    An allocator that moves a grown buffer copies up to 32 MiB in one step; unused space takes no memory.
    """
    spacious = BytesIO(bytes(size))
    spacious.write(grown.getbuffer())
    return spacious


class _Collected:
    """The pieces received so far of an answer that is sent whole at its end."""

    def __init__(self, fields: list[Header], hold: Callable[[int], None]) -> None:
        self.fields, self._hold = fields, hold
        self.pieces: deque[bytes] = deque()
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Add a piece. Raises HttpVersionTooOld, and keeps nothing, if the total is too long; NoMemory."""
        self.size += len(piece)
        if self.size > COLLECTED_BYTES_MAX:
            self.pieces.clear()
            raise HttpVersionTooOld(COLLECTED_BYTES_MAX)
        if piece:
            self._hold(len(piece))
            self.pieces.append(piece)


class Exchange(Struct, eq=False):
    """A request and its only answer."""

    heeds_length: ClassVar[bool] = True
    """Whether a body is refused unread if its length is too large. A client that sends first and reads later may then
    get a broken connection and no answer."""

    scope: Scope
    _receive: Receive
    _send: Send
    arguments: Sequence[str] = ()
    """The values of the route's path parameters, in order, percent-decoded."""
    body_bytes_max: int = BODY_BYTES_MAX
    """The longest body that is read, as set by the route; its handler may lower it before reading the body."""
    user_name: str = ""
    """The user's name, after the host has determined the user; empty if unknown or ANYBODY."""
    expires_at: float | None = None
    """When the user's login expires (seconds since 1970), if it does: a stream ends with it."""
    has_started: bool = False
    """Whether the status line was sent, so that no other answer is possible."""
    _collected: _Collected | None = None

    @property
    def peer(self) -> str:
        """The client's address, for the log."""
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def share(self) -> Share:
        """The memory that the connection may hold. Under a server that does not count memory, nothing is refused."""
        found = self.scope.get(MEMORY)
        if found is None:
            account = MemoryAccount(2**62)
            found = self.scope[MEMORY] = Share(account)
            found.belong(account.owner(self.peer))
        return found

    @property
    def login_s(self) -> float | None:
        """The number of seconds for which the login is still valid, at least 0; None = forever."""
        return None if self.expires_at is None else max(0.0, self.expires_at - time.time())

    @property
    def certificate(self) -> str:
        """The name in the client's certificate, if TLS has verified one; else empty."""
        tls: dict[str, Any] = (self.scope.get("extensions") or {}).get("tls") or {}
        return tls.get("client_cert_name") or ""

    def header(self, name: bytes) -> bytes | None:
        """The first header field of that (lower-case) name."""
        for found, value in self.scope["headers"]:
            if found == name:
                return value  # type: ignore[no-any-return]
        return None

    def media_type(self) -> str:
        """The content type without its parameters, in lower case; empty if there is none."""
        value = self.header(b"content-type")
        return "" if value is None else value.partition(b";")[0].strip().lower().decode("latin-1")

    async def body(self) -> bytes:
        """The whole request body. All bodies are read here; until then only the request's head has been read.

        If a body states its length, memory for all of it is reserved before reading, or it is refused; otherwise it is
        refused when no more memory is available. Nothing waits for memory: two incomplete bodies would wait for each
        other. Raises CodedBody and BodyTooLarge (without reading on), NoMemory, Disconnected.
        """
        limit, length = self.body_bytes_max, b""
        for name, value in self.scope["headers"]:
            if name == b"content-encoding" and value.lower() not in (b"", b"identity"):
                raise CodedBody(value.decode("latin-1"))
            if name == b"content-length":
                length = value
        counted = int(length) if length.isdigit() else 0
        if counted > SMALL_BYTES or counted > limit:
            if counted > limit:
                if self.heeds_length:
                    raise BodyTooLarge(counted, limit)
                counted = limit
            if counted > SMALL_BYTES:
                self._hold_body(0, counted)
        grown: BytesIO | None = None
        size, space = 0, _LONG_BYTES
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk: bytes = message.get("body", b"")
            is_last = not message.get("more_body", False)
            size += len(chunk)
            if is_last and grown is None and size <= limit and (size <= SMALL_BYTES or size <= counted):
                return chunk
            if grown is None:
                grown = BytesIO()  # passes on its buffer: joining chunks copies all of it, and frees them, in one step
            if size > limit:
                raise BodyTooLarge(size, limit)
            if size > counted:
                self._hold_body(counted, size)
                counted = size
            grown.write(chunk)
            if is_last:
                break
            if space < size:
                grown, space = _with_space(grown, limit), limit
        grown.truncate()
        return grown.getvalue()

    def _hold_body(self, counted: int, size: int) -> None:
        """Count a body of that size; `counted` is already counted.

        Raises BodyTooLarge if it can never fit, and NoMemory.
        """
        is_known = self.share.owner is not None
        more = memory_of(size, is_known=is_known) - memory_of(counted, is_known=is_known)
        if not self._take(more):
            most = largest_within(self.share.largest, is_known=is_known)
            if size > most:
                raise BodyTooLarge(size, most)
            raise self.share.refusal(more, "the body")

    def _take(self, size: int) -> bool:
        """Count that many bytes until the request is answered, if there is room."""
        is_taken = self.share.take(size)
        if is_taken:
            self.scope[HELD] = self.scope.get(HELD, 0) + size
        return is_taken

    def _hold_answer(self, size: int) -> None:
        if not self._take(size):
            raise self.share.refusal(size, "the answer, buffered for HTTP/1.0,")

    async def json_body(self, *allowed: str) -> bytes:
        """The body, declared as JSON (or undeclared). Raises the same errors as `body`, and UnsupportedMediaType.

        `allowed` are the media types to name in that error; by default only JSON.
        """
        given = self.header(b"content-type")
        if given is not None and given != JSON:
            media_type = self.media_type()
            if media_type != "application/json" and not media_type.endswith("+json"):
                raise UnsupportedMediaType(media_type, allowed or ("application/json",))
        return await self.body()

    def parameters(self, *allowed: str) -> dict[str, str]:
        """The query parameters. Raises InvalidParameter for an unknown or repeated one."""
        query: bytes = self.scope.get("query_string", b"")
        found: dict[str, str] = {}
        if not query:
            return found
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            if name not in allowed:
                raise InvalidParameter(name[:80], f"unknown parameter; allowed: {', '.join(allowed) or 'none'}")
            if name in found:
                raise InvalidParameter(name, "given twice")
            found[name] = value
        return found

    async def disconnected(self) -> None:
        """Returns when the client has disconnected (or the answer is complete)."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def answer(
        self, status: int, body: bytes, media_type: bytes | None = JSON, headers: Iterable[Header] = ()
    ) -> Awaitable[None]:
        """Send the whole answer; for HEAD without the body.

        Without a media type it is an answer without a body: for 204 and 304 also without a length (RFC 9110, 8.6).
        """
        self.has_started = True
        fields = [(b"content-type", media_type or b""), (b"content-length", b"%d" % len(body)), *headers]
        if media_type is None:
            del fields[: 2 if status in (204, 304) else 1]
        start: Message = {"type": "http.response.start", "status": status, "headers": fields}
        body = b"" if self.scope.get("method") == "HEAD" else body
        if WHOLE in self.scope:
            start["body"] = body
            return self._send(start)
        return self._send_both(start, body)

    async def _send_both(self, start: Message, body: bytes) -> None:
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})

    def answer_empty(self, status: int, headers: Iterable[Header] = ()) -> Awaitable[None]:
        """Send an answer without a body."""
        return self.answer(status, b"", None, headers)

    async def answer_problem(self, problem: Problem) -> None:
        """Answer with a problem document. Raises BrokenOff, like `check_unanswered`."""
        self.check_unanswered(problem.detail)
        await self.answer(problem.status, problem.to_json(), PROBLEM, problem.headers)

    def check_unanswered(self, problem: str) -> None:
        """Raises BrokenOff if an answer has begun: it is broken off, so that it does not look complete."""
        if self.has_started:
            raise BrokenOff(f"the answer was interrupted: {problem}")

    async def start(
        self,
        media_type: bytes,
        headers: Iterable[Header] = (),
        *,
        proves_itself: bool = False,
        length: int | None = None,
    ) -> None:
        """Begin a streamed answer (200), with its length if known. Then call `send`, and `finish` unless it broke off.

        HTTP/1.0 has no chunks: a streamed answer that broke off would look complete. So an answer to HTTP/1.0 is
        collected, and `finish` sends it with its length; until then another answer may replace it. An answer that
        `proves_itself` streams: its reader either requires an end marker in its format or resumes where it was. An
        answer of known length streams too.

        Raises Disconnected if a HEAD request has received everything that it requested and the rest is not needed.
        """
        fields = [(b"content-type", media_type), *headers]
        if length is not None:
            fields.append((b"content-length", b"%d" % length))
        is_head = self.scope.get("method") == "HEAD"
        if not proves_itself and length is None and self.scope.get("http_version", "1.1") < "1.1" and not is_head:
            self._collected = _Collected(fields, self._hold_answer)
            return
        self.has_started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": fields})
        if is_head:
            await self._send({"type": "http.response.body", "body": b""})
            raise Disconnected

    def send(self, chunk: bytes) -> Awaitable[None]:
        """Send a piece of a streamed answer before anything is awaited. Make the next piece after awaiting this call.

        It waits until the client reads more. Raises HttpVersionTooOld if an answer to HTTP/1.0 is too long, NoMemory if
        there is no room to collect it.
        """
        if self._collected is None:
            return self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._collect(self._collected, chunk)
        return DONE

    async def finish(self, chunk: bytes = b"") -> None:
        """Send the last piece of a streamed answer. Raises the same errors as `send`."""
        collected, self._collected = self._collected, None
        if collected is not None:
            self._collect(collected, chunk)
            self.has_started = True
            fields = [*collected.fields, (b"content-length", b"%d" % collected.size)]
            await self._send({"type": "http.response.start", "status": 200, "headers": fields})
            while collected.pieces:
                await self._send({"type": "http.response.body", "body": collected.pieces.popleft(), "more_body": True})
            chunk = b""
        await self._send({"type": "http.response.body", "body": chunk})

    def _collect(self, collected: _Collected, chunk: bytes) -> None:
        try:
            collected.add(chunk)
        except BaseException:
            self._collected = None
            raise
