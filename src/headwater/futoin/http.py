"""Messages over HTTP (FTN5 1.4): POST to the endpoint, or GET of a path below it. Every reply is 200, errors too."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from . import interface
from .calls import Channel, Handler, Reply, answer, refusal, reply_to
from .coders import JSON
from .errors import FutoInError, invalid
from .host import Host

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MESSAGE_BYTES_MAX = 8 * 2**20
"""The largest message of any function; each has its own limit besides."""
_VND = b"application/vnd.futoin"
_PARAMETER = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


class Gone(Exception):
    """The client went away before its request was complete."""


async def post(
    host: Host, handlers: Mapping[tuple[str, str], Handler], log_name: str, channel: Channel,
    scope: Scope, receive: Receive, send: Send,
) -> None:  # fmt: skip
    """POST to the endpoint: a message in, a message out."""
    try:
        body = await _body(scope, receive)
    except FutoInError as error:
        await send_reply(scope, send, refusal(error), (b"connection", b"close"))
        return
    await send_reply(scope, send, await reply_to(host, handlers, log_name, channel, body))


async def get(
    host: Host, handlers: Mapping[tuple[str, str], Handler], log_name: str, channel: Channel,
    path: list[str], scope: Scope, send: Send,
) -> None:  # fmt: skip
    """GET {endpoint}/{interface}/{version}/{function}[/{sec}]?parameter=value (FTN5, 3.1 to 3.3)."""
    try:
        body = _message_of(path, scope["query_string"])
    except FutoInError as error:
        await send_reply(scope, send, refusal(error))
        return
    await send_reply(scope, send, await answer(host, handlers, log_name, channel, JSON.decode(body)))


async def send_reply(scope: Scope, send: Send, reply: Reply, *headers: tuple[bytes, bytes]) -> None:
    """The reply, in the media type that the client's own library knows."""
    is_registered = any(name in (b"content-type", b"accept") and _VND in value for name, value in scope["headers"])
    media_type = b"application/vnd." if is_registered else b"application/"
    await send_bytes(send, 200, media_type + reply.coder.media_type, reply.body, *headers)


async def send_bytes(send: Send, status: int, media_type: bytes, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """A whole answer."""
    fields = [(b"content-type", media_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def _body(scope: Scope, receive: Receive) -> bytes:
    """The message, whole. Raises FutoInError without reading on, Gone."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > MESSAGE_BYTES_MAX:
            raise _too_long()
        if name == b"content-encoding" and value.lower() not in (b"", b"identity"):
            raise invalid("a message is sent as it is, not compressed")
    chunks: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Gone
        chunk = event.get("body", b"")
        size += len(chunk)
        if size > MESSAGE_BYTES_MAX:
            raise _too_long()
        chunks.append(chunk)
        if not event.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_long() -> FutoInError:
    return invalid(f"Request message too long: at most {MESSAGE_BYTES_MAX} bytes are taken")


def _message_of(path: list[str], query: bytes) -> bytes:
    """The message that a path and its query stand for. Raises FutoInError (InvalidRequest)."""
    if not 3 <= len(path) <= 4:
        raise invalid("{interface}/{version}/{function}[/{sec}] is expected below the endpoint")
    name = ":".join(path[:3])
    try:
        texts = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), max_num_fields=64)
        if any("\ufffd" in text for pair in texts for text in pair):
            raise ValueError
    except ValueError:
        raise invalid("the query string is malformed") from None
    members = [("f", JSON.value(name)), ("p", _parameters_of(name, texts))]
    if len(path) == 4:
        members.append(("sec", JSON.value(path[3])))
    return JSON.message(members)


def _parameters_of(name: str, texts: list[tuple[str, str]]) -> bytes:
    """Strings stand as they are in a query, all other values as JSON (FTN5, 3.3); so the definition must tell."""
    try:
        parameters = interface.find(name).parameters
    except FutoInError:
        parameters = {}  # found again, and told, when it is known who asks
    encoded: dict[str, bytes] = {}
    for key, text in texts:
        if key in encoded or not _PARAMETER.fullmatch(key):
            raise invalid("a parameter is given twice, or has no fit name")
        is_text = key not in parameters or parameters[key].is_text
        encoded[key] = JSON.value(text) if is_text else _json_of(key, text)
    return JSON.message(encoded.items())


def _json_of(key: str, text: str) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise invalid(f"{key} is not JSON") from None


def segments_of(scope: Scope) -> list[str]:
    """The segments of the path, each decoded by itself, so that a password may hold a slash."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return [unquote(segment, errors="surrogateescape") for segment in raw.decode("latin-1").split("?")[0].split("/")]
