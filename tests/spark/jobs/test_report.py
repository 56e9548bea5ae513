"""The page of a log: the facts that Spark gathers, and a page that shows them and runs nothing that a log says."""

from __future__ import annotations

import html.parser
import json
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.core import Event, LogSettings
from headwater.core.errors import InvalidInput
from headwater.core.local import LocalLog
from headwater.spark.jobs.report import charts, words
from headwater.spark.jobs.report.buckets import BUCKETS_MAX, axis
from headwater.spark.jobs.report.charts import scale, ticks
from headwater.spark.jobs.report.facts import ConsumerFacts, Facts, Resource, Sizes, Span, TagFacts, TypeFacts
from headwater.spark.jobs.report.job import facts_of
from headwater.spark.jobs.report.page import page
from headwater.spark.jobs.report.palette import COLOURS, palette
from headwater.spark.jobs.report.words import DAY, HOUR, MINUTE
from headwater.spark.pipeline.run import Run, Server
from headwater.spark.pipelines import load
from headwater.storage.memory import MemoryStore

from ..conftest import T0, Clock

REPORT = load("report")

FACTS = Facts(
    log="orders", query=None, made_ms=T0 + 9 * DAY, head=1_234_567, first_retained=1, stored_bytes=5 << 20,
    created_ms=T0, settings=[("partitions", "2")], axis="time", events=1_234_560, first_ms=T0, last_ms=T0 + 8 * DAY,
    outside=0, bucket_ms=HOUR, series=[("Placed", [5] * 200), ("Paid", [3] * 200), ("", [1] * 200)],
    types=[TypeFacts("Placed", 1_000_000, 10**9, T0, T0 + DAY), TypeFacts("Paid", 234_560, 10**6, T0, T0 + DAY)],
    types_total=2, tags=[TagFacts("order", 1000, 7, [("17", 500), ("", 20)])],
    sizes=Sizes(10**9, 100, 900, 5000, [(64, 10), (128, 90)]), week=[[n] * 24 for n in range(7)],
    partitions=[600_000, 634_560], sources=[("web", 10)], sources_total=1,
    consumers=[ConsumerFacts("ann / mail", 1_000_000, 234_567, T0)], missing=7, gaps=[(5, 9), (20, 21)],
    resources=[Resource("/node/sync", [Span(T0, T0 + DAY, "LOCKED"), Span(T0 + DAY, T0 + 2 * DAY, "FREERUN")])],
    resources_total=1,
)  # fmt: skip
HOSTILE = "</title></style></script><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload='x&#10;"


