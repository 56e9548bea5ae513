"""Writes numbers, sizes and times as people read them, each kind in one form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html import escape

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text(value: object) -> str:
    """The value for HTML, in an element or an attribute: whatever it says, it is a text."""
    return escape(str(value), quote=True)


def short(value: str, chars: int) -> str:
    """The value for HTML, cut in its middle if it is long."""
    if len(value) > chars:
        value = f"{value[: chars * 2 // 3]}…{value[-(chars - chars * 2 // 3 - 1) :]}"
    return text(value)


def number(value: float) -> str:
    """Three digits that count: 950, 1.23k, 45.6M."""
    for limit, unit in ((0.9995e12, "T"), (0.9995e9, "G"), (0.9995e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return _digits(value / _UNITS[unit]) + unit
    return f"{value:,.0f}" if value == int(value) else _digits(value)


def size(value: float) -> str:
    """Bytes: 640 B, 1.5 KiB, 2.31 GiB."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << power:
            return f"{_digits(value / (1 << power))} {unit}"
    return f"{value:,.0f} B"


def _digits(value: float) -> str:
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    shown = f"{value:,.{digits}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def count(value: int, noun: str) -> str:
    """1 event, 2.3M events."""
    return f"{number(value)} {noun}{'' if value == 1 else 's'}"


def share(part: int, whole: int) -> str:
    """Per cent."""
    percent = 100 * part / whole if whole else 0
    return "<0.1 %" if 0 < percent < 0.1 else f"{percent:.1f} %" if percent < 99.95 else "100 %"


def moment(ms: int) -> datetime:
    """The time, UTC; what no calendar has, as the nearest that it has."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, -62_135_596_800_000), 253_402_300_799_000))


def time(ms: int) -> str:
    """2026-11-21 12:34:56."""
    return moment(ms).strftime("%Y-%m-%d %H:%M:%S")


def day(ms: int) -> str:
    """21 Nov 2026."""
    at = moment(ms)
    return f"{at.day} {MONTHS[at.month - 1]} {at.year}"


def duration(ms: float) -> str:
    """The two greatest units: 3 d 4 h."""
    parts: list[str] = []
    for unit, name in ((365 * DAY, "y"), (DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        if (whole := int(ms // unit)) or parts:
            parts.append(f"{whole} {name}" if whole else "")
            ms -= whole * unit
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts)) or f"{ms:.0f} ms"


def rate(events: float, ms: float) -> str:
    """Events per the unit in which it is at least 1."""
    if ms <= 0 or events <= 0:
        return "–"
    for unit, name in ((SECOND, "s"), (MINUTE, "min"), (HOUR, "h"), (DAY, "day")):
        if events / ms * unit >= 1 or name == "day":
            return f"{number(float(f'{events / ms * unit:.3g}'))}/{name}"
    raise AssertionError("the last unit returns")
