"""Problem documents (RFC 9457) as the core's own exceptions, in one table, and what the client adds to them.

EventLogError
├── UnexpectedAnswer      the answer is unknown to this client
├── Closed
│   └── GatewayFailed     a proxy answered instead of the server
└── Refused               management refused the request
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from ...core import errors as core
from ...core.access import Forbidden, IssuerUnavailable, Right, TooManyLogins, Unauthenticated
from ...core.limits import show
from ...formats.clients.answer import Answer
from ...formats.problem import TYPE_PREFIX

_Members = dict[str, Any]
_INPUT_KINDS: tuple[tuple[re.Pattern[str], type[core.InvalidInput]], ...] = (
    (re.compile(r"(condition\.)?after\b|from\b|limit\b|partition\b|sequence_number\b|below\b"), core.InvalidPosition),
    (re.compile(r"(condition\.)?(fail_?if_?events_?match|query)\b|items\b", re.IGNORECASE), core.InvalidQuery),
    (re.compile(r"events\b"), core.InvalidEvent),
)
"""The kind of input at each path; it is the server's path, without `$.`."""


INTERNAL_ERROR, SERVICE_UNAVAILABLE = 500, 503
OF_GATEWAYS = frozenset({408, 502, 504, *range(520, 527)})
"""Statuses by which proxies report that their server, or client, is away or slow, unless the server's code comes with
it. 520 to 526 are those of a content delivery network.
"""


class UnexpectedAnswer(core.EventLogError):
    """The server sent an answer unknown to this client: another server, or another version.

    `is_refusal`: the server says that it did nothing, for a reason unknown to this client.
    """

    def __init__(self, status: int, detail: str, *, is_refusal: bool = False) -> None:
        self.status, self.detail, self.is_refusal = status, detail, is_refusal
        super().__init__(f"unexpected answer {status}: {detail}")


def another_form(asked: str, content_type: bytes, coding: bytes) -> str:
    """The received and the requested media type, and the remedy, for a message."""
    came = content_type.decode("latin-1") or "no media type"
    compressed = f" compressed by {coding.decode('latin-1')}" if coding else ""
    return (
        f"expected {asked}, got {came}{compressed}: a gateway changed the request or the answer; have it "
        "pass Accept, Accept-Encoding and bodies unchanged"
    )


def check_uncoded(asked: str, answer: Answer) -> None:
    """Raises UnexpectedAnswer for an answer that a gateway compressed although that media type was requested."""
    fields = answer.fields
    if coding := fields.get(b"content-encoding"):
        raise UnexpectedAnswer(answer.status, another_form(asked, fields.get(b"content-type", b""), coding))


class GatewayFailed(core.Closed):
    """A proxy before the server got no answer from it: the server may have carried out the request, or not."""

    def __init__(self, log: str, status: int, detail: str) -> None:
        super().__init__(log)
        self.args = (f"a proxy answered {status}: {detail}",)


class Refused(core.EventLogError):
    """Management refused the request. `code`: `entity_not_found`, `conflict`, `operation_not_found` or
    `method_not_allowed`.
    """

    def __init__(self, code: str, detail: str) -> None:
        self.code, self.detail = code, detail
        super().__init__(detail)


def error_of(status: int, body: bytes, retry_after_s: float | None, log: str) -> core.EventLogError:
    """The exception for an answer of 400 or above, in the server's words; `log` is the log asked.

    Only one of our problem types proves that a 503 is the server's own, which did nothing: Closed, if this client does
    not know the code. Any other 503, and a 408, 502, 504 or 520 to 526 without a known code, is a proxy's:
    GatewayFailed. Both are retried.
    """
    try:
        members = msgspec.json.decode(body, type=_Members)
    except msgspec.MsgspecError:
        members = {}
    text = " ".join(body[:200].decode(errors="replace").split())
    detail = str(members.get("detail") or members.get("title") or text or "no body")
    type = str(members.get("type", ""))
    is_ours = type.startswith(TYPE_PREFIX)
    build = _TABLE.get(type.removeprefix(TYPE_PREFIX)) if is_ours else None
    if build is None:
        return _uncoded(status, detail, log, is_ours=is_ours)
    try:
        error = build({"log": log, "retry_after_s": retry_after_s, "detail": detail} | members)
    except (
        KeyError,
        TypeError,
        ValueError,
    ):  # the server has another version: the code is known, but its members are not
        return UnexpectedAnswer(status, detail, is_refusal=True)
    error.args = (detail,)
    return error


@contextmanager
def settings_named() -> Iterator[None]:
    """Used by calls whose only input is settings. Raises InvalidSettings for InvalidInput."""
    try:
        yield
    except core.InvalidInput as error:
        if isinstance(error, core.InvalidLogName):
            raise
        raise core.InvalidSettings(error.problem, error.where) from None


def change_unknown(log: str, error: core.EventLogError) -> core.OutcomeUnknown:
    """The error of a request that is sent only once, and whose answer was lost because of that error."""
    unknown = core.OutcomeUnknown(log)
    unknown.args = (f"the outcome is unknown: {error}; check, and repeat the request if necessary",)
    return unknown


