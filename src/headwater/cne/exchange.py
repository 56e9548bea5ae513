"""A request to this room: the dialect of its path, permissive parameters, and URIs as the client reaches them."""

from __future__ import annotations

from urllib.parse import parse_qs

from .. import http
from ..http import Receive, Scope, Send
from .notification import Dialect

TEXT = b"text/plain; charset=utf-8"


class Exchange(http.Exchange):
    """A request, and the one answer to it."""

    __slots__ = ("base", "dialect", "says_why")

    heeds_length = False
    """Limits are low here, and producers are to learn why their event was refused."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.dialect = Dialect.V2
        """Of the route."""
        self.base = ""
        """The path up to the version, as the client wrote it."""
        self.says_why = False
        """Whether an error has a body in v2."""

    def parameter(self, name: str) -> str | None:
        """The first query parameter of that name; whatever else there is does not matter."""
        query: bytes = self.scope.get("query_string", b"")
        values = parse_qs(query.decode("latin-1"), keep_blank_values=True).get(name) if query else None
        return values[0] if values else None

    def url(self, rest: str) -> str:
        """The URI of something under this version of the API, as this client reaches it."""
        host = self.header(b"host")
        server = self.scope.get("server") or ("localhost", 80)
        name = host.decode("latin-1") if host else f"{server[0]}:{server[1]}"
        return f"{self.scope.get('scheme', 'http')}://{name}{self.base}{rest}"
