"""The heads of a forwarded request and of its answer (RFC 9110, 7.6.1). No I/O.

Hop-by-hop fields are not passed on: the known ones and the ones in `Connection`. Values of Headwater's own fields
from a client are dropped, because the replica sets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from ....homes.home_secret import SECRET_HEADER
from ....http import Header, Scope

PEER_HEADER = b"headwater-peer"
"""The client of a forwarded request: its scheme, a space, and its address or `-`."""
PRIMARY_HEADER = b"headwater-primary"
NO_ADDRESS = "-"
_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_OF_CONNECTION = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OF_BODY = frozenset({b"content-length"})
_OF_REPLICA = frozenset({SECRET_HEADER, PEER_HEADER, b"x-forwarded-for", b"x-forwarded-proto"})
"""Fields that the replica replaces. `Forwarded` has read the last two if a trusted proxy sent them."""
_HIDING = (401, 403)
"""Statuses of answers that do not get PRIMARY_HEADER, which would reveal which logs exist."""


def is_chunked(scope: Scope) -> bool:
    """Whether the body of a request is chunked, so that Content-Length is ignored."""
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])


def has_body(scope: Scope) -> bool:
    """Whether a body follows the head (RFC 9112, 6.3)."""
    return is_chunked(scope) or _length(scope["headers"]) not in (None, b"0")


def expects_continue(scope: Scope) -> bool:
    """Whether the client may wait for a 100 before it sends the body (RFC 9110, 10.1.1)."""
    return scope["http_version"] >= "1.1" and any(
        name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]
    )


def request_head(scope: Scope, secret: bytes) -> bytes:
    """The head of a request to the primary."""
    headers: Sequence[Header] = scope["headers"]
    is_websocket = scope["type"] == "websocket"
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope["query_string"]
    method = "GET" if is_websocket else scope["method"]
    lines = [b"%b %b%b HTTP/%b" % (method.encode(), path, b"?" + query if query else b"", _version(scope))]
    lines += [b"%b: %b" % field for field in _passed(headers, _OF_BODY | _OF_REPLICA)]
    if is_websocket:
        lines += [b"connection: Upgrade", b"upgrade: websocket"]
    elif is_chunked(scope):
        lines.append(b"transfer-encoding: chunked")
    elif (length := _length(headers)) is not None:
        lines.append(b"content-length: " + length)
    lines += [b"%b: %b" % (SECRET_HEADER, secret), b"%b: %b" % (PEER_HEADER, _peer(scope))]
    return b"\r\n".join([*map(_on_one_line, lines), b"", b""])


def answer_fields(status: int, fields: Sequence[Header], primary: str) -> list[Header]:
    """The fields of an answer to the client; the server adds `Date` and frames the body."""
    names = {name for name, _ in fields}
    without = frozenset({b"date"})
    if status in (204, 304) or b"transfer-encoding" in names:
        without |= _OF_BODY
    passed = _passed(fields, without)
    if PRIMARY_HEADER not in names and status not in _HIDING:
        passed.append((PRIMARY_HEADER, primary.encode()))
    return passed


def accepted_head(fields: Sequence[Header], date: str, primary: str) -> bytes:
    """The head of the answer (101) that opens a forwarded WebSocket."""
    upgrade = [(b"date", date.encode()), (b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    lines = [b"%b: %b" % field for field in (*upgrade, *answer_fields(101, fields, primary))]
    return b"\r\n".join([b"HTTP/1.1 101 Switching Protocols", *lines, b"", b""])


def client_in(value: bytes) -> tuple[str, tuple[str, int] | None] | None:
    """The scheme and the client (ASGI) in a PEER_HEADER; None if the header is malformed."""
    scheme, space, address = value.decode("latin-1").partition(" ")
    if scheme not in ("http", "https") or not space or not address:
        return None
    return scheme, None if address == NO_ADDRESS else (address, 0)


def _peer(scope: Scope) -> bytes:
    client = scope.get("client")
    return f"{_SCHEMES[scope['scheme']]} {client[0] if client else NO_ADDRESS}".encode("latin-1", "replace")


def _passed(fields: Sequence[Header], without: frozenset[bytes]) -> list[Header]:
    named = {
        token.strip() for name, value in fields if name == b"connection" for token in value.lower().split(b",")
    } - {b"host"}
    dropped = _OF_CONNECTION | named | without
    return [field for field in fields if field[0] not in dropped]


def _length(headers: Iterable[Header]) -> bytes | None:
    return next((value for name, value in headers if name == b"content-length"), None)


def _version(scope: Scope) -> bytes:
    """The version of the request. HTTP/1.0 is kept, so that the primary delimits the answer for such a client."""
    return b"1.0" if scope["http_version"] == "1.0" else b"1.1"


def _on_one_line(line: bytes) -> bytes:
    """A folded value as one line (RFC 9112, 5.2)."""
    return line.replace(b"\r", b" ").replace(b"\n", b" ")
