import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvalidInput
from headwater.core.limits import check_tag
from headwater.formats.foreign import derived_id, fit_tag, rfc3339


@given(st.text(min_size=1), st.text())
def test_every_key_and_value_become_a_tag_that_a_log_takes(key: str, value: str) -> None:
    assert check_tag(fit_tag(key, value)) is None


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_values_stay_different(one: str, other: str) -> None:
    assert (fit_tag("k", one) == fit_tag("k", other)) == (one == other)


@pytest.mark.parametrize(
    ("key", "value", "tag"),
    [
        ("order", "17", "order:17"),
        ("org:group", "Group 1", "org_group:Group 1"),
        ("applications", "Application[770001]", "applications:Application[770001]"),
        ("share", "100%", "share:100%25"),
        ("note", "a\nb", "note:a%0Ab"),
        ("empty", "", "empty"),
    ],
)
def test_what_does_not_fit_is_escaped(key: str, value: str, tag: str) -> None:
    assert fit_tag(key, value) == tag


def test_a_tag_without_key_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a tag needs a key, got ''"):
        fit_tag("", "x")


def test_a_derived_id_is_that_of_source_position_and_content() -> None:
    assert derived_id("a.csv", 1, "x") == derived_id("a.csv", 1, "x")
    assert len({derived_id("a.csv", 1, "x"), derived_id("b.csv", 1, "x"), derived_id("a.csv", 2, "x")}) == 3


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("2011-10-11 13:45:40.276000+02:00", "2011-10-11T13:45:40.276000+02:00"),
        ("2019-05-20T12:26:57.000Z", "2019-05-20T12:26:57Z"),
        ("2013-01-01", "2013-01-01T00:00:00Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:60Z"),
        ("2017-01-01T05:29:60.25+05:30", "2017-01-01T05:29:60.25+05:30"),
        ("2017-06-01t00:00:00z", "2017-06-01t00:00:00z"),
        ("1357020000", "2013-01-01T06:00:00Z"),
        ("1357020000000", "2013-01-01T06:00:00Z"),
    ],
)
def test_times_come_out_as_rfc_3339(given_: str, expected: str) -> None:
    assert rfc3339(given_) == expected


def test_a_format_reads_times_of_any_kind() -> None:
    assert rfc3339("31.12.2013 23:59", "%d.%m.%Y %H:%M") == "2013-12-31T23:59:00Z"


@pytest.mark.parametrize("text", ["yesterday", "", "99999999999999999", "2016-12-30T23:59:60Z"])
def test_a_time_that_cannot_be_read_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"expected .*, got "):
        rfc3339(text)
    with pytest.raises(InvalidInput, match=r"expected a time as '%Y', got .*"):
        rfc3339("2016-12-31T23:59:60Z", "%Y")


def test_14_digits_are_a_time_only_with_a_format() -> None:
    with pytest.raises(InvalidInput, match=r"'20240310023000' is ambiguous: YYYYMMDDhhmmss or milliseconds"):
        rfc3339("20240310023000")
    assert rfc3339("20240310023000", "%Y%m%d%H%M%S") == "2024-03-10T02:30:00Z"
    assert rfc3339("253402300799000") == "9999-12-31T23:59:59Z"
