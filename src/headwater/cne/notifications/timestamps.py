"""The time of a notification: read as producers write it, written as RFC 3339 in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from ...core.errors import InvalidEvent
from ...core.limits import show

FRACTION_DIGITS_MAX = 9
"""Nanoseconds: the finest that a reader in this field keeps."""

_TIME = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[Tt](?P<clock>\d\d:\d\d:\d\d)"
    r"(?:\.(?P<fraction>\d+)|(?P<micros>\d{6}))?"  # StarlingX leaves out the point before its microseconds
    r"(?:[Zz]|(?P<sign>[+-])(?P<hours>[01]\d|2[0-3]):(?P<minutes>[0-5]\d))",
    re.ASCII,
)


def normalised(text: str, where: str) -> str:
    """The time as RFC 3339 in UTC with `Z`, with the fraction as it was given (at most nanoseconds).

    Lower-case `t` and `z`, offsets, and StarlingX's microseconds without a point are taken. A leap second (`:60`) is
    written as the second after it, as for POSIX, because most readers know none. Times without a zone are not taken.
    Raises InvalidEvent.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise InvalidEvent(f"a time of RFC 3339 with a zone is expected, {show(text)} given", where)
    fraction = (found["fraction"] or found["micros"] or "")[:FRACTION_DIGITS_MAX]
    try:
        seconds = f"{found['date']}T{found['clock']}"
        if _is_leap(found):
            seconds = (_last_second(found) + timedelta(seconds=1)).isoformat().removesuffix("+00:00")
        elif found["sign"] is not None:
            seconds = _in_utc(seconds, found).isoformat().removesuffix("+00:00")
        else:
            datetime.fromisoformat(seconds)
    except (ValueError, OverflowError):
        raise InvalidEvent(f"there is no such time as {show(text)}", where) from None
    return f"{seconds}.{fraction}Z" if fraction else f"{seconds}Z"


def now() -> str:
    """The present time, in the form of `normalised`, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _is_leap(found: re.Match[str]) -> bool:
    return found["clock"].endswith(":60")


def _last_second(found: re.Match[str]) -> datetime:
    """Of the minute that a leap second ends, in UTC. Raises ValueError, OverflowError."""
    return _in_utc(f"{found['date']}T{found['clock'][:-2]}59", found)


def _in_utc(seconds: str, found: re.Match[str]) -> datetime:
    zone = UTC if found["sign"] is None else _zone(found)
    return datetime.fromisoformat(seconds).replace(tzinfo=zone).astimezone(UTC)


def _zone(found: re.Match[str]) -> timezone:
    offset = timedelta(hours=int(found["hours"]), minutes=int(found["minutes"]))
    return timezone(-offset if found["sign"] == "-" else offset)
