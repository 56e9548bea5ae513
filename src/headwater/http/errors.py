"""Errors that prevent a handler from processing an HTTP request, for all front ends.

Each front end renders them by one table.

HttpError
├── RouteNotFound        nothing is served at that path
├── EventNotFound        no event has that number
├── MethodNotAllowed
├── InvalidParameter     a query parameter, a path parameter or a header field breaks a rule
├── HostNotServed        the request's host name is not this server's
├── ForeignPage          sent by a web page that is not allowed to
├── ConsoleReadOnly      sent by the console, which is read-only
├── UnsupportedMediaType
├── CodedBody            the body is compressed
├── BodyTooLarge         the rest is not read
├── HttpVersionTooOld    the answer is too long for HTTP/1.0, which cannot mark its end
├── NumberNotHereYet     the event that a read waits for has not arrived yet
├── AskPrimary           a replica has no such log
├── Stopping             the server takes no new requests
└── Unready              the server is starting, stopping or full

Disconnected             the client disconnected, or requested no body: there is no answer to send
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..core.access import LoginNotChecked
from ..core.errors import Closed, InvalidInput, Overloaded, StorageUnavailable
from ..core.limits import show
from .asgi import Header

CLOSE: Header = (b"connection", b"close")
STOPPING_RETRY_AFTER_S = 2
RETRY: Header = (b"retry-after", b"%d" % STOPPING_RETRY_AFTER_S)
UNREADY_RETRY: Header = (b"retry-after", b"5")
"""For a server that is not ready: sent to clients and to readiness probes."""


class BrokenOff(RuntimeError):
    """An answer ends before it is complete, and the reason can no longer be sent. The connection is closed."""


class Disconnected(Exception):
    """The client disconnected, or has received everything that it requested: there is no answer to send."""


class HttpError(Exception):
    """The request fails before its handler processes it."""

    headers: tuple[Header, ...] = ()
    """Header fields that belong to the answer, in every front end."""


class RouteNotFound(HttpError):
    """404: nothing is served at that path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"nothing is served at {show(path)}")


class EventNotFound(HttpError):
    """404: no event of the log has that number, and no event with that number was trimmed."""

    def __init__(self, log: str, sequence_number: int, first_retained: int, head: int) -> None:
        self.sequence_number, self.first_retained, self.head = sequence_number, first_retained, head
        there = f"it has events from {first_retained} to {head}"
        if first_retained > head:
            there = f"it is empty, and the last event was {head}"
        super().__init__(f"log {show(log)} has no event {sequence_number}; {there}")


class MethodNotAllowed(HttpError):
    """405, with the methods that the resource supports."""

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        names = ", ".join(sorted(allowed))
        self.headers = ((b"allow", names.encode()),)
        super().__init__(f"{method} is not allowed here; allowed: {names}")


class InvalidParameter(HttpError):
    """400 for a query parameter, a path parameter or a header field; `path` points into one that contains JSON."""

    def __init__(self, name: str, problem: str, path: str | None = None) -> None:
        self.name, self.path = name, path
        super().__init__(f"{name}: {problem}")


class HostNotServed(HttpError):
    """421 (RFC 9110, 15.5.20), with the requested name."""

    def __init__(self, name: str, own: str) -> None:
        self.name = name
        super().__init__(
            f"Host {show(name)} is not allowed; a server on loopback or without users expects a loopback name, an IP "
            f"address, its own address ({own}), or a name in the setting http.hosts"
        )


class ForeignPage(HttpError):
    """403 for a request from a web page that belongs neither to this server nor to an origin in `http.origins`."""

    headers = ((b"vary", b"origin, sec-fetch-site, sec-fetch-mode, sec-fetch-dest"), (b"cache-control", b"no-store"))

    def __init__(self, page: str, request: str = "this request") -> None:
        super().__init__(
            f"{page} sent {request}; allowed are pages of this server itself (scheme, name and port as requested) "
            f"and of the origins in the setting http.origins"
        )


class ConsoleReadOnly(HttpError):
    """403 for a request from a read-only console that may change something."""

    headers = ((b"cache-control", b"no-store"),)

    def __init__(self, method: str, path: str) -> None:
        super().__init__(
            f"{method} {show(path)} is not allowed: the console of this server is read-only (console.read_only)"
        )


class UnsupportedMediaType(HttpError):
    """415, with the media types that the resource accepts."""

    def __init__(self, given: str, allowed: Sequence[str]) -> None:
        body = f"a body of {show(given)}" if given else "a body without a media type (Content-Type)"
        super().__init__(f"{body} is not supported here; allowed: {', '.join(allowed)}")


class CodedBody(HttpError):
    """415 for a compressed body (RFC 9110, 8.4); `Accept-Encoding` shows that the media type was fine (12.5.3)."""

    headers = ((b"accept-encoding", b"identity"),)

    def __init__(self, coding: str) -> None:
        super().__init__(f"the content coding {show(coding)} is not supported; send the body uncompressed")


class BodyTooLarge(HttpError):
    """413 for a body whose rest is not read; the connection is closed afterwards."""

    headers = (CLOSE,)

    def __init__(self, given: int, allowed: int) -> None:
        self.given, self.allowed = given, allowed
        super().__init__(f"the body exceeds the limit of {allowed} bytes")


class HttpVersionTooOld(HttpError):
    """505 (RFC 9110, 15.6.6) for HTTP/1.0, if the answer is too long to be collected and sent whole."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        super().__init__(
            f"the answer exceeds {allowed} bytes, the limit for HTTP/1.0, which cannot mark an incomplete answer; use "
            f"HTTP/1.1 (nginx: `proxy_http_version 1.1;` next to `proxy_pass`), or request less"
        )


class NumberNotHereYet(HttpError):
    """503: the request must see an event that this server does not have."""

    headers = (RETRY,)

    def __init__(self, wanted: int, head: int, waited_s: float) -> None:
        self.wanted, self.head = wanted, head
        super().__init__(f"event {wanted} has not arrived after {waited_s:g} s; the log ends with {head}; try again")


class AskPrimary(HttpError):
    """421 (RFC 9110, 15.5.20): a replica has no such log; it may just have been created on the primary."""

    def __init__(self, log: str, primary: str) -> None:
        self.log, self.primary = log, primary
        self.headers = ((b"headwater-primary", primary.encode()), CLOSE)
        super().__init__(f"this replica has no log {show(log)}; ask the primary, {primary}")


class Stopping(HttpError):
    """503: the server takes no new requests."""

    headers = (RETRY,)

    def __init__(self) -> None:
        super().__init__("the server is stopping; try again")


class Unready(HttpError):
    """503: no part of the request was executed; it may succeed soon."""

    headers = (UNREADY_RETRY, CLOSE)


def misplaced(error: InvalidInput, parameter: str) -> InvalidParameter:
    """The same error for a parameter instead of the body."""
    return InvalidParameter(parameter, error.problem, json_path(error.where) if error.where != parameter else None)


def json_path(where: str) -> str:
    """The path of a core error, converted to a JSON path into the body."""
    return "$" + (where if where.startswith("[") or not where else f".{where}")


def headers_of(error: Exception) -> tuple[Header, ...]:
    """The header fields that belong to the answer to an error, in every front end that answers with HTTP statuses."""
    if isinstance(error, HttpError):
        return error.headers
    if isinstance(error, Overloaded | LoginNotChecked):
        return ((b"retry-after", b"%d" % math.ceil(error.retry_after_s)),)
    return (RETRY,) if isinstance(error, Closed | StorageUnavailable) else ()
