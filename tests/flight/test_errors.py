from __future__ import annotations

import pyarrow.flight as flight
import pytest

from headwater.core import access
from headwater.core import errors as core
from headwater.core.errors import ConditionFailure
from headwater.flight.errors import TABLE, Busy, ServerFault, core_error_of, flight_error_of
from headwater.formats.jsontext import MalformedJson
from tests.builders import answer_of
from tests.docs.documents import ROOT, table_after
from tests.every import every

TOLD: list[core.EventLogError] = [
    core.InvalidInput("p", "w"), core.InvalidEvent("p", "w"), core.InvalidQuery("p"), core.InvalidPosition("p", "w"),
    core.InvalidSettings("p"), core.InvalidLogName("p"), core.TooLarge(2, 1, "bytes", "w"),
    core.AppendConditionFailed(ConditionFailure.NEWER_MATCH, 3, 2),
    core.AppendConditionFailed(ConditionFailure.NO_MATCH_FOUND, None, 2),
    core.DuplicateEventId("1", "/s", 5, 0), core.DuplicateEventId("1", "", None, 0),
    core.ConditionNeedsTrimmedEvents(1, 2), core.PositionTrimmed(1, 2), core.PositionOfOtherIncarnation(1, "i", 2),
    core.LogNotFound("x"), core.LogExists("x"), core.ConsumerNotFound("o", "c"), core.ConsumerFenced("o", "c", 1, 2),
    core.WouldDrop("x", 3, 1, 3, 5, 6), core.WouldDrop("x", 3, 1, 3, None, None, 3),
    core.StateConflict("k", "k", 1, 2), core.Overloaded(2, 1, 7.5), core.SequenceExhausted(1), core.Closed("x"),
    access.Forbidden("u", access.Right.READ, "x"), access.TooManyLogins(3.0), access.IssuerUnavailable(3.0),
    Busy("reads", 3),
]  # fmt: skip
KEPT: list[core.EventLogError] = [
    core.DiskFull("/secret", 1, 2), core.StorageCorrupted("/secret", "secret", "secret"),
    core.StorageUnavailable("/secret"), core.NotPrimary("orders"), core.OutcomeUnknown("orders"),
    access.Unauthenticated("secret"), ServerFault("secret"),
]  # fmt: skip


def kinds(kind):
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith("headwater.core"):
            yield from kinds(child)


def test_no_error_of_the_core_is_missing():
    known = {type(error) for error in TOLD + KEPT} | {MalformedJson}
    assert known == set(TABLE)
    assert {kind for kind in kinds(core.EventLogError) if known.isdisjoint(kind.__mro__)} == {core.EventLogError}


def test_every_error_is_documented():
    rows = table_after(ROOT / "docs" / "reference" / "flight.md", "errors")
    said = {code.strip("`"): kind.strip("`") for code, kind, _, _ in rows}
    assert said == {row.code: row.kind.__name__ for row in TABLE.values()}


@every("error", TOLD, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_it_was(error):
    told = flight_error_of(error, "a test")
    assert answer_of(core_error_of(told)) == answer_of(error)
    assert str(told) == f"{TABLE[type(error)].code}: {error}"


@pytest.mark.parametrize("error", KEPT, ids=lambda error: type(error).__name__)
def test_what_concerns_the_operator_alone_is_not_told(error):
    told = flight_error_of(error, "a test")
    assert "secret" not in str(told) + told.extra_info.decode()
    assert type(core_error_of(told)) is type(error)


def test_malformed_json_is_an_invalid_input_again():
    told = flight_error_of(MalformedJson("p", b"{", 1), "a test")
    assert answer_of(core_error_of(told))[2] == "malformed JSON in line 1, column 2: p"


def test_an_error_of_flight_stays_what_it_is():
    error = flight.FlightCancelledError("left")
    assert flight_error_of(error, "a test") is error


@pytest.mark.parametrize("extra", [b"", b"no JSON", b"[]", b'{"error":"closed"}'])
def test_an_error_of_another_server_is_not_understood(extra):
    assert core_error_of(flight.FlightServerError("x", extra)) is None


@pytest.mark.parametrize("extra", [b'{"error":"new","message":"m"}', b'{"error":"overloaded","message":"m"}'])
def test_an_error_of_another_version_is_a_fault_with_its_words(extra):
    error = core_error_of(flight.FlightServerError("x", extra))
    assert type(error) is ServerFault
    assert str(error) == "m"
