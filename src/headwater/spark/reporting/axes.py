"""Finds round times for the marks of an axis, and says them: so that the year and the day are never in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .words import DAY, HOUR, MINUTE, MONTHS, SECOND, moment

_STEPS = (SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR,
          3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY)  # fmt: skip
_MONTH, _YEAR = 28 * DAY, 364 * DAY
"""What `tick_times` answers as their distance, where it is months or years."""


def ticks(from_ms: int, to_ms: int, most: int = 9) -> list[tuple[int, str]]:
    """Round times between the two, and how they are called."""
    step, times = tick_times(from_ms, to_ms, most)
    return list(zip(times, tick_labels(times, step), strict=True))


def tick_times(from_ms: int, to_ms: int, most: int) -> tuple[int, list[int]]:
    """Round times between the two, and how far they are apart: seconds up to weeks, months, or years."""
    span = max(to_ms - from_ms, 1)
    step = next((step for step in _STEPS if span / step <= most), None)
    if step is None:
        return _months(from_ms, to_ms, most)
    first = -(-from_ms // step) * step
    return step, list(range(first, to_ms + 1, step))


def tick_labels(times: Sequence[int], step: int) -> list[str]:
    """How these times are called, in their order: the year (and the day) with the first, and where it is another."""
    labels: list[str] = []
    year, day = 0, ""
    for ms in times:
        at = moment(ms)
        its_day = f"{at.day} {MONTHS[at.month - 1]}"
        if step >= _YEAR:
            label = str(at.year)
        elif step >= _MONTH:
            label = MONTHS[at.month - 1] if at.year == year else f"{MONTHS[at.month - 1]} {at.year}"
        else:
            date = its_day if at.year == year else f"{its_day} {at.year}"
            label = date if step >= DAY or (at.hour == at.minute == at.second == 0) else _time(ms, step)
            if step < DAY and (at.year, its_day) != (year, day) and label != date:
                label = f"{date}, {label}"
        labels.append(label)
        year, day = at.year, its_day
    return labels


def _time(ms: int, step: int) -> str:
    at = moment(ms)
    return f"{at.hour:02}:{at.minute:02}" + (f":{at.second:02}" if step < MINUTE else "")


def _months(from_ms: int, to_ms: int, most: int) -> tuple[int, list[int]]:
    first, last = moment(from_ms), moment(to_ms)
    months = (last.year - first.year) * 12 + last.month - first.month
    stride = next((stride for stride in (1, 2, 3, 6, 12, 24, 60, 120) if months / stride <= most + 3), 1200)
    found = _begins(range(first.year * 12 + first.month - 1, last.year * 12 + last.month), stride)
    return _YEAR if stride >= 12 else _MONTH, [ms for ms in found if from_ms <= ms <= to_ms]


def _begins(months: range, stride: int) -> Iterator[int]:
    """When every so manieth of these months begins; months are counted from the year 0."""
    for month in months:
        if month % stride == 0 and month // 12 >= 1:
            begin = moment(0).replace(year=month // 12, month=month % 12 + 1)
            yield round(begin.timestamp() * 1000)
