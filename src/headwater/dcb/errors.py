"""Which problem document each error becomes: the one table, and the problems that HTTP itself can have.

EventLogError        what the core says: see the table
RequestRefused       the request never reached a log: no such route, wrong method, wrong media type, ...
Disconnected         the client went away before it was answered
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..core import access
from ..core import errors as core
from ..core.limits import show
from ..formats.jsontext import MalformedJson
from ..formats.problem import Problem

Header = tuple[bytes, bytes]

CHALLENGES: tuple[Header, ...] = (
    (b"www-authenticate", b'Basic realm="headwater", charset="UTF-8"'),
    (b"www-authenticate", b'Bearer realm="headwater"'),
)
STOPPING_RETRY_AFTER_S = 2


class RequestRefused(Exception):
    """The request does not get as far as a log; `problem` is the answer."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail)


class Disconnected(Exception):
    """The client went away; there is nobody to answer."""


def problem_of(error: core.EventLogError) -> Problem:
    """The problem document of a core error."""
    for kind in type(error).__mro__:
        if kind in _TABLE:
            row = _TABLE[kind]
            members = row.members(error)
            return Problem(row.status, row.code, row.title, row.detail(error), members, _headers(error))
    raise AssertionError(f"{type(error).__name__} is not in the table")


def route_not_found(path: str) -> RequestRefused:
    """404: nothing is served at that path."""
    return RequestRefused(Problem(404, "route_not_found", "Nothing is here", f"nothing is served at {show(path)}"))


def method_not_allowed(method: str, allowed: Iterable[str]) -> RequestRefused:
    """405, with the methods that the resource has."""
    names = ", ".join(sorted(allowed))
    detail = f"{method} given, allowed: {names}"
    headers = ((b"allow", names.encode()),)
    return RequestRefused(Problem(405, "method_not_allowed", "Method not allowed", detail, headers=headers))


def unsupported_media_type(given: str, allowed: Iterable[str]) -> RequestRefused:
    """415, with the media types that the resource takes."""
    detail = f"a body of {show(given)} given, allowed: {', '.join(allowed)}"
    return RequestRefused(Problem(415, "unsupported_media_type", "Unsupported media type", detail))


def unsupported_content_coding(given: str) -> RequestRefused:
    """415 for a compressed body (RFC 9110, 8.4); `Accept-Encoding` tells that it was not the media type (12.5.3)."""
    detail = f"a body in the content coding {show(given)} given; send it as it is"
    headers = ((b"accept-encoding", b"identity"),)
    return RequestRefused(Problem(415, "unsupported_media_type", "Unsupported media type", detail, headers=headers))


def body_too_large(bytes_max: int) -> RequestRefused:
    """413 for a body of which no more is read; the connection is closed after it."""
    detail = f"the body is over {bytes_max} bytes, which is the most that is read"
    members = {"allowed": bytes_max, "unit": "bytes", "path": "$"}
    return RequestRefused(Problem(413, "too_large", "Too large", detail, members, headers=((b"connection", b"close"),)))


def invalid_parameter(name: str, problem: str, path: str | None = None) -> RequestRefused:
    """400 for a query parameter, a path parameter or a header field; `path` leads into one that holds JSON."""
    members = {"parameter": name, "path": path}
    return RequestRefused(Problem(400, "invalid_request", "Invalid request", f"{name}: {problem}", members))


def misplaced(error: core.InvalidInput, parameter: str) -> RequestRefused:
    """The same error, said of a parameter instead of the body."""
    return invalid_parameter(parameter, error.problem, _path(error.where) if error.where != parameter else None)


def stopping() -> RequestRefused:
    """503: the server takes no new requests."""
    headers = ((b"retry-after", b"%d" % STOPPING_RETRY_AFTER_S), (b"connection", b"close"))
    return RequestRefused(Problem(503, "stopping", "Stopping", "the server is stopping; try again", headers=headers))


INTERNAL = Problem(500, "internal", "Internal error", "the server has a fault; its log says more")


class _Row(NamedTuple):
    status: int
    code: str
    title: str
    members: Callable[[Any], dict[str, object]]
    detail: Callable[[Any], str] = str


