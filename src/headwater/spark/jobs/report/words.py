"""Formats numbers, sizes and times for people, each kind in one form."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import escape

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PER = ((SECOND, "s"), (MINUTE, "min"), (HOUR, "h"), (DAY, "day"))
_BYTES = ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text(value: object) -> str:
    """The value escaped for HTML, in an element or an attribute."""
    return escape(str(value), quote=True)


def short(value: str, chars: int) -> str:
    """The value for HTML, cut in its middle if it is long."""
    if len(value) > chars:
        value = f"{value[: chars * 2 // 3]}…{value[-(chars - chars * 2 // 3 - 1) :]}"
    return text(value)


def number(value: float) -> str:
    """Three significant digits: 950, 1.23k, 45.6M."""
    for limit, unit in ((0.9995e12, "T"), (0.9995e9, "G"), (0.9995e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return _digits(value / _UNITS[unit]) + unit
    return f"{value:,.0f}" if value == int(value) else _digits(value)


def numbers(values: Sequence[float]) -> list[str]:
    """Several numbers side by side: all in the unit of the largest, so that they can be compared."""
    unit = number(max(map(abs, values), default=0))[-1:]
    if unit not in _UNITS:
        return [number(value) for value in values]
    return [_digits(value / _UNITS[unit]) + unit if value else "0" for value in values]


def sizes(values: Sequence[float]) -> list[str]:
    """Several sizes side by side, in the unit of the largest; those that would be 0 in it keep their own."""
    power, unit = next((each for each in _BYTES if max(values, default=0) >= 1 << each[0]), (0, "B"))
    shown = [_digits(value / (1 << power)) for value in values]
    return [
        f"{text} {unit}" if text != "0" or not value else size(value) for text, value in zip(shown, values, strict=True)
    ]


def size(value: float) -> str:
    """Bytes: 640 B, 1.5 KiB, 2.31 GiB."""
    for power, unit in _BYTES:
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
    """The time, UTC; a time outside the calendar becomes the nearest one inside it."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, -62_135_596_800_000), 253_402_300_799_000))


def time(ms: int) -> str:
    """2026-11-21 12:34:56."""
    return moment(ms).strftime("%Y-%m-%d %H:%M:%S")


def day(ms: int) -> str:
    """21 Nov 2026."""
    at = moment(ms)
    return f"{at.day} {MONTHS[at.month - 1]} {at.year}"


def duration(ms: float) -> str:
    """The two largest units: 3 d 4 h."""
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
    return rates((events, ms))[0]


def rates(*counts: tuple[float, float]) -> list[str]:
    """Several rates side by side, of pairs of events and ms: all per the unit in which the first is at least 1."""
    known = [events / ms for events, ms in counts if ms > 0 and events > 0]
    unit, name = next((each for each in _PER if known and known[0] * each[0] >= 1), _PER[-1])
    return [
        f"{number(float(f'{events / ms * unit:.3g}'))}/{name}" if ms > 0 and events > 0 else "–"
        for events, ms in counts
    ]
