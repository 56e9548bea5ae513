"""Rules for the values of the attributes that CloudEvents defines, if an event has them (CloudEvents 1.0.2, 3.1).

Other attributes may contain any text. Readers parse these four, and many refuse a whole batch if one breaks its rule.
Two deviations from the standard are accepted, because clients send them and every reader accepts them: a
`datacontenttype` that is not a media type, and a `dataschema` that is relative or has letters beyond ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date

from .quoting import show

ATTRIBUTE_NAME = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
ATTRIBUTE_CHARS_MAX = 4096
TAGS_MAX = 128

_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
PLAIN_TIME = (
    r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])"
    rf"T{_CLOCK}:[0-5]\d(?:\.\d+)?Z"
)
"""The usual form, with a day that every month has; valid in both Python and RE2. A match is always accepted."""
_is_plain_time = re.compile(PLAIN_TIME, re.ASCII).fullmatch
_TIME = re.compile(
    rf"(?P<date>\d{{4}}-\d\d-\d\d)[Tt](?P<minute>{_CLOCK}):(?P<second>[0-5]\d|60)(?P<fraction>\.\d+)?"
    rf"(?:[Zz]|(?P<sign>[+-])(?P<offset>{_CLOCK}))",
    re.ASCII,
)
_DAY_MINUTES = 24 * 60
_PART = r"[!$&-.0-9;=@-Z_a-z~\x80-\U0010ffff]|%[0-9A-Fa-f]{2}"
_URI_REFERENCE = re.compile(
    rf"(?:[A-Za-z][A-Za-z0-9+.-]*+:|(?!(?:{_PART})*+:))(?://(?:{_PART}|[:\[\]])*+)?(?:{_PART}|[:/])*+"
    rf"(?:\?(?:{_PART}|[:/?])*+)?(?:#(?:{_PART}|[:/?])*+)?"
)
"""RFC 3986, 4.1, without checking the parts of the authority; with letters beyond ASCII, as in RFC 3987."""


def check_time(text: str) -> str | None:
    """Why a text is not an RFC 3339 time, or None. The date must exist; a leap second must end a month in UTC."""
    if _is_plain_time(text) or _exists(text):
        return None
    return f"expected an RFC 3339 time, got {show(text)}"


def time_order(text: str) -> tuple[int, str]:
    """A sort key for RFC 3339 times in chronological order: the minute in UTC, then the second with its fraction.

    Equal moments have equal keys, however they are written. Texts that are not such times sort before those times.
    """
    found = _TIME.fullmatch(text)
    if found is None or not _exists(text):
        return 0, ""
    return _minute(found), f"{found['second']}{(found['fraction'] or '').rstrip('.0')}"


def _exists(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    try:
        minute = _minute(found)
        if found["second"] != "60":
            return True
        day, minute_of_day = divmod(minute + 1, _DAY_MINUTES)
        return minute_of_day == 0 and day > 1 and date.fromordinal(day).day == 1
    except (ValueError, OverflowError):
        return False


def _minute(found: re.Match[str]) -> int:
    """The minute in UTC; the year 1 begins at minute 1440. Raises ValueError if there is no such date."""
    local = date.fromisoformat(found["date"]).toordinal() * _DAY_MINUTES + _minutes(found["minute"])
    if found["sign"] is None:
        return local
    offset = _minutes(found["offset"])
    return local + offset if found["sign"] == "-" else local - offset


def _minutes(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def _check_schema(text: str) -> str | None:
    if text and _URI_REFERENCE.fullmatch(text):
        return None
    return f"expected a URI, got {show(text)}"


def _check_not_empty(text: str) -> str | None:
    return None if text else "expected a non-empty string, got ''; omit the attribute if there is no value"


RULES: Mapping[str, Callable[[str], str | None]] = {
    "time": check_time,
    "subject": _check_not_empty,
    "datacontenttype": _check_not_empty,
    "dataschema": _check_schema,
}
"""By the attribute's name: a function that says why a value is refused, or None."""
