"""Messages over HTTP (FTN5 1.4): POST to the endpoint, or GET of a path below it. The status of every reply is 200,
including errors.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

import msgspec

from ..core.bounded_cache import remembered
from ..core.errors import EventLogError, Overloaded
from ..core.log import AppendResult
from ..core.loop.batcher import settle
from ..formats.problem import Problem
from ..formats.tracing import trace_of_headers
from ..http import Exchange, Header, Scope
from ..http.asgi import WRITER, raw_path
from ..http.certificates import certified
from ..http.errors import CLOSE, HttpError
from ..http.host import USER_KEY
from .calls import Handler, Reply, answer, failed, refusal, reply_to
from .errors import FutoInError, error_of_problem, futoin_error_of, invalid
from .functions.quick_add import Adding, begin
from .functions.quick_add import reply_to as reply_to_adding
from .host import Host
from .messages import interface
from .messages.coders import JSON
from .outlet import Claim, Outlet

MESSAGE_BYTES_MAX = 8 * 2**20
"""The maximum size of a message of any function; each function also has its own limit."""
_VND = b"application/vnd.futoin"
_PARAMETER = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


class Request:
    """The channel of a request, read from its header fields; see calls.Channel."""

    connection = None

    def __init__(self, exchange: Exchange) -> None:
        self.peer, self.scope, self.share = exchange.peer, exchange.scope, exchange.share
        self.outlet = Outlet(self.share, self.scope.get(WRITER))
        self.is_secure = exchange.scope.get("scheme") in ("https", "wss") or _is_loopback(self.peer)
        """TLS ends here, or at a trusted proxy that reports it, or the peer is on this machine."""
        self.authorization = exchange.header(b"authorization")
        self.certified = certified(exchange.scope)
        self.trace = trace_of_headers(exchange.scope["headers"])


async def post(host: Host, handlers: Mapping[tuple[str, str], Handler], log_name: str, exchange: Exchange) -> None:
    """POST to the endpoint: a message in, a message out. Raises Disconnected."""
    exchange.body_bytes_max = MESSAGE_BYTES_MAX
    host.own_unknown(exchange.share, exchange.peer)
    try:
        body = await exchange.body()
    except (HttpError, Overloaded) as error:
        await _answer(exchange, refusal(host, futoin_error_of(error)), CLOSE)
        return
    request = Request(exchange)
    append: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    adding = begin(host, log_name, request, body, lambda _, outcome: settle(append, outcome))
    if adding is None:
        with Claim(request.outlet) as claim:
            await _answer(exchange, await reply_to(host, handlers, log_name, request, claim, body))
    else:
        exchange.scope[USER_KEY] = adding.user.name
        await _answer(exchange, await _added(host, log_name, adding, append))


async def _added(host: Host, log_name: str, adding: Adding, append: asyncio.Future[AppendResult]) -> Reply:
    try:
        return Reply(reply_to_adding(adding.rid, (await append).first), JSON)
    except EventLogError as error:
        return failed(host, JSON, adding.rid, log_name, error)


async def get(
    host: Host, handlers: Mapping[tuple[str, str], Handler], log_name: str, path: list[str], exchange: Exchange
) -> None:
    """GET {endpoint}/{interface}/{version}/{function}[/{sec}]?parameter=value (FTN5, 3.1 to 3.3)."""
    try:
        body = _message_of(path, exchange.scope["query_string"])
    except FutoInError as error:
        await _answer(exchange, refusal(host, error))
        return
    request = Request(exchange)
    with Claim(request.outlet) as claim:
        await _answer(exchange, await answer(host, handlers, log_name, request, claim, JSON.decode(body)))


async def _answer(exchange: Exchange, reply: Reply, *headers: Header) -> None:
    """Send the reply in the media type that FutoIn client libraries know."""
    fields = exchange.scope["headers"]
    is_registered = any(name in (b"content-type", b"accept") and _VND in value for name, value in fields)
    media_type = b"application/vnd." if is_registered else b"application/"
    await exchange.answer(200, reply.body, media_type + reply.coder.media_type, headers)


async def answer_problem(exchange: Exchange, problem: Problem) -> None:
    """Answer a problem found before the request reached this package: as a message, with the problem's status.

    Nothing of the request has been read, so the reply is JSON, which clients of every coder recognise as an error.
    """
    error = error_of_problem(problem)
    body = JSON.message([("e", JSON.value(error.name)), ("edesc", JSON.value(error.description))])
    await exchange.answer(problem.status, body, b"application/" + JSON.media_type, problem.headers)


@remembered(1024)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _message_of(path: list[str], query: bytes) -> bytes:
    """The message encoded in a path and its query. Raises FutoInError (InvalidRequest)."""
    if not 3 <= len(path) <= 4:
        raise invalid("expected {interface}/{version}/{function}[/{sec}] below the endpoint")
    name = ":".join(path[:3])
    if any("\ud800" <= each <= "\udfff" for each in "".join(path)):  # invalid UTF-8: see `segments_of`
        raise invalid("the path is not UTF-8")
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
    """A query contains strings as they are, and other values as JSON (FTN5, 3.3). The definition distinguishes them."""
    try:
        parameters = interface.find(name).parameters
    except FutoInError:
        parameters = {}  # this is found again and reported after the caller is known
    encoded: dict[str, bytes] = {}
    for key, text in texts:
        if key in encoded or not _PARAMETER.fullmatch(key):
            raise invalid("a parameter occurs twice or has an invalid name")
        is_text = key not in parameters or parameters[key].is_text
        encoded[key] = JSON.value(text) if is_text else _json_of(key, text)
    return JSON.message(encoded.items())


def _json_of(key: str, text: str) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise invalid(f"{key} is not JSON") from None


def segments_of(scope: Scope) -> list[str]:
    """The segments of the path, each decoded separately, so that a password may contain a slash."""
    return list(_segments(raw_path(scope)))


@remembered(1024)
def _segments(path: str) -> tuple[str, ...]:
    return tuple([unquote(segment, errors="surrogateescape") for segment in path.split("/")])
