"""Heads of requests (RFC 9112, 3): bytes that are the same for all requests of a route but for a length. No I/O."""

from __future__ import annotations

from typing import Any

from .address import Address
from .request import Request, Route

HEADS_MAX = 1024
"""Heads that are kept, of as many routes; then all are made anew."""


class Heads:
    """The heads of requests to one address, each made once. Safe to use from any thread."""

    def __init__(self, address: Address) -> None:
        self._path = address.path
        self._fields = f" HTTP/1.1\r\nhost: {address.host_header}\r\nuser-agent: headwater-client\r\n" + (
            f"authorization: {address.authorization}\r\n" if address.authorization else ""
        )
        self._made: dict[Route, bytes] = {}

    def of(self, request: Request[Any]) -> bytes:
        """The head of a request, with the empty line at its end."""
        route = request.route
        start = self._made.get(route) or self._start(route)
        if body := request.body:
            return b"%bcontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (start, route.content_type.encode(), len(body))
        return start + (b"\r\n" if route.method == "GET" else b"content-length: 0\r\n\r\n")

    def _start(self, route: Route) -> bytes:
        text = f"{route.method} {self._path}{route.path}{self._fields}accept: {route.accept}\r\n"
        start = text.encode("latin-1")
        if "?" not in route.path:  # another one each time
            if len(self._made) >= HEADS_MAX:
                self._made.clear()
            self._made[route] = start
        return start
