"""One HTTP request and its answer, on plain ASGI: headers, bounded body, whole answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec

from .errors import Disconnected, Header, Refused, too_large
from .notification import Dialect

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"


class Exchange:
    """A request, and the one answer to it."""

    __slots__ = ("_body_bytes_max", "_receive", "_send", "arguments", "base", "dialect", "has_started", "scope")

    def __init__(self, scope: Scope, receive: Receive, send: Send, body_bytes_max: int) -> None:
        self.scope = scope
        self._receive, self._send, self._body_bytes_max = receive, send, body_bytes_max
        self.dialect = Dialect.V2
        """Of the route."""
        self.base = ""
        """The path up to the version, as the client wrote it."""
        self.arguments: Sequence[str] = ()
        """What stands in the path where the route has a parameter."""
        self.has_started = False

    @property
    def peer(self) -> str:
        """The client's address."""
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def certificate(self) -> str:
        """The name in the client's certificate, if TLS has verified one; else empty."""
        tls = (self.scope.get("extensions") or {}).get("tls") or {}
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

    def parameter(self, name: str) -> str | None:
        """The first query parameter of that name."""
        query: bytes = self.scope.get("query_string", b"")
        values = parse_qs(query.decode("latin-1"), keep_blank_values=True).get(name) if query else None
        return values[0] if values else None

    def url(self, rest: str) -> str:
        """The URI of something under this version of the API, as this client reaches it."""
        host = self.header(b"host")
        server = self.scope.get("server") or ("localhost", 80)
        name = host.decode("latin-1") if host else f"{server[0]}:{server[1]}"
        return f"{self.scope.get('scheme', 'http')}://{name}{self.base}{rest}"

    async def body(self) -> bytes:
        """The request's body, whole. Raises Refused (413, 415), Disconnected."""
        coding = self.header(b"content-encoding")
        if coding is not None and coding.lower() not in (b"", b"identity"):
            raise Refused(415, "a compressed body is not taken", headers=((b"accept-encoding", b"identity"),))
        chunks, size, is_last = [], 0, False
        while not is_last:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk, is_last = message.get("body", b""), not message.get("more_body", False)
            chunks.append(chunk)
            size += len(chunk)
            if size > self._body_bytes_max:
                refused = too_large(size, self._body_bytes_max, "a body")
                refused.headers = ((b"connection", b"close"),)
                raise refused
        return b"".join(chunks)

    async def answer_json(self, status: int, value: object, headers: Iterable[Header] = ()) -> None:
        """A body of JSON."""
        await self.answer(status, msgspec.json.encode(value), JSON, headers)

    async def answer(
        self, status: int, body: bytes = b"", media_type: bytes = JSON, headers: Iterable[Header] = ()
    ) -> None:
        """The whole answer; without a body it has no content type."""
        fields = [*headers]
        if status != 204:
            fields.append((b"content-length", b"%d" % len(body)))
        if body:
            fields.append((b"content-type", media_type))
        self.has_started = True
        await self._send({"type": "http.response.start", "status": status, "headers": fields})
        await self._send({"type": "http.response.body", "body": body})
