"""Builds the page of a report: one self-contained file.

`page(facts)` is pure; everything from the log is escaped as text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files

from . import charts, words
from .buckets import Axis
from .facts import Facts, TagFacts
from .palette import OTHER, PLAIN, STATES, palette
from .words import WEEKDAYS, count, duration, number, share, short, size, text

AXES = {"time": "by event time", "recorded_at": "by recording time"}
TABLE_ROWS = 400
UNIQUE_TAGS, UNIQUE_SHARE = 20, 0.8
"""No values are shown for a key with at least this many tags and values per tag."""


def page(facts: Facts) -> str:
    """The whole document."""
    style, script = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    sections = (_rates, _types, _tags, _shape, _states, _readers, _storage)
    body = "".join(section(facts) for section in sections) if facts.events else _nothing(facts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(facts.log)} – log report</title><style>{style}</style></head>\n"
        f"<body><main>{_header(facts)}{body}{_footer(facts)}</main>"
        f'<div id="tip" role="tooltip" hidden></div><script>{script}</script></body></html>\n'
    )


def _header(facts: Facts) -> str:
    span = max(facts.last_ms - facts.first_ms, 0)
    totals = map(sum, zip(*(counts for _, counts in facts.series), strict=True))
    peak = max(totals, default=0)
    average, highest = words.rates((facts.events, span), (peak, facts.bucket_ms))
    tiles = [
        ("events", number(facts.events), f"numbers to {facts.head:,}"),
        ("payload", size(facts.sizes.total), f"{size(facts.stored_bytes)} stored" if facts.stored_bytes else ""),
        ("types", number(facts.types_total), count(facts.sources_total, "source")),
        ("time span", duration(span) if facts.events else "–", _span(facts)),
        ("average rate", average, f"peak {highest}"),
        ("consumers", number(len(facts.consumers)), _furthest_behind(facts)),
    ]
    shown = "".join(
        f'<div class="tile"><dt>{name}</dt><dd>{value}<small>{text(under)}</small></dd></div>'
        for name, value, under in tiles
    )
    query = f'<p class="query">Only events that match <code>{text(facts.query)}</code>.</p>' if facts.query else ""
    return (
        f'<header><p class="kind">Event log</p><h1>{text(facts.log)}</h1>'
        f'<p class="lead">{_lead(facts)}</p>{query}<dl class="tiles">{shown}</dl></header>'
    )


def _lead(facts: Facts) -> str:
    if not facts.events:
        return "It has no events."
    top = facts.types[0]
    most = f"Most are <b>{short(top.type, 60)}</b> ({share(top.events, facts.events)})."
    if facts.types_total == 1:
        most = f"All are <b>{short(top.type, 60)}</b>."
    return f"{count(facts.events, 'event')} from {words.day(facts.first_ms)} to {words.day(facts.last_ms)}. {most}"


def _span(facts: Facts) -> str:
    return f"since {words.day(facts.first_ms)}" if facts.events else ""


def _furthest_behind(facts: Facts) -> str:
    if not facts.consumers:
        return "none registered"
    most = max(consumer.behind for consumer in facts.consumers)
    return "all are up to date" if most == 0 else f"up to {number(most)} behind"


def _nothing(facts: Facts) -> str:
    return _card("Nothing to show", "<p>There are no events to chart.</p>") + _readers(facts) + _storage(facts)


# Sections.


def _rates(facts: Facts) -> str:
    shown = Axis(facts.first_ms, facts.last_ms, facts.bucket_ms)
    first, bucket, classes = shown.begin_ms, facts.bucket_ms, _classes(facts)
    title = f"Events per {duration(bucket)} by type"
    legend = _legend((name or "other types", classes[name]) for name, _ in facts.series)
    names = [name or "other types" for name, _ in facts.series]
    length = len(facts.series[0][1])
    rows = [
        [words.time(first + at * bucket), *[f"{counts[at]:,}" for _, counts in facts.series]] for at in range(length)
    ]
    part = ""
    if shown.last_is_part:
        rows[-1][0] += " (incomplete)"
        part = (
            f" The last {duration(bucket)} (shaded) is incomplete, because the selected range "
            f"ends {words.time(facts.last_ms)}."
        )
    outside = ""
    if facts.outside:
        outside = f" {count(facts.outside, 'event')} without a time or far outside this range are not shown."
    return _card(
        "Events over time",
        legend
        + charts.areas(facts.series, first, bucket, title, classes, last_is_part=shown.last_is_part)
        + _details(["from (UTC)", *names], rows),
        f"Events per {duration(bucket)}, {AXES[facts.axis]}, UTC.{part}{outside}",
    )


def _types(facts: Facts) -> str:
    most, classes = facts.types[0].events, _classes(facts)
    rows = "".join(
        f'<tr><th scope="row" title="{text(of_type.type)}">{short(of_type.type, 44)}</th>'
        f'<td class="bar">{_bar(of_type.events, most, classes.get(of_type.type, OTHER))}</td>'
        f"<td>{number(of_type.events)}</td><td>{share(of_type.events, facts.events)}</td>"
        f"<td>{size(of_type.bytes / of_type.events)}</td>"
        f'<td class="time">{words.time(of_type.first_ms)}</td><td class="time">{words.time(of_type.last_ms)}</td></tr>'
        for of_type in facts.types
    )
    table = _wide_table(["type", "", "events", "share", "mean size", "first (UTC)", "last (UTC)"], rows)
    left = facts.types_total - len(facts.types)
    return _card("Types", table + (f'<p class="more">and {count(left, "more type")}</p>' if left > 0 else ""))


def _tags(facts: Facts) -> str:
    if not facts.tags:
        return ""
    unique = [tag for tag in facts.tags if _is_nearly_unique(tag)]
    boxes = []
    for tag in facts.tags:
        if tag in unique:
            continue
        values = count(tag.values, "value")
        boxes.append(
            f'<section class="tag"><h3 title="{text(tag.key)}">{short(tag.key, 26)}</h3>'
            f"<p>{count(tag.tags, 'tag')}, {values}</p>{_ranking(tag.top, 26, 'no value')}</section>"
        )
    named = ", ".join(f"{short(tag.key, 26)} ({count(tag.values, 'value')})" for tag in unique)
    more = f'<p class="more">Nearly every event has a unique value: {named}.</p>' if unique else ""
    shown = f'<div class="boxes">{"".join(boxes)}</div>' if boxes else ""
    return _card("Tags", shown + more, "The most frequent keys and values.")


def _is_nearly_unique(tag: TagFacts) -> bool:
    """Whether its values name single events, so that none is a top value."""
    return tag.tags >= UNIQUE_TAGS and tag.values >= UNIQUE_SHARE * tag.tags


def _classes(facts: Facts) -> dict[str, str]:
    """The colour of each type and state, throughout the page."""
    return palette((name for name, _ in facts.series), _states_of(facts))


def _states_of(facts: Facts) -> list[str]:
    """The states, synchronisation states first, the others by name."""
    found = {span.state for resource in facts.resources for span in resource.spans}
    return sorted(found, key=lambda state: (list(STATES).index(state) if state in STATES else 9, state))


def _shape(facts: Facts) -> str:
    sizes = [(f"<{size(power).replace(' ', '')}", events) for power, events in facts.sizes.counts]
    median, p99, largest = words.sizes([facts.sizes.median, facts.sizes.p99, facts.sizes.largest])
    total = sum(map(sum, facts.week))
    weekday, hour = max(
        ((day, hour) for day in range(7) for hour in range(24)), key=lambda at: facts.week[at[0]][at[1]]
    )
    left = _card(
        "When",
        charts.heat(facts.week, "Events by day of the week and hour, UTC")
        + _details(["", *[f"{hour:02}" for hour in range(24)]],
                   [[WEEKDAYS[day], *[f"{n:,}" for n in hours]] for day, hours in enumerate(facts.week)]),
        f"By weekday and hour, UTC. Busiest: {WEEKDAYS[weekday]} {hour:02}:00, "
        f"{share(facts.week[weekday][hour], total)} of all.",
    )  # fmt: skip
    right = _card(
        "Payload sizes",
        charts.columns(sizes, "Events by the size of their payloads")
        + _details(["size", "events"], [[name, f"{n:,}"] for name, n in sizes]),
        f"Median {median}, 99 % up to {p99}, largest {largest}.",
    )
    return f'<div class="pair">{left}{right}</div>'


def _states(facts: Facts) -> str:
    if not facts.resources:
        return ""
    classes = _classes(facts)
    states = [state for state in _states_of(facts) if classes[state] != OTHER]
    others = len(_states_of(facts)) - len(states)
    from_ms = min(span.from_ms for resource in facts.resources for span in resource.spans)
    to_ms = max(span.to_ms for resource in facts.resources for span in resource.spans)
    rows = [
        [resource.name, span.state, words.time(span.from_ms), duration(span.to_ms - span.from_ms)]
        for resource in facts.resources
        for span in resource.spans
    ]
    left = facts.resources_total - len(facts.resources)
    more = f" The resources that changed most often; {count(left, 'more resource')} not shown." if left > 0 else ""
    common = charts.common_prefix([resource.name for resource in facts.resources])
    prefix = f" All names start with {common}" if common else ""
    return _card(
        "States over time",
        _legend([(state, classes[state]) for state in states] + [(count(others, "other state"), OTHER)] * bool(others))
        + charts.timeline(facts.resources, from_ms, to_ms, classes, "The state of each resource over time")
        + _details(["resource", "state", "from (UTC)", "for"], rows),
        f"One row per resource.{prefix}{more}",
    )


def _readers(facts: Facts) -> str:
    if not facts.consumers:
        return ""
    most = max(1, *(consumer.behind for consumer in facts.consumers))
    rows = "".join(
        f'<tr><th scope="row">{short(consumer.name, 60)}</th><td class="bar">{_bar(consumer.behind, most, "warn")}</td>'
        f"<td>{number(consumer.behind)}</td><td>{consumer.acknowledged:,}</td>"
        f'<td class="time">{duration(max(0, facts.made_ms - consumer.seen_ms))} ago</td></tr>'
        for consumer in facts.consumers
    )
    table = _wide_table(["consumer", "", "behind", "acknowledged", "last seen"], rows)
    return _card("Consumers", table, f"Unprocessed events of each consumer, out of {facts.head:,}.")


def _storage(facts: Facts) -> str:
    pairs = [
        ("numbers", f"{facts.first_retained:,} to {facts.head:,} are retained" if facts.head else "none yet"),
        ("created", f"{words.time(facts.created_ms)} UTC"),
        *facts.settings,
    ]
    if facts.missing == 0:
        pairs.append(("gaps", "none: every number from the first to the last has an event"))
    elif facts.missing > 0:
        some = ", ".join(f"{a:,}" if a == b else f"{a:,}–{b:,}" for a, b in facts.gaps)
        pairs.append(("gaps", f"{count(facts.missing, 'number')} without an event: {some}"))
    listed = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs)
    bars = ""
    if len(facts.partitions) > 1:
        named = [(str(at), events) for at, events in enumerate(facts.partitions)]
        bars = f"<h3>Partitions</h3>{charts.columns(named[:64], 'Events by partition')}"
    sources = f"<h3>Sources</h3>{_ranking(facts.sources, 32, 'none')}" if facts.sources else ""
    left = facts.sources_total - len(facts.sources)
    sources += f'<p class="more">and {count(left, "more source")}</p>' if left > 0 and facts.sources else ""
    settings = f'<dl class="facts">{listed}</dl>'
    return _card("The log", f'<div class="columns"><div>{settings}</div><div>{sources}{bars}</div></div>')


def _footer(facts: Facts) -> str:
    return f"<footer>Created {words.time(facts.made_ms)} UTC by Headwater. Times are UTC.</footer>"


# Parts.


def _card(title: str, body: str, note: str = "") -> str:
    under = f'<p class="note">{text(note)}</p>' if note else ""
    return f'<section class="card"><h2>{title}</h2>{under}{body}</section>'


def _bar(value: int, most: int, css_class: str = PLAIN) -> str:
    width = max(100 * value / most, 0.6 if value else 0) if most else 0
    return (
        f'<svg class="strip" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{css_class}" width="{width:.1f}" height="10"/></svg>'
    )


def _ranking(counts: Sequence[tuple[str, int]], chars: int, nameless: str) -> str:
    """A table of names and their event counts, highest first."""
    rows = "".join(
        f'<tr><th scope="row" title="{text(name)}">{short(name, chars) or f"<i>{nameless}</i>"}</th>'
        f'<td class="bar">{_bar(events, counts[0][1])}</td><td>{number(events)}</td></tr>'
        for name, events in counts
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _wide_table(header: Sequence[str], rows: str) -> str:
    head = "".join(f'<th scope="col">{name}</th>' if name else "<td></td>" for name in header)
    return f'<div class="wide"><table class="types"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    items = "".join(
        f'<li title="{text(name)}"><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="{css_class}" width="10" '
        f'height="10" rx="2"/></svg>{short(name, 40)}</li>'
        for name, css_class in entries
    )
    return f'<ul class="legend">{items}</ul>'


def _details(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in header)
    body = "".join(
        f'<tr><th scope="row">{text(row[0])}</th>{"".join(f"<td>{text(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows[:TABLE_ROWS]
    )
    more = f'<p class="more">and {count(len(rows) - TABLE_ROWS, "more row")}</p>' if len(rows) > TABLE_ROWS else ""
    return (
        f'<details><summary>Show as a table</summary><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}</details>"
    )