class Seen(html.parser.HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def test_a_page_says_what_a_log_is() -> None:
    seen = Seen(page(FACTS))
    assert seen.open == []
    for said in ("orders", "1.23M events", "Events over time", "States over time", "Consumers", "235k", "5–9, 20–21",
                 "up to 235k behind", "7 numbers without an event", "954 MiB"):  # fmt: skip
        assert said in seen.text, said
    assert seen.count("details") == 4


def test_a_page_needs_nothing_else_and_may_load_nothing() -> None:
    text = page(FACTS)
    assert not re.search(r"(?:src|href)=|url\(|@import|https?:", text)
    policies = [
        attributes["content"] for tag, attributes in Seen(text).tags if tag == "meta" and "http-equiv" in attributes
    ]
    assert policies[0] is not None and policies[0].startswith("default-src 'none'")
    assert "unsafe-inline'; script-src 'sha256-" in policies[0]


def test_charts_have_titles_and_tables() -> None:
    seen = Seen(page(FACTS))
    images = [attributes for tag, attributes in seen.tags if tag == "svg" and attributes.get("role") == "img"]
    assert len(images) == 5
    assert all(attributes["aria-label"] for attributes in images)
    assert all(
        attributes.get("aria-hidden") == "true"
        for tag, attributes in seen.tags
        if tag == "svg" and attributes not in images
    )


def test_whatever_a_log_says_is_text() -> None:
    plain = Seen(page(FACTS))
    hostile = replace(
        FACTS, log=HOSTILE, query=HOSTILE, settings=[(HOSTILE, HOSTILE)],
        series=[(HOSTILE, [5] * 200), ("Paid", [3] * 200), ("", [1] * 200)],
        types=[TypeFacts(HOSTILE, 1_000_000, 1, T0, T0), FACTS.types[1]],
        tags=[TagFacts(HOSTILE, 1, 1, [(HOSTILE, 1), ("", 20)])], sources=[(HOSTILE, 1)],
        consumers=[ConsumerFacts(HOSTILE, 0, 1, 0)],
        resources=[Resource(HOSTILE, [Span(T0, T0 + DAY, HOSTILE), Span(T0 + DAY, T0 + 2 * DAY, "LOCKED")])],
    )  # fmt: skip
    text = page(hostile)
    seen = Seen(text)
    names = [tag for tag, _ in seen.tags]
    for tag in ("p", "code"):  # the query is shown
        plain.tags.append((tag, {}))
    assert sorted(names) == sorted(tag for tag, _ in plain.tags)
    assert {name for _, attributes in seen.tags for name in attributes} == {
        name for _, attributes in plain.tags for name in attributes
    }
    assert "alert(1)" in seen.text
    assert "<script>alert" not in text and "<img" not in text


def test_an_empty_log_has_a_page_too() -> None:
    empty = replace(FACTS, events=0, head=0, series=[], types=[], types_total=0, tags=[], sources=[], consumers=[],
                    resources=[], sizes=Sizes(0, 0, 0, 0, ()), missing=0, gaps=())  # fmt: skip
    seen = Seen(page(empty))
    assert seen.open == []
    assert "It has no events." in seen.text


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (words.number(0), "0"), (words.number(950), "950"), (words.number(9_999), "9,999"),
        (words.number(12_345), "12.3k"), (words.number(999_999), "1M"), (words.number(1_234_567), "1.23M"),
        (words.number(336_776), "337k"), (words.number(2.5), "2.5"), (words.size(0), "0 B"),
        (words.size(1536), "1.5 KiB"), (words.size(3 << 30), "3 GiB"), (words.duration(90_061_000), "1 d 1 h"),
        (words.duration(DAY), "1 d"), (words.duration(40), "40 ms"), (words.duration(365 * DAY + MINUTE), "1 y"),
        (words.rate(120, MINUTE), "2/s"), (words.rate(3, DAY), "3/day"), (words.rate(0, 5), "–"),
        (words.share(1, 100_000), "<0.1 %"), (words.share(1, 1), "100 %"), (words.short("a" * 50, 10), "aaaaaa…aaa"),
        (words.time(10**18), "9999-12-31 23:59:59"), (words.count(1, "event"), "1 event"),
    ],
)  # fmt: skip
def test_numbers_are_short_and_readable(shown: str, said: str) -> None:
    assert shown == said


def test_scales_end_in_round_numbers() -> None:
    assert scale(0) == (1, [0, 1])
    assert scale(3)[1] == [0, 1, 2, 3]
    for highest in (1, 7, 42, 99, 101, 3_456, 10**9 + 1):
        most, steps = scale(highest)
        assert highest <= most == steps[-1] and 2 <= len(steps) <= 6 and most <= highest * 2


@pytest.mark.parametrize(
    "span", [1, 30_000, 10 * MINUTE, HOUR, DAY, 9 * DAY, 70 * DAY, 365 * DAY, 4000 * DAY, 50_000 * DAY]
)
def test_axes_have_few_ticks_and_buckets(span: int) -> None:
    shown = axis(T0, T0, T0 + span, T0 + span)
    assert 1 <= shown.buckets <= BUCKETS_MAX + 1
    found = ticks(T0, T0 + span)
    assert len(found) <= 12
    assert all(T0 <= ms <= T0 + span for ms, _ in found)
    assert [ms for ms, _ in found] == sorted({ms for ms, _ in found})


def test_strays_do_not_make_the_charts_empty() -> None:
    shown = axis(0, T0, T0 + DAY, T0 + 10_000 * DAY)
    assert T0 - DAY < shown.first_ms <= T0 and T0 + DAY <= shown.last_ms < T0 + 2 * DAY
    assert axis(T0 - DAY, T0, T0 + DAY, T0 + DAY).first_ms == T0 - DAY


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "/nowhere/x.html"}, "there is no directory /nowhere"),
        ({"to": "/tmp"}, "/tmp: expected a file, got a directory"),
        ({"states": "a:b"}, "expected a tag key, got 'a:b'"),
        ({"end": "noon"}, "a time such as"),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        REPORT.options(**{"log": "shop", "to": "x.html", **options})


def test_a_page_replaces_a_file_only_if_asked(tmp_path: Path) -> None:
    page = tmp_path / "mine.html"
    page.write_text("mine")
    with pytest.raises(InvalidInput, match="the file already exists; give another name, or use --overwrite to replace"):
        REPORT.options(log="shop", to=str(page))
    assert REPORT.options(log="shop", to=str(page), overwrite=True).path == page