def outcome_unknown(log: str, error: core.EventLogError, ids: Sequence[str]) -> core.OutcomeUnknown:
    """The error of an append of events with those ids that ended with that error."""
    unknown = core.OutcomeUnknown(log)
    unknown.ids = ids
    same = f"the same ids ({', '.join(ids)})" if len(ids) <= SHOWN_IDS_MAX else "the same ids (`ids` of this error)"
    unknown.args = (
        f"it is unknown whether the events are in log {show(log)}: {error}; append them again with {same}, and they "
        "are stored once",
    )
    return unknown


SHOWN_IDS_MAX = 3
"""The maximum number of ids in the text of an error."""


def _uncoded(status: int, detail: str, log: str, *, is_ours: bool) -> core.EventLogError:
    if status in OF_GATEWAYS or (status == SERVICE_UNAVAILABLE and not is_ours):
        return GatewayFailed(log, status, detail)
    if status != SERVICE_UNAVAILABLE:
        return UnexpectedAnswer(status, detail, is_refusal=is_ours and status < INTERNAL_ERROR)
    error = core.Closed(log)
    error.args = (detail,)
    return error


def _invalid_input(members: _Members) -> core.InvalidInput:
    path = str(members.get("path", "")).removeprefix("$").removeprefix(".")
    where = ".".join(part for part in (str(members.get("parameter", "")), path) if part)
    problem = str(members["detail"]).removeprefix(f"{where}: ")
    kind = next((kind for pattern, kind in _INPUT_KINDS if pattern.match(where)), core.InvalidInput)
    return kind(problem, where)


def _too_large(members: _Members) -> core.InvalidInput:
    if "given" not in members:  # the server did not read any further
        return _invalid_input(members)
    path = str(members["path"]).removeprefix("$.")
    return core.TooLarge(members["given"], members["allowed"], members["unit"], path)


def _condition_failed(members: _Members) -> core.AppendConditionFailed:
    reason = core.ConditionFailure(members["reason"])
    return core.AppendConditionFailed(reason, members.get("sequence_number"), members["after"])


def _duplicate(members: _Members) -> core.DuplicateEventId:
    return core.DuplicateEventId(members["id"], members["source"], members.get("sequence_number"), members["index"])


def _would_drop(members: _Members) -> core.WouldDrop:
    times = members.get("first_recorded_at"), members.get("last_recorded_at")
    return core.WouldDrop(
        members["log"], members["drops"], members["first"], members["last"], *times, members["history"]
    )


def _refused(code: str) -> Callable[[_Members], core.EventLogError]:
    return lambda members: Refused(code, members["detail"])


def _of(kind: type[core.EventLogError], *names: str) -> Callable[[_Members], core.EventLogError]:
    """The error with those members, in that order."""
    return lambda members: kind(*(members[name] for name in names))


_TABLE: dict[str, Callable[[_Members], core.EventLogError]] = {
    "invalid_request": _invalid_input,
    "malformed_json": _invalid_input,
    "too_large": _too_large,
    "unauthenticated": _of(Unauthenticated, "detail"),
    "too_many_logins": lambda members: TooManyLogins(members["retry_after_s"] or 1.0),
    "issuer_unavailable": lambda members: IssuerUnavailable(members["retry_after_s"] or 1.0),
    "forbidden": lambda members: Forbidden("", Right(members["right"]), members["log"]),
    "log_not_found": _of(core.LogNotFound, "log"),
    "consumer_not_found": _of(core.ConsumerNotFound, "owner", "component"),
    "log_exists": _of(core.LogExists, "log"),
    "append_condition_failed": _condition_failed,
    "duplicate_event_id": _duplicate,
    "condition_needs_trimmed_events": _of(core.ConditionNeedsTrimmedEvents, "after", "known_from"),
    "consumer_fenced": _of(core.ConsumerFenced, "owner", "component", "given", "current"),
    "would_drop": _would_drop,
    "position_trimmed": _of(core.PositionTrimmed, "position", "first_retained"),
    "position_of_other_incarnation": _of(core.PositionOfOtherIncarnation, "position", "incarnation", "first"),
    "overloaded": lambda members: core.Overloaded(
        members["waiting_bytes"], members["allowed_bytes"], members["retry_after_s"] or 1.0
    ),
    "stopping": _of(core.Closed, "log"),
    "unready": _of(core.Closed, "log"),
    "storage_unavailable": _of(core.StorageUnavailable, "detail"),
    "outcome_unknown": _of(core.OutcomeUnknown, "log"),
    "storage_corrupted": lambda members: core.StorageCorrupted("", members["detail"], ""),
    "disk_full": lambda members: core.DiskFull("", members["free_bytes"], members["needed_bytes"]),
    **{code: _refused(code) for code in ("entity_not_found", "conflict", "operation_not_found", "method_not_allowed")},
    "sequence_exhausted": _of(core.SequenceExhausted, "last"),
}
