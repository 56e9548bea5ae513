"""Times as producers write them."""

from __future__ import annotations

import pytest

from headwater.cne.notifications.timestamps import normalised, now
from headwater.core.attribute_rules import check_time
from headwater.core.errors import InvalidEvent


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2021-02-05T17:31:00Z", "2021-02-05T17:31:00Z"),
        ("2021-02-05T17:31:00+02:00", "2021-02-05T15:31:00Z"),
        ("2021-02-05T17:31:00.120-00:30", "2021-02-05T18:01:00.120Z"),
        ("2021-02-05t17:31:00z", "2021-02-05T17:31:00Z"),
        ("2021-03-05T20:59:00.999999999Z", "2021-03-05T20:59:00.999999999Z"),
        ("2021-03-05T20:59:00.99999999912Z", "2021-03-05T20:59:00.999999999Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("2017-01-01T01:59:60.25+02:00", "2017-01-01T00:00:00.25Z"),
        ("2023-10-05T12:34:54896244Z", "2023-10-05T12:34:54.896244Z"),
    ],
)
def test_time_is_normalised_without_losing_digits(given, expected):
    assert normalised(given, "time") == expected


@pytest.mark.parametrize(
    "given",
    [
        "2021-02-05T17:31:61Z",
        "2021-02-05T24:31:60Z",
        "2021-02-05T17:31:60Z",
        "2016-12-31T23:59:60-08:00",
        "2016-12-30T23:59:60Z",
        "2023-10-05T12:34:5489624Z",
        "9999-12-31T23:59:60Z",
        "2021-02-05T17:31:00",
        "2021-02-30T17:31:00Z",
        "1620000000",
        "2021-02-05 17:31:00Z",
        "0001-01-01T00:00:00+05:00",
        "yesterday",
        "2021-02-05T17:31:00+25:00",
    ],
)
def test_what_is_no_time_is_refused(given):
    with pytest.raises(InvalidEvent, match="time"):
        normalised(given, "time")


def test_present_time_is_in_the_same_form():
    present = now()
    assert normalised(present, "time") == present
    assert check_time(present) is None
