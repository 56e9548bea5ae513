"""Every error has its AMQP condition."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.amqp import errors
from headwater.amqp.errors import MessageFault, refusal_of
from headwater.amqp.filters import InvalidFilter
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.types import Symbol
from headwater.core import access
from headwater.core import errors as core
from headwater.core.errors import ConditionFailure
from headwater.core.shared_bytes import NoMemory
from tests.every import every

EXAMPLES: list[core.EventLogError] = [
    core.EventLogError("secret"), core.InvalidInput("p", "w"), core.InvalidEvent("p"), core.InvalidQuery("p"),
    core.InvalidPosition("p"), core.InvalidSettings("p"), core.InvalidLogName("p"), core.TooLarge(2, 1, "bytes", ""),
    core.AppendConditionFailed(next(iter(ConditionFailure)), 3, 2),
    core.DuplicateEventId("1", "", None, 0), core.ConditionNeedsTrimmedEvents(1, 2), core.PositionTrimmed(1, 2),
    core.PositionOfOtherIncarnation(1, "i", 2), core.LogNotFound("x"), core.LogExists("x"),
    core.ConsumerNotFound("o", "c"), core.ConsumerFenced("o", "c", 1, 2), core.StateConflict("k", "k", 1, 2),
    core.WouldDrop("x", 3, 1, 3, None, None, 3),
    core.Overloaded(2, 1), core.DiskFull("/secret", 1, 2), core.SequenceExhausted(1),
    core.StorageCorrupted("/secret", "p", "r"), core.StorageUnavailable("/secret"), core.Closed("x"),
    core.NotPrimary("x"), core.OutcomeUnknown("x"),
    access.Unauthenticated("wrong"), access.TooManyLogins(2.0), access.IssuerUnavailable(2.0),
    access.Forbidden("u", access.Right.READ, "x"),
]  # fmt: skip


def _tree(kind: type) -> Iterator[type]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith("headwater.core") and child is not NoMemory:  # told as Overloaded
            yield from _tree(child)


def test_no_error_of_the_core_is_missing():
    kinds = set(_tree(core.EventLogError))
    assert kinds == {type(example) for example in EXAMPLES}
    rows = set(errors._TABLE) - {core.EventLogError}
    assert [kind for kind in kinds if rows.isdisjoint(kind.__mro__)] == [core.EventLogError]


@every("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_each_has_a_condition_of_the_standard_and_tells_no_secret(error):
    refusal = refusal_of(error)
    known = {value for value in vars(conditions).values() if isinstance(value, Symbol)}
    assert refusal.condition in known
    assert refusal.description
    assert "secret" not in refusal.description
    assert all(type(key) is Symbol and value is not None for key, value in refusal.info.items())


def test_message_fault_says_its_own():
    refusal = refusal_of(MessageFault(conditions.DECODE_ERROR, "cut short"))
    assert refusal == (conditions.DECODE_ERROR, "cut short", {})


def test_errors_of_the_room_say_theirs():
    fault = conditions.LinkFault(conditions.NOT_FOUND, "no such log", {Symbol("log"): "x"})
    assert refusal_of(fault) == (conditions.NOT_FOUND, "no such log", {"log": "x"})
    refusal = refusal_of(InvalidFilter("sql-filter", "a value is missing", 5))
    assert refusal == (conditions.INVALID_FIELD, "filter 'sql-filter', character 5: a value is missing", {})


def test_info_has_what_a_program_may_want():
    refusal = refusal_of(core.TooLarge(2, 1, "bytes", "data"))
    assert refusal.info == {"given": 2, "allowed": 1, "unit": "bytes"}
