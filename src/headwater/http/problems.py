"""The mapping of errors to problem documents (RFC 9457), shared by all front ends that send them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..core import access
from ..core import errors as core
from ..formats.jsontext import MalformedJson
from ..formats.problem import Problem
from . import errors
from .asgi import Header
from .authentication import BASIC, BEARER
from .errors import json_path


def problem_of(error: Exception) -> Problem | None:
    """The problem document of an error, or None if it is an internal error."""
    for kind in type(error).__mro__:
        if kind in _TABLE:
            row = _TABLE[kind]
            return Problem(row.status, row.code, row.title, row.detail(error), row.members(error), _headers(error))
    return None


INTERNAL = Problem(500, "internal", "Internal error", "internal error; see the server's log")


class _Row(NamedTuple):
    status: int
    code: str
    title: str
    members: Callable[[Any], dict[str, object]] = lambda error: {}
    detail: Callable[[Any], str] = str


def _fields(*names: str) -> Callable[[Any], dict[str, object]]:
    return lambda error: {name: getattr(error, name) for name in names}


_TABLE: dict[type, _Row] = {
    errors.RouteNotFound: _Row(404, "route_not_found", "Not found"),
    errors.EventNotFound: _Row(
        404, "event_not_found", "No such event", _fields("sequence_number", "first_retained", "head")
    ),
    errors.MethodNotAllowed: _Row(405, "method_not_allowed", "Method not allowed"),
    errors.InvalidParameter: _Row(
        400, "invalid_request", "Invalid request", lambda e: {"parameter": e.name, "path": e.path}
    ),
    errors.HostNotServed: _Row(
        421, "host_not_served", "Unknown host", lambda e: {"host": e.name, "setting": "http.hosts"}
    ),
    errors.ForeignPage: _Row(403, "foreign_page", "Refused for web pages", lambda e: {"setting": "http.origins"}),
    errors.ConsoleReadOnly: _Row(
        403, "console_read_only", "The console is read-only", lambda e: {"setting": "console.read_only"}
    ),
    errors.UnsupportedMediaType: _Row(415, "unsupported_media_type", "Unsupported media type"),
    errors.CodedBody: _Row(415, "unsupported_media_type", "Unsupported media type"),
    errors.BodyTooLarge: _Row(
        413, "too_large", "Too large", lambda e: {"allowed": e.allowed, "unit": "bytes", "path": "$"}
    ),
    errors.HttpVersionTooOld: _Row(
        505, "http_version_too_old", "HTTP/1.1 required", lambda e: {"allowed": e.allowed, "unit": "bytes"}
    ),
    errors.NumberNotHereYet: _Row(503, "not_here_yet", "Event not replicated yet", _fields("wanted", "head")),
    errors.AskPrimary: _Row(421, "ask_primary", "Ask the primary", _fields("log", "primary")),
    errors.Stopping: _Row(503, "stopping", "Stopping"),
    errors.Unready: _Row(503, "unready", "Not ready"),
    core.InvalidInput: _Row(400, "invalid_request", "Invalid request", lambda e: {"path": json_path(e.where)}),
    MalformedJson: _Row(400, "malformed_json", "Malformed JSON", _fields("line", "column")),
    core.TooLarge: _Row(
        413,
        "too_large",
        "Too large",
        lambda e: {"path": json_path(e.where), "given": e.given, "allowed": e.allowed, "unit": e.unit},
    ),
    access.Unauthenticated: _Row(401, "unauthenticated", "Credentials are missing or wrong"),
    access.TooManyLogins: _Row(429, "too_many_logins", "Too many logins"),
    access.IssuerUnavailable: _Row(503, "issuer_unavailable", "The token issuer does not answer"),
    access.Forbidden: _Row(403, "forbidden", "Not allowed", lambda e: {"right": e.right.value, "log": e.log}),
    core.LogNotFound: _Row(404, "log_not_found", "No such log", lambda e: {"log": e.name}),
    core.ConsumerNotFound: _Row(404, "consumer_not_found", "No such consumer", _fields("owner", "component")),
    core.LogExists: _Row(409, "log_exists", "The log exists with different settings", lambda e: {"log": e.name}),
    core.AppendConditionFailed: _Row(
        409,
        "append_condition_failed",
        "The append condition failed",
        lambda e: {"reason": e.reason.value, "sequence_number": e.conflict, "after": e.after},
    ),
    core.DuplicateEventId: _Row(
        409,
        "duplicate_event_id",
        "An event with this id exists",
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
        "The condition covers dropped history",
        _fields("after", "known_from"),
    ),
    core.ConsumerFenced: _Row(
        409, "consumer_fenced", "The consumer has another holder", _fields("owner", "component", "given", "current")
    ),
    core.WouldDrop: _Row(
        409,
        "would_drop",
        "This would drop events",
        _fields(*core.WouldDrop.MEMBERS),
    ),
    core.StateConflict: _Row(409, "state_conflict", "Changed concurrently", _fields("expected", "found")),
    core.PositionTrimmed: _Row(
        410, "position_trimmed", "The position was trimmed", _fields("position", "first_retained")
    ),
    core.PositionOfOtherIncarnation: _Row(
        410,
        "position_of_other_incarnation",
        "The position belongs to another incarnation of the log",
        _fields("position", "incarnation", "first"),
    ),
    core.Overloaded: _Row(503, "overloaded", "Overloaded", _fields("waiting_bytes", "allowed_bytes")),
    core.Closed: _Row(503, "stopping", "Stopping"),
    core.StorageUnavailable: _Row(503, "storage_unavailable", "Storage unavailable", detail=lambda e: e.reason),
    core.NotPrimary: _Row(503, "not_primary", "Not the primary", detail=lambda e: e.reason),
    core.OutcomeUnknown: _Row(504, "outcome_unknown", "The outcome is unknown", lambda e: {"log": e.name}),
    core.DiskFull: _Row(
        507,
        "disk_full",
        "The disk is full",
        _fields("free_bytes", "needed_bytes"),
        lambda e: f"{e.shortage}; reads and trims still work",
    ),
    core.SequenceExhausted: _Row(507, "sequence_exhausted", "The log is exhausted", _fields("last")),
    core.StorageCorrupted: _Row(
        500,
        "storage_corrupted",
        "The stored log is damaged",
        detail=lambda e: "the stored log is damaged; stop the server, then run headwater check",
    ),
    core.EventLogError: _Row(500, "internal", "Internal error"),
}


def _headers(error: Exception) -> tuple[Header, ...]:
    if isinstance(error, errors.NumberNotHereYet):
        return error.headers
    if isinstance(error, errors.Stopping):
        return (*error.headers, errors.CLOSE)
    if isinstance(error, access.Unauthenticated):
        return (BASIC, BEARER)
    return errors.headers_of(error)
