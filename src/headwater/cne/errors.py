"""Which answer each error becomes: the one table, and how v1, v2 and the routes for publishers say it.

EventLogError        what the core says
Refused              what HTTP or this room says; carries its status
Disconnected         the client went away before it was answered

O-RAN's own routes of v2 answer errors with an empty body (its conformance tests look for that); the reason is in the
header field `headwater-problem`. All others answer `{"error": ..., "path": ...}`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from ..core import access
from ..core import errors as core
from ..core.limits import show
from .delivery import HandshakeFailed
from .registry import AlreadyThere, ResourceUnknown, TooMany

Header = tuple[bytes, bytes]

CHALLENGES: tuple[Header, ...] = (
    (b"www-authenticate", b'Bearer realm="headwater"'),
    (b"www-authenticate", b'Basic realm="headwater", charset="UTF-8"'),
)
STOPPING_RETRY_AFTER_S = 2


class Refused(Exception):
    """The answer is an error; `path` leads to the culprit in the body."""

    def __init__(self, status: int, detail: str, path: str = "", headers: tuple[Header, ...] = ()) -> None:
        self.status, self.detail, self.path, self.headers = status, detail, path, headers
        super().__init__(detail)

    def to_json(self) -> bytes:
        """The body, where there is one."""
        members = {"error": self.detail, "path": self.path}
        return msgspec.json.encode({name: text for name, text in members.items() if text})

    def to_header(self) -> Header:
        """The reason as a header field."""
        text = f"{self.path}: {self.detail}" if self.path else self.detail
        printable = "".join(each if " " <= each <= "~" else "?" for each in text[:500])
        return (b"headwater-problem", printable.encode())


class Disconnected(Exception):
    """The client went away; there is nobody to answer."""


def refusal_of(error: Exception) -> Refused | None:
    """The answer to an error, or None where it is a fault of ours."""
    if isinstance(error, Refused):
        return error
    for kind in type(error).__mro__:
        if (status := _STATUS.get(kind)) is not None:
            return Refused(status, _detail(error), _path(error), _headers(error))
    return None


def not_found(path: str) -> Refused:
    """404: nothing is served there."""
    return Refused(404, f"nothing is served at {show(path)}")


def method_not_allowed(method: str, allowed: Iterable[str]) -> Refused:
    """405, with the methods that the resource has."""
    names = ", ".join(sorted(allowed))
    return Refused(405, f"{method} given, allowed: {names}", headers=((b"allow", names.encode()),))


def too_large(given: int, allowed: int, what: str) -> Refused:
    """413. The connection is closed where the body was not read to its end."""
    return Refused(413, f"{what} of {given} bytes given, at most {allowed} are allowed")


def stopping() -> Refused:
    """503: the server takes no new requests."""
    return Refused(503, "the server is stopping; try again", headers=_RETRY)


_RETRY: tuple[Header, ...] = ((b"retry-after", b"%d" % STOPPING_RETRY_AFTER_S),)
_STATUS: dict[type, int] = {
    HandshakeFailed: 400,
    ResourceUnknown: 404,
    AlreadyThere: 409,
    TooMany: 429,
    core.InvalidInput: 400,
    core.TooLarge: 413,
    access.Unauthenticated: 401,
    access.Forbidden: 403,
    core.LogNotFound: 404,
    core.ConsumerNotFound: 404,
    core.LogExists: 409,
    core.AppendConditionFailed: 409,
    core.DuplicateEventId: 409,
    core.ConditionNeedsTrimmedEvents: 409,
    core.ConsumerFenced: 409,
    core.StateConflict: 409,
    core.PositionTrimmed: 410,
    core.PositionOfOtherIncarnation: 410,
    core.Overloaded: 503,
    core.Closed: 503,
    core.StorageUnavailable: 503,
    core.DiskFull: 507,
    core.SequenceExhausted: 507,
    core.StorageCorrupted: 500,
    core.EventLogError: 500,
}
"""Only what the server itself lacks is above 499: no input leads there."""
_HIDDEN = (core.StorageCorrupted, core.StorageUnavailable, core.DiskFull)


def _detail(error: Exception) -> str:
    if isinstance(error, _HIDDEN):
        return "the log cannot take or give events at present; the server's operator must look at it"
    return error.problem if isinstance(error, core.InvalidInput) else str(error)


def _path(error: Exception) -> str:
    if not isinstance(error, core.InvalidInput):
        return ""
    return "$" + (error.where if error.where.startswith("[") or not error.where else f".{error.where}")


def _headers(error: Exception) -> tuple[Header, ...]:
    if isinstance(error, access.Unauthenticated):
        return CHALLENGES
    if isinstance(error, core.Overloaded):
        return ((b"retry-after", b"%d" % math.ceil(error.retry_after_s)),)
    return _RETRY if isinstance(error, core.Closed | core.StorageUnavailable) else ()
