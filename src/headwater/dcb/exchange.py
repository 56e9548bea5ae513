"""One HTTP request and its answer, on plain ASGI: headers, bounded body, parameters, whole or streamed answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from ..core.limits import SEQUENCE_NUMBER_MAX, show
from . import errors
from .errors import Header

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = b"application/json"


class Exchange:
    """A request, and the one answer to it."""

    __slots__ = ("_body_bytes_max", "_receive", "_send", "arguments", "has_started", "scope")

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, arguments: Sequence[str], body_bytes_max: int
    ) -> None:
        self.scope = scope
        self._receive, self._send = receive, send
        self._body_bytes_max = body_bytes_max
        self.arguments = arguments
        """What stands in the path where the route has a parameter, in order, percent-decoded."""
        self.has_started = False
        """Whether the status line is on its way, so that no other answer can be given."""

    @property
    def peer(self) -> str:
        """The client's address, for the log."""
        client = self.scope.get("client")
        return client[0] if client else ""

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
        """The request's body, whole. Raises RequestRefused (413, 415) without reading on, Disconnected."""
        limit = self._body_bytes_max
        coding = self.header(b"content-encoding")
        if coding is not None and coding.lower() not in (b"", b"identity"):
            raise errors.unsupported_content_coding(coding.decode("latin-1"))
        length = self.header(b"content-length")
        if length is not None and length.isdigit() and int(length) > limit:
            raise errors.body_too_large(limit)
        chunk, is_last = await self._receive_chunk()
        if is_last and len(chunk) <= limit:
            return chunk
        chunks, size = [chunk], len(chunk)
        while not is_last and size <= limit:
            chunk, is_last = await self._receive_chunk()
            chunks.append(chunk)
            size += len(chunk)
        if size > limit:
            raise errors.body_too_large(limit)
        return b"".join(chunks)

    async def json_body(self, *allowed: str) -> bytes:
        """The body, said to be JSON (or nothing said). Raises RequestRefused (413, 415), Disconnected.

        `allowed` is what to name where it is something else; by default JSON alone.
        """
        given = self.header(b"content-type")
        if given is not None and given != JSON:
            media_type = self.media_type()
            if media_type != "application/json" and not media_type.endswith("+json"):
                raise errors.unsupported_media_type(media_type, allowed or ["application/json"])
        return await self.body()

    def parameters(self, *allowed: str) -> dict[str, str]:
        """The query parameters. Raises RequestRefused (400) for one that is unknown or given twice."""
        query: bytes = self.scope.get("query_string", b"")
        found: dict[str, str] = {}
        if not query:
            return found
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            if name not in allowed:
                raise errors.invalid_parameter(name[:80], f"no such parameter; allowed: {', '.join(allowed) or 'none'}")
            if name in found:
                raise errors.invalid_parameter(name, "given twice")
            found[name] = value
        return found

    async def disconnected(self) -> None:
        """Returns when the client has gone away (or the answer is complete)."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, status: int, body: bytes, media_type: bytes = JSON, headers: Iterable[Header] = ()) -> None:
        """Give the whole answer."""
        self.has_started = True
        fields = [(b"content-type", media_type), (b"content-length", b"%d" % len(body)), *headers]
        await self._send({"type": "http.response.start", "status": status, "headers": fields})
        await self._send({"type": "http.response.body", "body": body})

    async def answer_nothing(self) -> None:
        """204."""
        self.has_started = True
        await self._send({"type": "http.response.start", "status": 204, "headers": []})
        await self._send({"type": "http.response.body", "body": b""})

    async def start(self, media_type: bytes, headers: Iterable[Header] = ()) -> None:
        """Begin a streamed answer (200). Afterwards call `send`, and `finish` unless it broke off."""
        self.has_started = True
        fields = [(b"content-type", media_type), *headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": fields})

    async def send(self, chunk: bytes) -> None:
        """A piece of a streamed answer; waits while the client does not take what was sent before."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self, chunk: bytes = b"") -> None:
        """The last piece of a streamed answer."""
        await self._send({"type": "http.response.body", "body": chunk})

    async def _receive_chunk(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise errors.Disconnected
        return message.get("body", b""), not message.get("more_body", False)


def whole_number(parameters: dict[str, str], name: str) -> int | None:
    """The parameter as a whole number from 0, or None if it is not given. Raises RequestRefused (400)."""
    text = parameters.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise errors.invalid_parameter(name, f"{show(text)} given, 0 to {SEQUENCE_NUMBER_MAX} is allowed")
    return int(text)
