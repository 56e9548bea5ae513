"""Maps the core's errors to Flight errors and back: one table, read in both directions.

The message is "code: text"; `extra_info` is a JSON object: `error` (the code), `message` (the text) and the error's own
fields. Besides the core's errors there are:

EventLogError
├── Busy             too many streams are open at the server
└── ServerFault      the server failed, or sent an answer this client does not know
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pyarrow.flight as flight

from ..core import access
from ..core import errors as core
from ..core.errors import ConditionFailure
from ..formats.jsontext import MalformedJson

_logger = logging.getLogger("headwater.flight")
_Fields = dict[str, Any]


class Busy(core.EventLogError):
    """The server's limit of open streams is reached; try again."""

    def __init__(self, kind: str, allowed: int) -> None:
        self.kind, self.allowed = kind, allowed
        super().__init__(f"{allowed} {kind} are already open, the maximum; try again")


class ServerFault(core.EventLogError):
    """The server failed, or its answer is not understood (another server or another version)."""


class Told(ValueError):
    """An error whose text alone reaches the peer. It is raised where pyarrow would send the traceback too.
    pyarrow sends the output of `traceback` for the error. That fails here, so it sends the name of the class."""

    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise AttributeError("the traceback is omitted, because it would reveal file names of the server")


INTERNAL = ServerFault("internal error; see the server's log")


def flight_error_of(error: BaseException, doing: str) -> flight.FlightError:
    """The Flight error that is sent to a client. An internal error is logged together with `doing`, the name of the
    call.
    """
    if isinstance(error, flight.FlightError):
        return error
    if not isinstance(error, core.EventLogError):
        _logger.error("%s failed: internal error", doing, exc_info=error)
        error = INTERNAL
    row = _row_of(error)
    if error is not INTERNAL and row.code in ("internal", "storage_corrupted"):
        _logger.error("%s failed with a storage error: %s", doing, error)
    text = row.text(error) if callable(row.text) else row.text or str(error)
    extra = {"error": row.code, "message": text, **row.fields(error)}
    return row.kind(f"{row.code}: {text}", msgspec.json.encode(extra))


def core_error_of(error: flight.FlightError) -> core.EventLogError | None:
    """The core's error that a Flight error represents; None if it is not from a Headwater server."""
    try:
        fields = msgspec.json.decode(error.extra_info or b"", type=_Fields)
        code, message = str(fields["error"]), str(fields["message"])
    except (msgspec.MsgspecError, KeyError):
        return None
    row = _BY_CODE.get(code)
    try:
        made = row.build(fields) if row is not None else ServerFault(f"{code}: {message}")
    except (
        KeyError,
        TypeError,
        ValueError,
    ):  # the server has another version: the code is known, but has unknown fields
        made = ServerFault(f"{code}: {message}")
    made.args = (message,)
    return made


class _Row(NamedTuple):
    code: str
    kind: type[flight.FlightError]
    fields: Callable[[Any], _Fields]
    build: Callable[[_Fields], core.EventLogError]
    text: str | Callable[[Any], str] = ""
    """The text that is sent instead of the error's own message, which is meant for the operator."""


def _plain(code: str, kind: type[flight.FlightError], error: type[core.EventLogError], *names: str) -> _Row:
    """An error built from its own attributes, in that order."""
    return _Row(
        code,
        kind,
        lambda given: {name: getattr(given, name) for name in names},
        lambda fields: error(*(fields[name] for name in names)),
    )


def _wordy(code: str, kind: type[flight.FlightError], error: type[core.EventLogError], text: str = "") -> _Row:
    """An error built from its message."""
    return _Row(code, kind, lambda given: {}, lambda fields: error(fields["message"]), text)


_FAILED, _UNAVAILABLE = flight.FlightServerError, flight.FlightUnavailableError
_UNAUTHENTICATED, _UNAUTHORIZED = flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError

