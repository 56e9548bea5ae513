"""A request to the notification API: the dialect of its path, lenient parameters, and URIs reachable for the client."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qs

import msgspec

from .. import http
from ..http.arrays import answer_array, in_slices
from ..http.browsers import authority_of
from .notifications.notification import Dialect
from .notifications.records import Record

_PLAIN_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]*:[0-9a-f:.]*")
"""A name or an address without characters that are special in a URI (`%`, `&`, ...)."""
TEXT = b"text/plain; charset=utf-8"


class Exchange(http.Exchange):
    """A request and its one answer."""

    heeds_length = False
    """Limits are low here, and producers must see why their event was refused."""

    dialect: Dialect = Dialect.V2
    """The dialect of the route."""
    base: str = ""
    """The path up to the version, as the client wrote it."""
    says_why: bool = False
    """Whether an error has a body in v2."""

    def parameter(self, name: str) -> str | None:
        """The first query parameter of that name; everything else is ignored."""
        query: bytes = self.scope.get("query_string", b"")
        values = parse_qs(query.decode("latin-1"), keep_blank_values=True).get(name) if query else None
        return values[0] if values else None

    def url(self, rest: str) -> str:
        """A URI under this version of the API, as this client reaches it."""
        return f"{self.scope.get('scheme', 'http')}://{self._place()}{self.base}{rest}"

    def _place(self) -> str:
        """The requested host and port, normalised because other clients follow the URI; otherwise the address at which
        the request arrived.
        """
        authority = authority_of(self.header(b"host") or b"")
        if authority is not None and _PLAIN_HOST.fullmatch(authority.name):
            return _authority(authority.name, authority.port)
        name, port = self.scope.get("server") or ("localhost", 80)
        return _authority(name, port)


async def answer_infos(exchange: Exchange, records: Iterable[Record]) -> None:
    """Answer with the current list of subscriptions or publishers."""
    texts = (msgspec.json.encode(record.info(exchange.dialect)) for record in list(records))
    await answer_array(exchange, in_slices(texts))


def _authority(name: str, port: int | None) -> str:
    host = f"[{name}]" if ":" in name else name
    return host if port is None else f"{host}:{port}"
