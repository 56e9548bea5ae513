"""Draws charts as SVG: pure functions from numbers to text.

Each has a title for screen readers; everything from the log is escaped. Colours are variables of the page's style, so
that they suit light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from . import words
from .facts import Resource
from .palette import PLAIN
from .words import DAY, HOUR, MINUTE, MONTHS, SECOND, WEEKDAYS, moment, number, short, text

_STEPS = (SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR,
          3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY)  # fmt: skip
_MONTH, _YEAR = 28 * DAY, 364 * DAY
"""The distances that `tick_times` returns for months and years."""


def ticks(from_ms: int, to_ms: int, most: int = 9) -> list[tuple[int, str]]:
    """Round times between the two, with their labels."""
    step, times = tick_times(from_ms, to_ms, most)
    return list(zip(times, tick_labels(times, step), strict=True))


def tick_times(from_ms: int, to_ms: int, most: int) -> tuple[int, list[int]]:
    """Round times between the two, and their distance: seconds up to weeks, months, or years."""
    span = max(to_ms - from_ms, 1)
    step = next((step for step in _STEPS if span / step <= most), None)
    if step is None:
        return _months(from_ms, to_ms, most)
    first = -(-from_ms // step) * step
    return step, list(range(first, to_ms + 1, step))


def tick_labels(times: Sequence[int], step: int) -> list[str]:
    """The labels of these times, in order: the first, and each change, includes the year (and the day)."""
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
    """The start of every nth of these months; months are counted from the year 0."""
    for month in months:
        if month % stride == 0 and month // 12 >= 1:
            begin = moment(0).replace(year=month // 12, month=month % 12 + 1)
            yield round(begin.timestamp() * 1000)


WIDTH = 1000
LEFT, RIGHT = 56, 8
PART = "incomplete: it extends beyond the selected range"


def svg(width: int, height: int, title: str, body: str, css_class: str = "") -> str:
    """An image with that title."""
    named = f' class="{css_class}"' if css_class else ""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{text(title)}"{named}>'
        f"<title>{text(title)}</title>{body}</svg>"
    )


def areas(
    series: Sequence[tuple[str, Sequence[int]]],
    first_ms: int,
    bucket_ms: int,
    title: str,
    classes: Mapping[str, str],
    *,
    last_is_part: bool = False,
) -> str:
    """Stacked areas over time; the first of the series is at the bottom. An incomplete last bucket is veiled."""
    height, top, bottom = 300, 12, 28
    buckets = len(series[0][1]) if series else 0
    totals = [sum(counts[at] for _, counts in series) for at in range(buckets)]
    highest, steps = scale(max(totals, default=0))
    plot = height - top - bottom
    step_x = (WIDTH - LEFT - RIGHT) / max(buckets, 1)

    def y(value: float) -> float:
        return top + plot * (1 - value / highest)

    parts = [_grid(y, steps)]
    below = [0] * buckets
    for name, counts in series:
        above = [low + value for low, value in zip(below, counts, strict=True)]
        upper = _edge(above, step_x, y)
        lower = _edge(below, step_x, y)[::-1]
        points = " ".join(f"{x:.1f},{level:.1f}" for x, level in (*upper, *lower))
        parts.append(f'<polygon points="{points}" class="{classes[name]}"/>')
        below = above
    if last_is_part:
        parts.append(
            f'<rect class="part" x="{LEFT + (buckets - 1) * step_x:.2f}" y="{top}" width="{step_x:.2f}" '
            f'height="{plot}"/>'
        )
    for at, total in enumerate(totals):
        from_ms = first_ms + at * bucket_ms
        lines = [f"{words.time(from_ms)} + {words.duration(bucket_ms)}", f"{words.count(total, 'event')}"]
        lines += [f"{name or 'other types'}: {number(counts[at])}" for name, counts in series if counts[at]]
        lines += [PART] if last_is_part and at == buckets - 1 else []
        parts.append(
            f'<rect class="hover" x="{LEFT + at * step_x:.2f}" y="{top}" width="{step_x:.2f}" height="{plot}" '
            f'data-tip="{tip(lines)}"/>'
        )
    parts.append(_time_axis(first_ms, first_ms + bucket_ms * buckets, top + plot))
    return svg(WIDTH, height, title, "".join(parts), "chart")


def _edge(values: Sequence[float], step_x: float, y: object) -> list[tuple[float, float]]:
    """Through the middle of each bucket, level at both ends."""
    assert callable(y)
    if not values:
        return []
    middle = [(LEFT + (at + 0.5) * step_x, y(value)) for at, value in enumerate(values)]
    return [(LEFT, middle[0][1]), *middle, (LEFT + len(values) * step_x, middle[-1][1])]


def scale(highest: float) -> tuple[float, list[float]]:
    """A round number not below the highest value, and four or five round numbers up to it."""
    if highest <= 0:
        return 1, [0, 1]
    rough = highest / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough)
    step = max(step, 1) if step != 2.5 else 2 if highest <= 8 else 5
    most = math.ceil(highest / step) * step
    return most, [step * at for at in range(round(most / step) + 1)]


def _grid(y: object, steps: Sequence[float], width: int = WIDTH) -> str:
    assert callable(y)
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y(step):.1f}" y2="{y(step):.1f}"/>'
        f'<text class="label" x="{LEFT - 8}" y="{y(step) + 4:.1f}" text-anchor="end">{shown}</text>'
        for step, shown in zip(steps, words.numbers(steps), strict=True)
    )


def _time_axis(from_ms: int, to_ms: int, y: float) -> str:
    return _ticks(from_ms, to_ms, y, LEFT, WIDTH - LEFT - RIGHT, 9, LEFT + 14)


def _ticks(from_ms: int, to_ms: int, y: float, left: float, plot: float, most: int, first_x: float) -> str:
    """Marks at round times, with labels if there is room for them: from `first_x` on."""
    span = max(to_ms - from_ms, 1)
    step, times = tick_times(from_ms, to_ms, most)
    places = [(ms, left + (ms - from_ms) / span * plot) for ms in times]
    parts = [f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 5:.1f}"/>' for _, x in places]
    named = [(ms, x) for ms, x in places if first_x < x < WIDTH - 30]
    labels = tick_labels([ms for ms, _ in named], step)
    parts += [
        f'<text class="label" x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle">{label}</text>'
        for (_, x), label in zip(named, labels, strict=True)
    ]
    return "".join(parts)


def columns(values: Sequence[tuple[str, int]], title: str, noun: str = "event") -> str:
    """A column for each value, with its name below."""
    height, top, bottom = 220, 12, 28
    width = 480
    highest, steps = scale(max((value for _, value in values), default=0))
    plot = height - top - bottom
    step_x = (width - LEFT - RIGHT) / max(len(values), 1)
    every = -(-len(values) * 46 // (width - LEFT - RIGHT))

    def y(value: float) -> float:
        return top + plot * (1 - value / highest)

    parts = [_grid(y, steps, width)]
    for at, (name, value) in enumerate(values):
        x, column_top = LEFT + at * step_x + step_x * 0.12, y(value)
        parts.append(
            f'<rect class="{PLAIN}" x="{x:.1f}" y="{column_top:.1f}" width="{step_x * 0.76:.1f}" '
            f'height="{top + plot - column_top:.1f}" rx="1.5" data-tip="{tip([name, words.count(value, noun)])}"/>'
        )
        if at % every == 0:
            middle = LEFT + (at + 0.5) * step_x
            parts.append(
                f'<text class="label" x="{middle:.1f}" y="{height - 8}" text-anchor="middle">{text(name)}</text>'
            )
    return svg(width, height, title, "".join(parts), "chart half")


def heat(week: Sequence[Sequence[int]], title: str) -> str:
    """Days of the week by hours: darker means more."""
    cell, gap, left, top = 17.6, 2.4, 40, 10
    highest = max((events for hours in week for events in hours), default=0)
    parts = []
    for day, hours in enumerate(week):
        y = top + day * (cell + gap) * 1.3
        parts.append(f'<text class="label" x="{left - 8}" y="{y + 16:.1f}" text-anchor="end">{WEEKDAYS[day]}</text>')
        for hour, events in enumerate(hours):
            x = left + hour * (cell + gap) * 0.91
            strength = 0.06 + 0.94 * events / highest if events and highest else 0.03
            lines = [f"{WEEKDAYS[day]} {hour:02}:00–{(hour + 1) % 24:02}:00", words.count(events, "event")]
            parts.append(
                f'<rect class="{PLAIN}" x="{x:.1f}" y="{y:.1f}" width="{cell * 0.91:.1f}" height="{cell * 1.3:.1f}" '
                f'rx="2" fill-opacity="{strength:.3f}" data-tip="{tip(lines)}"/>'
            )
    for hour in range(0, 24, 3):
        x = left + hour * (cell + gap) * 0.91 + cell * 0.45
        parts.append(f'<text class="label" x="{x:.1f}" y="212" text-anchor="middle">{hour:02}</text>')
    return svg(480, 220, title, "".join(parts), "chart half")


def timeline(resources: Sequence[Resource], from_ms: int, to_ms: int, classes: Mapping[str, str], title: str) -> str:
    """A row of spans for each resource; synchronisation states also differ in height: taller is worse."""
    row, top, left = 30, 6, 290
    plot = WIDTH - left - RIGHT
    span = max(to_ms - from_ms, 1)
    height = top + row * len(resources) + 28
    parts = []
    common = len(common_prefix([resource.name for resource in resources]))
    for at, resource in enumerate(resources):
        base = top + at * row + 24
        name = resource.name
        parts.append(
            f'<text class="name" x="{left - 12}" y="{base - 5}" text-anchor="end" data-tip="{tip([name])}">'
            f"{short(name[common:], 42)}</text>"
            f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>'
        )
        for stay in resource.spans:
            x = left + (stay.from_ms - from_ms) / span * plot
            width = max((stay.to_ms - stay.from_ms) / span * plot, 0.8)
            tall = {"good": 9, "warn": 15, "bad": 21}.get(classes[stay.state], 15)
            lines = [name, stay.state, f"{words.time(stay.from_ms)}, for {words.duration(stay.to_ms - stay.from_ms)}"]
            parts.append(
                f'<rect class="{classes[stay.state]}" x="{x:.1f}" y="{base - tall}" width="{width:.1f}" '
                f'height="{tall}" data-tip="{tip(lines)}"/>'
            )
    parts.append(_ticks(from_ms, to_ms, top + row * len(resources), left, plot, 7, left))
    return svg(WIDTH, height, title, "".join(parts), "chart")


def common_prefix(names: Sequence[str]) -> str:
    """The common parent directories of all names."""
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[: first.rfind("/", 0, same) + 1]


def tip(lines: Sequence[str]) -> str:
    """The text of a tooltip, for an attribute."""
    return "&#10;".join(text(line) for line in lines)
