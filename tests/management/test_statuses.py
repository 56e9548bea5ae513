"""Every error of the core has a status, and none tells a stranger about the server's machine."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.core import access, errors
from headwater.core.access import Right
from headwater.management.statuses import _TABLE, Status, refusal_of


def every_kind(kind: type = errors.EventLogError) -> Iterator[type]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("headwater.core"):
            yield each
            yield from every_kind(each)


def test_every_error_of_the_core_has_a_status() -> None:
    for kind in every_kind():
        above = kind.__mro__[: kind.__mro__.index(errors.EventLogError)]
        assert any(each in _TABLE for each in above), kind


def test_who_is_at_fault_is_in_the_status() -> None:
    assert refusal_of(errors.InvalidInput("wrong", "here")).status == Status.BAD_REQUEST
    assert refusal_of(access.Unauthenticated("who are you")).status == Status.UNAUTHORIZED
    assert refusal_of(access.Forbidden("bob", Right.MANAGE, "orders")).status == Status.FORBIDDEN
    assert refusal_of(errors.LogNotFound("orders")).status == Status.NOT_FOUND
    assert refusal_of(errors.LogExists("orders")).status == Status.CONFLICT
    assert refusal_of(errors.OutcomeUnknown("$state")).status == Status.OUTCOME_UNKNOWN == 504


def test_paths_of_the_server_are_not_told() -> None:
    for error in (
        errors.StorageCorrupted("/var/secret", "x", "y"),
        errors.StorageUnavailable("/var/secret is locked"),
        errors.DiskFull("/var/secret", 1, 2),
        errors.EventLogError("/var/secret"),
    ):
        assert "/var" not in refusal_of(error).description


def test_every_status_has_a_phrase() -> None:
    assert Status.OK.phrase == "OK"
    assert Status.NO_CONTENT.phrase == "No content"
