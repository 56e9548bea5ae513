"""Counts and terms say what a read says, on every kind of local log."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import Event, LogSettings, Query, QueryItem
from headwater.core.counting import TermKind
from headwater.core.event import tag_key
from headwater.storage import Engine

pytestmark = pytest.mark.on(local=True)

HOSTILE = ["it's \"quoted\"", "'; rm -rf ~", "<script>alert(1)</script>", "\u202eright to left", "🛫🛬", "a:b:c",
           "order:\u2028line", "order", "order:", "order:17", "x" * 180, "\\u0000", "%2F/..", "é"]  # fmt: skip
QUERIES = [
    Query.all(),
    Query.where(types=["A"]),
    Query.where(types=["A", "B", "none"]),
    Query.where(tags=["order"]),
    Query.where(exact_tags=["order"]),
    Query.where(tags=["order:17"]),
    Query.where(tags=["order:17", "é"]),
    Query.where(types=["A", "B"], tags=["order"]),
    Query.where(types=["A"], tags=["none:1"]),
    Query.of(QueryItem(types=("A",)), QueryItem(tags=("order",))),
    Query.of(QueryItem(types=("A",), tags=("order",)), QueryItem(types=("B", "C")), QueryItem(tags=("é", "🛫🛬"))),
    Query.where(types=["none"]),
]


def counted(log, query, after=0, upto=None, partition=None):
    """By steps, of which each says how far it got."""
    upto = log.head() if upto is None else upto
    events, types, at = 0, Counter(), after
    for step in log.count_steps(query, after, upto, partition=partition, by_type=True):
        assert step.upto >= 0 and step.events >= sum(step.types.values())
        events += step.events
        types.update(step.types)
        at = max(at, step.upto)
    alone = sum(step.events for step in log.count_steps(query, after, upto, partition=partition))
    assert alone == events
    return events, {type: count for type, count in types.items() if count}


def read(log, query, after=0, upto=None, partition=None):
    found = [each for each in log.read(query, partition=partition) if after < each.sequence_number]
    found = [each for each in found if upto is None or each.sequence_number <= upto]
    return len(found), dict(Counter(each.type for each in found))


def fill(log, count=400, step=7):
    """Appends of one event, of some, and large ones, which are kept in other ways."""
    made = [
        Event("ABC"[number % 3] if number % 11 else HOSTILE[number % len(HOSTILE)], b"\xff",
              tuple({HOSTILE[number % len(HOSTILE)], HOSTILE[number * 5 % len(HOSTILE)], f"n:{number % 40}"}))
        for number in range(count)
    ]  # fmt: skip
    for at in range(0, count, step):
        log.append(made[at : at + step])


@pytest.mark.parametrize("step", [1, 7, 400])
@pytest.mark.parametrize("partitions", [1, 3])
def test_counts_are_those_of_a_read(log_factory, step, partitions):
    log = log_factory(partitions=partitions)
    fill(log, step=step)
    for query in QUERIES:
        assert counted(log, query) == read(log, query)
        assert counted(log, query, 17, 203) == read(log, query, 17, 203)
        for partition in range(partitions):
            assert counted(log, query, partition=partition) == read(log, query, partition=partition)
    assert counted(log, Query.all(), 400, 400) == (0, {})
    assert counted(log, Query.all(), 0, 0) == (0, {})


def test_a_trimmed_log_counts_what_is_left(log_factory):
    log = log_factory()
    fill(log)
    log.trim(150)
    for query in QUERIES:
        assert counted(log, query) == read(log, query)
    assert counted(log, Query.all())[0] == 251


@pytest.mark.on(durable=True, local=True)
def test_a_log_that_was_opened_again_counts_the_same(bench):
    fill(bench.create("orders"), 3000)  # so many that a close writes its index
    before = {query: counted(bench.log("orders"), query) for query in QUERIES}
    bench.reopen()
    fill(bench.log("orders"), 30)
    log = bench.log("orders")
    for query in QUERIES:
        assert counted(log, query, upto=3000) == before[query] == read(log, query, upto=3000)
        assert counted(log, query) == read(log, query)


def test_another_incarnation_begins_anew(bench):
    fill(bench.create("orders"), 50)
    bench.store.delete("orders")
    log = bench.create("orders")
    assert counted(log, Query.all()) == (0, {})
    log.append([Event("A", b"", ("order:17",))])
    assert counted(log, Query.where(tags=["order"])) == (1, {"A": 1})
    assert terms(log, TermKind.TAG) == {"order:17": 1}


def terms(log, kind, prefix=""):
    found = {text for batch in log.terms(kind, prefix) for text in batch}
    assert all(text.startswith(prefix) for text in found)
    events = Counter()
    for step in log.events_with(kind, sorted(found)):
        events.update(step)
    return {text: count for text, count in events.items() if count}


def expected(log, kind, prefix=""):
    found = Counter()
    for event in log.read():
        of_event = {TermKind.TYPE: {event.type}, TermKind.TAG: set(event.tags),
                    TermKind.TAG_KEY: {tag_key(tag) for tag in event.tags}}[kind]  # fmt: skip
        found.update(text for text in of_event if text.startswith(prefix))
    return dict(found)


@pytest.mark.parametrize("step", [1, 7, 400])
@pytest.mark.parametrize("term", TermKind)
def test_terms_are_those_of_the_events(log_factory, term, step):
    log = log_factory()
    fill(log, step=step)
    for prefix in ("", "A", "or", "order", "order:", "order:1", "é", "🛫", "'", "\u202e", "n:3", "x" * 100, "none"):
        assert terms(log, term, prefix) == expected(log, term, prefix)
    log.trim(380)
    assert terms(log, term) == expected(log, term)


@pytest.mark.on(durable=True, local=True)
@pytest.mark.parametrize("term", TermKind)
def test_terms_of_a_log_that_was_opened_again(bench, term):
    fill(bench.create("orders"), 3000)
    bench.reopen()
    log = bench.log("orders")
    fill(log, 30)
    for prefix in ("", "or", "order:1", "é", "x" * 100, "none"):
        assert terms(log, term, prefix) == expected(log, term, prefix)


_TAGS = ("a", "a:1", "a:2", "b:1", "b", "c:é")
_ITEMS = st.builds(
    QueryItem,
    st.lists(st.sampled_from("ABCDE"), max_size=3).map(tuple),
    st.lists(st.sampled_from(_TAGS), max_size=3).map(tuple),
    st.lists(st.sampled_from("ab"), max_size=1).map(tuple),
).filter(lambda item: item.count)


@pytest.fixture(scope="module")
def parted(tmp_path_factory):
    """A log whose index has several parts: a file, a run, and a table."""
    directory = tmp_path_factory.mktemp("engine")
    for count in (2500, 600, 50):
        engine = Engine(directory)
        log = engine.create("l", LogSettings(partitions=2))
        log.append([Event("ABCD"[n * 7 % 4], b"", _tags(n)) for n in range(count)])
        if count > 50:
            engine.close()
    yield log
    engine.close()


def _tags(number):
    return tuple(tag for index, tag in enumerate(_TAGS) if number * 31 >> index & 1)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    query=st.one_of(st.just(Query.all()), st.lists(_ITEMS, min_size=1, max_size=4).map(lambda each: Query.of(*each))),
    bounds=st.tuples(st.integers(0, 3150), st.integers(0, 3150)).map(sorted),
    partition=st.sampled_from([None, 0, 1]),
)
def test_any_query_counts_what_it_reads(parted, query, bounds, partition):
    assert counted(parted, query, *bounds, partition) == read(parted, query, *bounds, partition)
