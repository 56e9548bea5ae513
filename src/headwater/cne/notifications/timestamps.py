"""Notification times: read as producers write them, written as RFC 3339 in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ...core.attribute_rules import check_time
from ...core.errors import InvalidEvent

FRACTION_DIGITS_MAX = 9
"""Nanoseconds, the finest resolution that consumers keep."""

_LEFT_OUT = re.compile(r"(?<=[Tt]\d\d:\d\d:\d\d)(?=\d{6}\D)", re.ASCII)
"""The position where StarlingX omits the point before its microseconds."""
_PARTS = re.compile(r"(.{16}):(\d\d)(?:\.(\d+))?(.+)")


def normalised(text: str, where: str) -> str:
    """The time as RFC 3339 in UTC with `Z`, with its fraction as given (at most nanoseconds).

    Accepts whatever an event may have as its `time` (`core.attribute_rules`), and StarlingX's microseconds without a
    point. A leap second (`:60`) becomes the following second, as in POSIX, because most readers do not support them.
    Raises InvalidEvent, also for a time outside the years 1 to 9999 in UTC.
    """
    text = _LEFT_OUT.sub(".", text, 1)
    if (fault := check_time(text)) is not None:
        raise InvalidEvent(fault, where)
    found = _PARTS.fullmatch(text.upper())
    assert found is not None, text
    minute, second, fraction, zone = found.groups()
    seconds = f"{minute}:{second}"
    if second == "60" or zone != "Z":
        seconds = _in_utc(minute, int(second), zone, where)
    return f"{seconds}.{fraction[:FRACTION_DIGITS_MAX]}Z" if fraction else f"{seconds}Z"


def now() -> str:
    """The current time in the form of `normalised`, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _in_utc(minute: str, second: int, zone: str, where: str) -> str:
    try:
        moment = datetime.fromisoformat(minute + zone).astimezone(UTC) + timedelta(seconds=second)
    except OverflowError:
        raise InvalidEvent(f"there is no {minute}{zone} in UTC", where) from None
    return moment.isoformat().removesuffix("+00:00")