TABLE: dict[type[core.EventLogError], _Row] = {
    core.InvalidInput: _plain("invalid_request", _FAILED, core.InvalidInput, "problem", "where"),
    core.InvalidEvent: _plain("invalid_event", _FAILED, core.InvalidEvent, "problem", "where"),
    core.InvalidQuery: _plain("invalid_query", _FAILED, core.InvalidQuery, "problem", "where"),
    core.InvalidPosition: _plain("invalid_position", _FAILED, core.InvalidPosition, "problem", "where"),
    core.InvalidSettings: _plain("invalid_settings", _FAILED, core.InvalidSettings, "problem", "where"),
    core.InvalidLogName: _plain("invalid_log_name", _FAILED, core.InvalidLogName, "problem", "where"),
    core.TooLarge: _plain("too_large", _FAILED, core.TooLarge, "given", "allowed", "unit", "where"),
    MalformedJson: _plain("malformed_json", _FAILED, core.InvalidInput, "problem", "where"),
    core.AppendConditionFailed: _Row(
        "append_condition_failed",
        _FAILED,
        lambda e: {"reason": e.reason.value, "conflict": e.conflict, "after": e.after},
        lambda f: core.AppendConditionFailed(ConditionFailure(f["reason"]), f["conflict"], f["after"]),
    ),
    core.DuplicateEventId: _plain(
        "duplicate_event_id", _FAILED, core.DuplicateEventId, "id", "source", "sequence_number", "index"
    ),
    core.ConditionNeedsTrimmedEvents: _plain(
        "condition_needs_trimmed_events", _FAILED, core.ConditionNeedsTrimmedEvents, "after", "known_from"
    ),
    core.PositionTrimmed: _plain("position_trimmed", _FAILED, core.PositionTrimmed, "position", "first_retained"),
    core.PositionOfOtherIncarnation: _plain(
        "position_of_other_incarnation", _FAILED, core.PositionOfOtherIncarnation, "position", "incarnation", "first"
    ),
    core.LogNotFound: _plain("log_not_found", _FAILED, core.LogNotFound, "name"),
    core.LogExists: _plain("log_exists", _FAILED, core.LogExists, "name"),
    core.ConsumerNotFound: _plain("consumer_not_found", _FAILED, core.ConsumerNotFound, "owner", "component"),
    core.ConsumerFenced: _plain(
        "consumer_fenced", _FAILED, core.ConsumerFenced, "owner", "component", "given", "current"
    ),
    core.WouldDrop: _plain("would_drop", _FAILED, core.WouldDrop, *core.WouldDrop.MEMBERS),
    core.StateConflict: _plain("state_conflict", _FAILED, core.StateConflict, "kind", "key", "expected", "found"),
    core.Overloaded: _plain(
        "overloaded", _UNAVAILABLE, core.Overloaded, "waiting_bytes", "allowed_bytes", "retry_after_s"
    ),
    core.DiskFull: _Row(
        "disk_full",
        _FAILED,
        lambda e: {"free_bytes": e.free_bytes, "needed_bytes": e.needed_bytes},
        lambda f: core.DiskFull("", f["free_bytes"], f["needed_bytes"]),
        "the disk is full; reads and trims still work",
    ),
    core.SequenceExhausted: _plain("sequence_exhausted", _FAILED, core.SequenceExhausted, "last"),
    core.StorageCorrupted: _Row(
        "storage_corrupted",
        _FAILED,
        lambda e: {},
        lambda f: core.StorageCorrupted("", f["message"], ""),
        "the stored log is damaged; stop the server, then run headwater check",
    ),
    core.StorageUnavailable: _Row(
        "storage_unavailable",
        _UNAVAILABLE,
        lambda e: {},
        lambda f: core.StorageUnavailable(reason=f["message"]),
        lambda e: str(e.reason),
    ),
    core.NotPrimary: _plain("not_primary", _UNAVAILABLE, core.NotPrimary, "name"),
    core.OutcomeUnknown: _plain("outcome_unknown", flight.FlightTimedOutError, core.OutcomeUnknown, "name"),
    core.Closed: _plain("stopping", _UNAVAILABLE, core.Closed, "name"),
    access.Unauthenticated: _wordy(
        "unauthenticated", _UNAUTHENTICATED, access.Unauthenticated, "credentials are missing or wrong"
    ),
    access.TooManyLogins: _plain("too_many_logins", _UNAVAILABLE, access.TooManyLogins, "retry_after_s"),
    access.IssuerUnavailable: _plain("issuer_unavailable", _UNAVAILABLE, access.IssuerUnavailable, "retry_after_s"),
    access.Forbidden: _Row(
        "forbidden",
        _UNAUTHORIZED,
        lambda e: {"user": e.user, "right": e.right.value, "log": e.log},
        lambda f: access.Forbidden(f["user"], access.Right(f["right"]), f["log"]),
    ),
    Busy: _plain("busy", _UNAVAILABLE, Busy, "kind", "allowed"),
    ServerFault: _wordy("internal", flight.FlightInternalError, ServerFault, str(INTERNAL)),
}
_BY_CODE = {row.code: row for row in TABLE.values()}


def _row_of(error: core.EventLogError) -> _Row:
    for kind in type(error).__mro__:
        if kind in TABLE:
            return TABLE[kind]
    return TABLE[ServerFault]
