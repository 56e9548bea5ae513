"""Maps errors to HTTP answers, in the form of v1, v2 and the publisher routes.

EventLogError        raised by the core
HttpError            raised before a request reaches its handler
Refused              raised by this package; carries its status

O-RAN's own routes of v2 answer errors with an empty body (its conformance tests look for that); the reason is in the
header field `headwater-problem`. All others answer `{"error": ..., "path": ...}`.
"""

from __future__ import annotations

import msgspec

from ..core import access
from ..core import errors as core
from ..http import Header
from ..http import errors as http
from ..http.authentication import BASIC, BEARER
from ..http.problems import problem_of
from .delivery.delivery import HandshakeFailed
from .registry import AlreadyThere, ResourceUnknown, StatesFull, TooMany


class RequestRefused(Exception):
    """An error answer; `path` leads to the culprit in the body."""

    def __init__(self, status: int, detail: str, path: str = "", headers: tuple[Header, ...] = ()) -> None:
        self.status, self.detail, self.path, self.headers = status, detail, path, headers
        super().__init__(detail)

    def to_json(self) -> bytes:
        """The body, if there is one."""
        members = {"error": self.detail, "path": self.path}
        return msgspec.json.encode({name: text for name, text in members.items() if text})

    def to_header(self) -> Header:
        """The reason as a header field."""
        text = f"{self.path}: {self.detail}" if self.path else self.detail
        printable = "".join(each if " " <= each <= "~" else "?" for each in text[:500])
        return (b"headwater-problem", printable.encode())


def refusal_of(error: Exception) -> RequestRefused | None:
    """The answer to an error, or None for an internal error."""
    if isinstance(error, RequestRefused):
        return error
    if (status := _STATUS.get(type(error))) is not None:
        return RequestRefused(status, str(error))
    if (problem := problem_of(error)) is not None:
        return RequestRefused(problem.status, _detail(error), _path(error), _headers(error))
    return None


def too_large(given: int, allowed: int, what: str) -> RequestRefused:
    """The 413 answer for something longer than allowed."""
    return RequestRefused(413, f"{what} has {given} bytes, at most {allowed} are allowed")


_STATUS: dict[type, int] = {
    HandshakeFailed: 400,
    ResourceUnknown: 404,
    AlreadyThere: 409,
    TooMany: 429,
    StatesFull: 503,
}
"""The status for each of the service's errors. All other errors have the same status in every front end."""
_HIDDEN = (core.StorageCorrupted, core.StorageUnavailable, core.DiskFull)


def _detail(error: Exception) -> str:
    if isinstance(error, _HIDDEN):
        return "the log is unavailable; ask the server's operator to check it"
    if isinstance(error, http.BodyTooLarge):
        return too_large(error.given, error.allowed, "the body").detail
    if isinstance(error, http.CodedBody):
        return "compressed bodies are not supported"
    return error.problem if isinstance(error, core.InvalidInput) else str(error)


def _path(error: Exception) -> str:
    return http.json_path(error.where) if isinstance(error, core.InvalidInput) else ""


def _headers(error: Exception) -> tuple[Header, ...]:
    return (BEARER, BASIC) if isinstance(error, access.Unauthenticated) else http.headers_of(error)
