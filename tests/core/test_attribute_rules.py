"""Rules of attributes: what CloudEvents says of them, and dates that exist."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.attribute_rules import RULES, check_time, time_order
from headwater.core.errors import InvalidInput
from headwater.core.event import Event
from headwater.core.limits import check_append, plain_bytes
from tests.every import every

TIMES = [
    "2026-11-28T13:28:21Z", "2026-11-28T13:28:21.123456789Z", "2026-11-28t13:28:21z", "2024-02-29T00:00:00+00:00",
    "2000-02-29T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-31T00:00:00-00:00",
    "2016-12-31T23:59:60Z", "1990-12-31T15:59:60-08:00", "2017-01-01T05:29:60.5+05:30", 
    f"2026-11-28T13:28:21.{'1' * 99}Z",
]  # fmt: skip
NO_TIMES = [
    "", "now", "2020-02-30T00:00:00Z", "2023-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-04-31T00:00:00Z",
    "0000-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z",
    "2026-11-28T24:00:00Z", "2026-11-28T13:60:00Z", "2026-11-28T13:28:61Z", "2026-11-28T13:28:60Z",
    "2016-12-30T23:59:60Z", "2016-12-31T22:59:60Z", "2016-12-31T23:59:60-08:00", "0001-01-01T00:59:60+01:00",
    "9999-12-31T23:59:60Z", "2026-11-28", "2026-11-28 13:28:21Z", "2026-11-28T13:28:21", "2026-11-28T13:28Z",
    "2026-11-28T13:28:21,5Z", "2026-11-28T13:28:21.Z", "2026-11-28T13:28:21+0100", "2026-11-28T13:28:21+24:00",
    "20261128T132821Z", "2026-11-28T13:28:21Z ", " 2026-11-28T13:28:21Z", "2026-W48-6T00:00:00Z",
    "+2026-11-28T13:28:21Z",
    "\u0662026-11-28T13:28:21Z", "2026-11-28T13:28:21\u2212" "01:00", "1732800501", "2023-10-05T12:34:54896244Z",
]  # fmt: skip
SCHEMAS = ["https://example.com/schemas/order.json#v1", "urn:example:order", "/schemas/order", "order.json",
           "a?b=c&d=%20", "https://user@[2001:db8::1]:8080/x?y=z#f", "https://example.com/schöma", "//host/path",
           "#part", "?q", "./a:b", "HTTP://EXAMPLE.COM"]  # fmt: skip
NO_SCHEMAS = ["", "a b", "https://example.com/<id>", 'x"y', "a|b", "a^b", "{x}", "a`b", "a\\b", "%", "%2", "%zz",
              "a#b#c", "1a:b", ":", "a[0]"]  # fmt: skip


def attempt(name: str, value: str) -> str | None:
    """As the gate says it, of whose two ways both must say the same."""
    event = Event("A", attributes={name: value})
    is_plain = plain_bytes(event, 1000) is not None
    try:
        check_append([event], 1000)
    except InvalidInput as error:
        assert not is_plain
        return str(error)
    return None


@every("text", TIMES)
def test_a_time_of_rfc_3339_is_taken(text: str) -> None:
    assert check_time(text) is None
    assert attempt("time", text) is None


@every("text", NO_TIMES)
def test_what_is_no_time_is_refused(text: str) -> None:
    assert attempt("time", text) == f"events[0].attributes.time: expected an RFC 3339 time, got {text!r}"


@given(
    st.datetimes(
        timezones=st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))) | st.just(UTC)
    )
)
def test_every_moment_of_python_is_a_time(moment: datetime) -> None:
    assert check_time(moment.isoformat()) is None
    assert check_time(moment.isoformat().replace("+00:00", "Z")) is None


@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
def test_a_date_is_one_of_the_calendar(year: int, month: int, day: int) -> None:
    try:
        exists = bool(datetime(year, month, day))
    except ValueError:
        exists = False
    assert (check_time(f"{year:04}-{month:02}-{day:02}T00:00:00Z") is None) == exists


@every("text", SCHEMAS)
def test_a_uri_reference_is_a_dataschema(text: str) -> None:
    assert attempt("dataschema", text) is None


@every("text", NO_SCHEMAS)
def test_what_no_reader_parses_is_no_dataschema(text: str) -> None:
    assert attempt("dataschema", text) == f"events[0].attributes.dataschema: expected a URI, got {text!r}"


@pytest.mark.parametrize("name", ["subject", "datacontenttype"])
def test_an_attribute_that_may_not_be_empty_is_left_out_instead(name: str) -> None:
    problem = "expected a non-empty string, got ''; omit the attribute if there is no value"
    assert attempt(name, "") == f"events[0].attributes.{name}: {problem}"
    assert attempt(name, " ") is None


def test_other_attributes_are_any_text() -> None:
    for name in ("comment", "tenant", "subjects"):
        assert name not in RULES
        assert attempt(name, "") is attempt(name, "2020-02-30") is None


def test_a_content_type_that_is_no_media_type_is_kept() -> None:
    assert attempt("datacontenttype", "json, more or less") is None


IN_ORDER = [
    ["now", "", "2020-02-30T00:00:00Z"],
    ["0001-01-01T00:00:00+23:59"],
    ["2016-12-31t23:59:58.1234567891z", "2016-12-31T23:59:58.12345678910Z"],
    ["2016-12-31T23:59:59Z", "2017-01-01T05:29:59.000+05:30"],
    ["2016-12-31T23:59:59.5Z", "2016-12-31T18:59:59.50-05:00"],
    ["2016-12-31T23:59:60Z", "2016-12-31t18:59:60-05:00"],
    ["2016-12-31T23:59:60.25Z"],
    ["2017-01-01T00:00:00Z"],
    ["2017-01-01T00:00:00.1Z"],
    ["2017-01-01T00:00:00.12Z"],
    ["9999-12-31T23:59:59-23:59"],
]
"""Texts of the same moment are in one list."""


def test_times_are_ordered_as_they_were() -> None:
    groups = [{time_order(text) for text in moment} for moment in IN_ORDER]
    assert [len(keys) for keys in groups] == [1] * len(IN_ORDER)
    keys = [key for group in groups for key in group]
    assert keys == sorted(set(keys))