def test_every_kind_has_a_colour_of_its_own_and_the_same_everywhere() -> None:
    types, states = [f"T{n}" for n in range(7)], [f"T{n}" for n in range(5, 20)]
    found = palette([*types, ""], states)
    assert len(set(found.values())) == len(found) == 21
    with_states = palette(types, ["LOCKED", "Other"])
    assert with_states["LOCKED"] == "good" and not {"c1", "c2", "c4"} & set(with_states.values())
    crowd = palette([], [f"S{n}" for n in range(30)])
    assert list(crowd.values()).count("other") == 1 + 30 - COLOURS
    styles = (Path(charts.__file__).parent / "page.css").read_text()
    assert all(f".{css_class} {{ fill: var(--{css_class}); }}" in styles for css_class in set(crowd.values()))
    paid = Resource("/order", [Span(T0, T0 + DAY, "Paid"), Span(T0 + DAY, T0 + 2 * DAY, "Refunded")])
    text = page(replace(FACTS, resources=[paid]))
    legends = re.findall(r'<li title="(\w+)"><svg [^>]*><rect class="(\w+)"', text)
    assert len(dict(legends)) == len({*legends}) == 3 and ("Paid", "c1") in legends


def test_a_last_bucket_that_is_not_whole_is_marked() -> None:
    assert "incomplete" not in page(replace(FACTS, last_ms=T0 // HOUR * HOUR + 200 * HOUR - 1))
    text = page(replace(FACTS, last_ms=T0 // HOUR * HOUR + 199 * HOUR + 5))
    assert '<rect class="part"' in text
    assert Seen(text).text.count("incomplete") == 2


@pytest.mark.parametrize(
    ("start", "span", "labels"),
    [
        ("2025-12-20", 20 * DAY, ["25 Dec 2025", "1 Jan 2026", "8 Jan"]),
        ("2025-10-20", 200 * DAY, ["Nov 2025", "Dec", "Jan 2026", "Feb"]),
        ("2025-12-31T21:10:00", 5 * HOUR, ["31 Dec 2025, 22:00", "23:00", "1 Jan 2026", "01:00", "02:00"]),
    ],
)
def test_years_and_days_are_never_in_doubt_on_an_axis(start: str, span: int, labels: list[str]) -> None:
    first = round(datetime.fromisoformat(f"{start}+00:00").timestamp() * 1000)
    found = [label for _, label in ticks(first, first + span, 5)]
    assert found[: len(labels)] == labels


def test_what_stands_in_a_line_is_in_one_unit() -> None:
    assert words.numbers([0, 5_000, 10_000, 15_000]) == ["0", "5k", "10k", "15k"]
    assert words.numbers([0, 2_500, 5_000]) == ["0", "2,500", "5,000"]
    assert words.sizes([640, 1536, 3 << 10]) == ["0.62 KiB", "1.5 KiB", "3 KiB"]
    assert words.sizes([100, 3 << 20]) == ["100 B", "3 MiB"]
    assert words.rates((120, MINUTE), (1, MINUTE)) == ["2/s", "0.02/s"]
    assert words.rates((0, 5), (3, DAY)) == ["–", "3/day"]


def test_tags_that_are_nearly_unique_are_named_and_not_ranked() -> None:
    tags = [TagFacts("order", 1000, 7, [("17", 500)]), TagFacts("trace", 1000, 990, [("4bf9", 2)])]
    seen = Seen(page(replace(FACTS, tags=tags)))
    assert "Nearly every event has a unique value: trace (990 values)." in seen.text
    assert "4bf9" not in seen.text and "17" in seen.text


# With Spark.


@pytest.fixture
def shop(store: MemoryStore, clock: Clock) -> LocalLog:
    """600 events, an hour apart by their own time, in a minute of recording; and a stray of 1999."""
    log = store.create("shop", LogSettings(partitions=2, retention_ms=7 * DAY))
    for n in range(600):
        moment = words.moment(T0 + n * HOUR).isoformat().replace("+00:00", "Z") if n else "1999-01-01T00:00:00Z"
        tags = (f"order:{n % 7}", "vip") if n % 2 else (f"order:{n % 7}",)
        log.append([Event("Placed" if n % 3 else "<Paid>", b"x" * (n % 100), tags, str(n), "web", {"time": moment})])
        clock.ms += 100
    log.register_consumer("ann", "mail")
    return log


def facts(spark: SparkSession, url: str, log: str, **options: object) -> Facts:
    with Run("report", server=Server(url)) as run:
        return facts_of(spark, REPORT.options(log=log, to="x.html", **options), run)


def test_facts_are_right(spark: SparkSession, shop: LocalLog, url: str) -> None:
    found = facts(spark, url, "shop")
    assert (found.events, found.head, found.axis, found.outside, found.missing) == (600, 600, "time", 1, 0)
    assert found.first_ms > T0 - 3 * DAY
    assert [(row.type, row.events) for row in found.types] == [("Placed", 400), ("<Paid>", 200)]
    assert [(name, sum(counts)) for name, counts in found.series] == [("Placed", 400), ("<Paid>", 199)]
    assert [(tag.key, tag.tags, tag.values) for tag in found.tags] == [("order", 600, 7), ("vip", 300, 1)]
    assert found.tags[1].top == [("", 300)]
    assert found.sizes.total == sum(n % 100 for n in range(600)) and found.sizes.largest == 99
    assert sum(count for _, count in found.sizes.counts) == 600 == sum(found.partitions)
    assert found.sizes.counts[0] == (10, 60) and found.sizes.counts[-1] == (100, 60)
    first = words.moment(T0 + HOUR)
    assert found.week[first.weekday()][first.hour] in (3, 4) and sum(map(sum, found.week)) == 599
    assert found.consumers[0].name == "ann / mail"
    assert ("events are kept", "for 7 d") in found.settings
    recorded = facts(spark, url, "shop", time="recorded", query="type=Placed", end="300")
    assert (recorded.events, recorded.axis, recorded.outside, recorded.missing) == (200, "recorded_at", 0, -1)
    assert recorded.last_ms - recorded.first_ms < MINUTE


def test_a_page_is_written_as_a_whole(spark: SparkSession, shop: LocalLog, url: str, tmp_path: Path) -> None:
    options = REPORT.options(log="shop", to=str(tmp_path / "shop.html"), states="order")
    summary = REPORT.start(options, spark, server=Server(url))
    assert summary.events == 600
    assert [path.name for path in tmp_path.iterdir()] == ["shop.html"]
    seen = Seen((tmp_path / "shop.html").read_text(encoding="utf-8"))
    assert "States over time" in seen.text and "<Paid>" in seen.text
    with Run("report", server=Server(url)) as run:
        assert REPORT.plan(options, run)[0] == f"read the events 1 to 600 of log 'shop' on {url}"


def test_states_of_notifications_are_spans(spark: SparkSession, store: MemoryStore, url: str) -> None:
    log = store.create("ptp")
    type = "event.sync.ptp-status.ptp-state-change"
    for n, state in enumerate(["LOCKED", "LOCKED", "FREERUN", "HOLDOVER"]):
        value = {"ResourceAddress": "/cluster/node/a/x", "data_type": "notification", "value_type": "enumeration"}
        metric = {**value, "data_type": "metric", "value_type": "decimal64.3", "value": "7"}
        data = {"version": "1.0", "values": [{**value, "value": state}, metric]}
        moment = words.moment(T0 + n * HOUR).isoformat()
        log.append([
            Event(type, json.dumps({"data": data} if n % 2 else data).encode(), (), f"a{n}", "s", {"time": moment}),
            Event(type, json.dumps({"data": {"values": [{"resource": "/b", "dataType": "notification",
                  "valueType": "enumeration", "value": "LOCKED"}]}}).encode(), (), f"b{n}", "/node", {"time": moment}),
            Event(type, b"not JSON", (), f"c{n}", "s", {"time": moment}),
        ])  # fmt: skip
    found = facts(spark, url, "ptp")
    assert found.resources_total == 2
    assert found.resources == [
        Resource("/cluster/node/a/x", [
            Span(T0, T0 + 2 * HOUR, "LOCKED"), Span(T0 + 2 * HOUR, T0 + 3 * HOUR, "FREERUN"),
            Span(T0 + 3 * HOUR, T0 + 3 * HOUR, "HOLDOVER"),
        ]),
        Resource("/node /b", [Span(T0, T0 + 3 * HOUR, "LOCKED")]),
    ]  # fmt: skip


def test_an_empty_log_and_one_with_gaps_have_facts(spark: SparkSession, store: MemoryStore, url: str) -> None:
    store.create("empty")
    found = facts(spark, url, "empty")
    assert (found.events, found.missing) == (0, 0)
    assert "It has no events." in page(found)