def _path(where: str) -> str:
    return "$" + (where if where.startswith("[") or not where else f".{where}")


def _fields(*names: str) -> Callable[[Any], dict[str, object]]:
    return lambda error: {name: getattr(error, name) for name in names}


_TABLE: dict[type, _Row] = {
    core.InvalidInput: _Row(400, "invalid_request", "Invalid request", lambda e: {"path": _path(e.where)}),
    MalformedJson: _Row(400, "malformed_json", "Malformed JSON", _fields("line", "column")),
    core.TooLarge: _Row(
        413,
        "too_large",
        "Too large",
        lambda e: {"path": _path(e.where), "given": e.given, "allowed": e.allowed, "unit": e.unit},
    ),
    access.Unauthenticated: _Row(401, "unauthenticated", "Credentials are missing or wrong", _fields()),
    access.Forbidden: _Row(403, "forbidden", "Not allowed", lambda e: {"right": e.right.value, "log": e.log}),
    core.LogNotFound: _Row(404, "log_not_found", "No such log", lambda e: {"log": e.name}),
    core.ConsumerNotFound: _Row(404, "consumer_not_found", "No such consumer", _fields("owner", "component")),
    core.LogExists: _Row(409, "log_exists", "The log exists with other settings", lambda e: {"log": e.name}),
    core.AppendConditionFailed: _Row(
        409,
        "append_condition_failed",
        "The append condition does not hold",
        lambda e: {"reason": e.reason.value, "sequence_number": e.conflict, "after": e.after},
    ),
    core.DuplicateEventId: _Row(
        409,
        "duplicate_event_id",
        "An event of that id is in the log",
        lambda e: {
            "id": e.id,
            "source": e.source,
            "sequence_number": e.sequence_number,
            "path": f"$.events[{e.index}].id",
            "index": e.index,
        },
    ),
    core.ConditionNeedsTrimmedEvents: _Row(
        409,
        "condition_needs_trimmed_events",
        "The condition asks about dropped history",
        _fields("after", "known_from"),
    ),
    core.ConsumerFenced: _Row(
        409, "consumer_fenced", "Another holder has the consumer", _fields("owner", "component", "given", "current")
    ),
    core.StateConflict: _Row(409, "state_conflict", "Changed by somebody else", _fields("expected", "found")),
    core.PositionTrimmed: _Row(
        410, "position_trimmed", "The position was trimmed", _fields("position", "first_retained")
    ),
    core.PositionOfOtherIncarnation: _Row(
        410,
        "position_of_other_incarnation",
        "The position is of another incarnation of the log",
        _fields("position", "incarnation", "first"),
    ),
    core.Overloaded: _Row(503, "overloaded", "Overloaded", _fields("waiting_bytes", "allowed_bytes")),
    core.Closed: _Row(503, "stopping", "Stopping", _fields()),
    core.StorageUnavailable: _Row(
        503, "storage_unavailable", "Storage unavailable", _fields(), lambda e: "the log cannot be opened at present"
    ),
    core.DiskFull: _Row(
        507,
        "disk_full",
        "The disk is full",
        _fields("free_bytes", "needed_bytes"),
        lambda e: f"{e.free_bytes} bytes are free and {e.needed_bytes} are needed; reads and trims go on",
    ),
    core.SequenceExhausted: _Row(507, "sequence_exhausted", "The log has ended", _fields("last")),
    core.StorageCorrupted: _Row(
        500,
        "storage_corrupted",
        "The stored log is hurt",
        _fields(),
        lambda e: "the stored log is hurt; the server's operator must look at it",
    ),
    core.EventLogError: _Row(500, "internal", "Internal error", _fields()),
}


def _headers(error: core.EventLogError) -> tuple[Header, ...]:
    if isinstance(error, access.Unauthenticated):
        return CHALLENGES
    if isinstance(error, core.Overloaded):
        return ((b"retry-after", b"%d" % math.ceil(error.retry_after_s)),)
    if isinstance(error, core.Closed | core.StorageUnavailable):
        return ((b"retry-after", b"%d" % STOPPING_RETRY_AFTER_S),)
    return ()
