"""Errors of the FutoIn protocol, and the table that maps other errors to them (FTN3 1.9, 1.5).

FutoInError      the error in a reply: its name and a description

A peer's library knows the standard errors, and those that the function's definition lists under `throws`; any other
name would reach its caller as InternalError.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

from ..core import access
from ..core import errors as core
from ..core.limits import show
from ..formats.problem import Problem
from ..http import errors as http

UNKNOWN_INTERFACE = "UnknownInterface"
NOT_SUPPORTED_VERSION = "NotSupportedVersion"
UNAUTHORIZED = "Unauthorized"
INTERNAL_ERROR = "InternalError"
INVALID_REQUEST = "InvalidRequest"
DEFENSE_REJECTED = "DefenseRejected"
SECURITY_ERROR = "SecurityError"
NOT_REGISTERED = "NotRegistered"
LIVE_NOT_ALLOWED = "LiveNotAllowed"
KEY_REUSED = "KeyReused"


class FutoInError(Exception):
    """The reply `{"e": name, "edesc": description}`."""

    def __init__(self, name: str, description: str = "") -> None:
        self.name, self.description = name, description
        super().__init__(f"{name}: {description}" if description else name)


def invalid(description: str) -> FutoInError:
    """InvalidRequest: the request is malformed."""
    return FutoInError(INVALID_REQUEST, description)


def unknown_interface(name: str) -> FutoInError:
    """UnknownInterface: also the answer to every failed look-up by an unidentified peer."""
    return FutoInError(UNKNOWN_INTERFACE, f"Unknown interface: {show(name)}")


def not_supported(description: str) -> FutoInError:
    """NotSupportedVersion."""
    return FutoInError(NOT_SUPPORTED_VERSION, description)


def security(description: str) -> FutoInError:
    """SecurityError: authentication failed or is missing, or the channel is not secure enough for the call."""
    return FutoInError(SECURITY_ERROR, description)


INTERNAL = FutoInError(INTERNAL_ERROR, "internal error; see the server's log")
_STOPPING = "the server is stopping; try again"


def stopping() -> FutoInError:
    """InternalError: the server accepts no new requests."""
    return FutoInError(INTERNAL_ERROR, _STOPPING)


def futoin_error_of(error: core.EventLogError | http.HttpError) -> FutoInError:
    """The FutoIn error for a core error or an HTTP error."""
    for kind in type(error).__mro__:
        if kind in _TABLE:
            row = _TABLE[kind]
            return FutoInError(row.name, row.description(error))
    raise AssertionError(f"{type(error).__name__} is not in the table")


def error_of_problem(problem: Problem) -> FutoInError:
    """The FutoIn error for a problem that was found before the request reached this package, such as a server that is
    still starting.
    """
    name = SECURITY_ERROR if problem.status in (401, 403) else INVALID_REQUEST
    is_ours = problem.status >= 500 or problem.status == HTTPStatus.MISDIRECTED_REQUEST
    return FutoInError(INTERNAL_ERROR if is_ours else name, problem.detail)


def is_fault(error: core.EventLogError) -> bool:
    """Whether the operator should be informed about it."""
    is_known = isinstance(error, core.Closed | core.DiskFull | core.SequenceExhausted)
    return futoin_error_of(error).name == INTERNAL_ERROR and not is_known


class _Row(NamedTuple):
    name: str
    description: Callable[[Any], str] = str


def _say(text: str) -> Callable[[Any], str]:
    return lambda error: text


_TABLE: dict[type, _Row] = {
    http.CodedBody: _Row(INVALID_REQUEST, _say("compressed messages are not supported; send it uncompressed")),
    http.BodyTooLarge: _Row(
        INVALID_REQUEST, lambda e: f"Request message too long: at most {e.allowed} bytes are accepted"
    ),
    http.HttpError: _Row(INVALID_REQUEST),
    core.InvalidInput: _Row(INVALID_REQUEST),
    core.LogNotFound: _Row(INVALID_REQUEST),
    core.LogExists: _Row(INVALID_REQUEST),
    core.AppendConditionFailed: _Row(INVALID_REQUEST),
    core.ConditionNeedsTrimmedEvents: _Row(INVALID_REQUEST),
    core.PositionTrimmed: _Row(INVALID_REQUEST),
    core.PositionOfOtherIncarnation: _Row(INVALID_REQUEST),
    core.DuplicateEventId: _Row(KEY_REUSED, lambda e: f"key {show(e.id)} was used for another event"),
    core.ConsumerNotFound: _Row(NOT_REGISTERED, lambda e: f"component {show(e.component)} is not registered"),
    core.ConsumerFenced: _Row(INVALID_REQUEST),
    access.Unauthenticated: _Row(SECURITY_ERROR),
    access.TooManyLogins: _Row(DEFENSE_REJECTED),
    access.IssuerUnavailable: _Row(DEFENSE_REJECTED),
    access.Forbidden: _Row(UNAUTHORIZED),
    core.Overloaded: _Row(DEFENSE_REJECTED),
    core.Closed: _Row(INTERNAL_ERROR, _say(_STOPPING)),
    core.WouldDrop: _Row(INVALID_REQUEST),
    core.StateConflict: _Row(INTERNAL_ERROR),
    core.StorageUnavailable: _Row(INTERNAL_ERROR, lambda e: e.reason),
    core.OutcomeUnknown: _Row(INTERNAL_ERROR),
    core.StorageCorrupted: _Row(
        INTERNAL_ERROR, _say("the stored log is damaged; stop the server, then run headwater check")
    ),
    core.DiskFull: _Row(INTERNAL_ERROR, _say("the disk is full; reads still work")),
    core.SequenceExhausted: _Row(INTERNAL_ERROR),
    core.EventLogError: _Row(INTERNAL_ERROR, _say("internal error; see the server's log")),
}
