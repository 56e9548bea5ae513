"""Events from Arrow: `columns_of` takes what `check_append` takes of the same events, and refuses as it refuses."""

from __future__ import annotations

import operator
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import NO_ATTRIBUTES, Encoding, Event, LogSettings
from headwater.core.errors import InvalidEvent, InvalidInput, TooLarge
from headwater.core.limits import APPEND_EVENTS_MAX, EventColumns, check_append
from headwater.formats.arrow import events as events_module
from headwater.formats.arrow.columns import EVENT_SCHEMA, ArrowColumns
from headwater.formats.arrow.events import appends_of, columns_of
from headwater.formats.arrow.tables import SCHEMA, record_batch

from ...builders import WHOLE_MESSAGE, around
from ...core.test_attribute_rules import NO_TIMES, TIMES
from ...strategies import stored_events

SETTINGS = LogSettings(event_bytes_max=1024)
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int16(), pa.binary())]

labels = st.sampled_from(["", "a", "Größe", "a\u00a0b", "x" * 512, "é" * 300])
bad_labels = labels | st.sampled_from(["x" * 513, "a\nb", "\x7f", "\u0085"])
tags = st.sampled_from(["a:1", "b", "c:2", "a:0", "ä:1", "a:\u00a0", "a:", "", "a:" + "x" * 257, "a:é"])
good_tags = st.sampled_from(["a:1", "b", "c:2", "a:0", "a:é"])
names = st.sampled_from(["comment", "tenant", "x" * 64])
bad_names = names | st.sampled_from(["", "A", "id", "é", "x" * 65, "subject", "time", "dataschema"])
good_values = {"time": st.sampled_from(TIMES), "dataschema": st.just("a:b"), "subject": st.just("é")}
bad_values = {"time": st.sampled_from(NO_TIMES), "dataschema": st.sampled_from(["", "a b"]), "subject": st.just("")}


def one_event(
    tag: Any, label: Any, name: Any, encoding: Any, ruled: dict[str, st.SearchStrategy[str]]
) -> st.SearchStrategy[dict[str, Any]]:
    """The fields of one event; None is a null."""
    return st.fixed_dictionaries(
        {
            "type": label.filter(bool),
            "data": st.none() | st.binary(max_size=30) | st.binary(min_size=1000, max_size=1030),
            "tags": st.none() | st.lists(tag, max_size=4),
            "id": st.none() | st.integers(0, 99).map(str) | label,
            "source": st.none() | label,
            "attributes": st.none()
            | st.builds(
                operator.or_, st.dictionaries(name, label, max_size=3), st.fixed_dictionaries({}, optional=ruled)
            ),
            "group_key": st.none() | label,
            "envelope": st.none() | st.binary(max_size=5),
            "encoding": encoding,
        }
    )


fit = one_event(
    good_tags, st.sampled_from(["a", "Größe", "x" * 99]), names, st.sampled_from([None, 0]), good_values
).map(lambda fields: {**fields, "envelope": fields["envelope"] and b""})
whole = fit.map(lambda fields: {**fields, "data": WHOLE_MESSAGE, "encoding": 1})
message = fit.map(lambda fields: {**fields, "data": b"x", "envelope": around(b"x")})
unfit = one_event(
    tags | st.none(), bad_labels, bad_names, st.sampled_from([None, 0, 1, 2, -1]), {**good_values, **bad_values}
) | fit.map(lambda fields: {**fields, "type": None})  # fmt: skip
many_tags = fit.map(lambda fields: {**fields, "tags": [f"t:{n}" for n in range(129)]})
batches = st.lists(fit | whole | message, min_size=1, max_size=5) | st.lists(
    fit | message | unfit | many_tags, min_size=1, max_size=3
)
layouts = st.fixed_dictionaries(
    {
        "text": st.sampled_from(TEXTS),
        "bytes": st.sampled_from(BYTES),
        "list": st.sampled_from([pa.list_, pa.large_list]),
        "is_map": st.booleans(),
        "encoding": st.sampled_from([pa.int8(), pa.int64()]),
        "offset": st.integers(0, 2),
        "without": st.sets(st.sampled_from(EVENT_SCHEMA.names[2:])),
    }
)


def in_arrow(rows: list[dict[str, Any]], layout: dict[str, Any]) -> pa.RecordBatch:
    """The rows as a batch of that layout, perhaps a slice of a larger one."""
    text, data = layout["text"], layout["bytes"]
    mapping = pa.map_(text, text) if layout["is_map"] else pa.list_(pa.struct([("k", text), ("v", text)]))
    kinds = {
        **dict.fromkeys(("type", "id", "source", "group_key"), text),
        **dict.fromkeys(("data", "envelope"), data),
        "tags": layout["list"](text),
        "attributes": mapping,
        "encoding": layout["encoding"],
    }
    padding = [dict.fromkeys(EVENT_SCHEMA.names)] * layout["offset"]
    columns = {}
    for name in EVENT_SCHEMA.names:
        if name in layout["without"]:
            continue
        values = [row[name] for row in [*padding, *rows, *padding]]
        if name == "attributes":
            values = [None if each is None else list(each.items()) for each in values]
            if not layout["is_map"]:
                values = [None if each is None else [{"k": k, "v": v} for k, v in each] for each in values]
        plain = {data: pa.binary(), text: pa.string()}
        columns[name] = pa.array(values, plain.get(kinds[name], kinds[name])).cast(kinds[name])
    return pa.record_batch(columns).slice(layout["offset"], len(rows))


def event_of(row: dict[str, Any], without: set[str]) -> Event:
    given = {name: value for name, value in row.items() if value is not None and name not in without}
    given = {"type": None, **given, "tags": tuple(given.get("tags", ()))}
    if given.get("encoding") in (0, 1):
        given["encoding"] = Encoding(given["encoding"])
    return Event(**given)


def verdict(columns: EventColumns | InvalidInput) -> object:
    if isinstance(columns, InvalidInput):
        return type(columns), str(columns), columns.where
    return list(contents(columns)), columns.bytes


def contents(columns: EventColumns) -> Iterator[tuple[Any, ...]]:
    yield from zip(columns.types, columns.data, columns.tags, columns.sources, columns.attributes,
                   columns.group_keys, columns.envelopes, columns.encodings, strict=True)  # fmt: skip


def attempt(make: Any) -> EventColumns | InvalidInput:
    try:
        columns: EventColumns = make()
        return columns
    except InvalidInput as error:
        return error


@settings(max_examples=400)
@given(batches, layouts)
def test_a_batch_is_taken_and_refused_as_its_events_are(rows: list[dict[str, Any]], layout: dict[str, Any]) -> None:
    expected = attempt(
        lambda: check_append([event_of(row, layout["without"]) for row in rows], SETTINGS.event_bytes_max)
    )
    found = attempt(lambda: columns_of(in_arrow(rows, layout), SETTINGS))
    assert verdict(found) == verdict(expected)
    if isinstance(found, EventColumns) and isinstance(expected, EventColumns):
        for row, id in zip(rows, found.ids, strict=True):
            assert id == ((row["id"] if "id" not in layout["without"] else "") or id)
            assert id


@given(st.lists(fit, min_size=1, max_size=5), layouts)
def test_plain_events_are_not_looked_at_one_by_one(rows: list[dict[str, Any]], layout: dict[str, Any]) -> None:
    rows = [{**row, "data": b"1"} for row in rows]
    columns = columns_of(in_arrow(rows, layout), SETTINGS)
    assert isinstance(columns, ArrowColumns)
    assert columns.batch.schema == EVENT_SCHEMA
    columns.batch.validate(full=True)


@given(st.lists(stored_events, min_size=1, max_size=4))
def test_a_batch_that_was_read_can_be_appended_as_it_is(events: list[Any]) -> None:
    columns = columns_of(record_batch(events), LogSettings())
    given = check_append([each.event for each in events], LogSettings().event_bytes_max)
    assert list(contents(columns)) == list(contents(given))
    assert list(columns.ids) == list(given.ids)


@given(st.lists(fit, min_size=2, max_size=5), st.data())
def test_some_of_the_events_are_as_they_were(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    rows = [{**row, "data": b"1"} for row in rows]
    columns = columns_of(in_arrow(rows, data.draw(layouts)), SETTINGS)
    indexes = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True))
    some, all_of_them = columns.take(indexes), list(contents(columns))
    assert isinstance(some, ArrowColumns)
    assert list(contents(some)) == [all_of_them[index] for index in indexes]
    assert some.count == len(indexes)


def test_missing_ids_are_given() -> None:
    batch = pa.record_batch({"type": ["A"] * 3, "data": [b""] * 3, "id": ["", "b", None]})
    ids = columns_of(batch, SETTINGS).ids
    assert ids[1] == "b"
    assert len({*ids}) == 3 and all(len(id) == 36 for id in (ids[0], ids[2]))


def test_payloads_may_be_text() -> None:
    batch = pa.record_batch({"type": ["A", "B"], "data": ["Größe", None]})
    assert list(columns_of(batch, SETTINGS).data) == ["Größe".encode(), b""]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"type": ["A"], "data": [b""], "tag": [["a"]]}, "no column 'tag'; did you mean 'tags'"),
        ({"type": ["A"], "data": [b""], "zzz": [1]}, "no column 'zzz'; the columns are type, data"),
        ({"type": ["A"]}, "no column 'data'"),
        ({"data": [b"A"]}, "no column 'type'"),
        ({"type": [1], "data": [b"A"]}, "'type' has type int64, expected string"),
        ({"type": ["A"], "data": [1.5]}, "expected binary or string"),
        ({"type": ["A"], "data": [b""], "tags": ["a"]}, "expected list of strings"),
        ({"type": ["A"], "data": [b""], "attributes": [["a"]]}, "expected map of strings to strings"),
        ({"type": ["A"], "data": [b""], "encoding": ["a"]}, "expected an integer type"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem) as caught:
        columns_of(pa.record_batch(columns), SETTINGS)
    assert caught.value.where == "schema"


def test_a_column_given_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["A"]), pa.array([b""]), pa.array(["B"])], ["type", "data", "type"])
    with pytest.raises(InvalidEvent, match="occurs twice"):
        columns_of(batch, SETTINGS)


def test_arrow_that_lies_about_itself_is_refused() -> None:
    for offsets, content in (([0, 9999, 3], b"abc"), ([0, 1, 3], b"\xffab")):
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(content)]
        types = pa.Array.from_buffers(pa.string(), 2, buffers)
        batch = pa.RecordBatch.from_arrays([types, pa.array([b"", b""])], ["type", "data"])
        with pytest.raises(InvalidEvent, match="malformed Arrow"):
            columns_of(batch, SETTINGS)


def test_an_empty_batch_and_too_large_ones_are_refused() -> None:
    schema = pa.schema({"type": pa.string(), "data": pa.binary()})
    with pytest.raises(InvalidEvent, match="at least one event"):
        columns_of(pa.RecordBatch.from_pylist([], schema), SETTINGS)
    count = APPEND_EVENTS_MAX + 1
    with pytest.raises(TooLarge, match="65537 events given"):
        columns_of(pa.record_batch({"type": ["A"] * count, "data": [b""] * count}), SETTINGS)
    with pytest.raises(TooLarge, match="bytes given"):
        columns_of(
            pa.record_batch({"type": ["A"] * 3, "data": [bytes(23 << 20)] * 3}), LogSettings(event_bytes_max=64 << 20)
        )


def test_batches_of_any_size_become_the_fewest_appends() -> None:
    def batch(first: int, count: int, size: int = 1) -> pa.RecordBatch:
        ids = list(map(str, range(first, first + count)))
        return pa.record_batch({"type": ["A"] * count, "data": [bytes(size)] * count, "id": ids})

    small = [batch(n, 1000) for n in range(0, 100_000, 1000)]
    assert [each.count for each in appends_of(small, SETTINGS)] == [65_000, 35_000]
    large = list(appends_of([batch(0, 150_000)], SETTINGS))
    assert [each.count for each in large] == [65_536, 65_536, 18_928]
    assert [id for each in large for id in each.ids] == list(map(str, range(150_000)))
    heavy = list(appends_of([batch(0, 100, 1 << 20)], LogSettings()))
    assert sum(each.count for each in heavy) == 100 and len(heavy) == 2
    assert list(appends_of([], SETTINGS)) == []


def test_the_schema_of_stored_events_is_known_whole() -> None:
    assert set(EVENT_SCHEMA.names) < set(SCHEMA.names)
    assert NO_ATTRIBUTES == {}


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=6), min_size=1, max_size=12), st.integers(1, 8))
def test_tags_are_sorted_some_rows_after_the_others(rows: list[list[str]], at_once: int) -> None:
    batch = pa.record_batch({"type": ["A"] * len(rows), "data": [b""] * len(rows), "tags": rows})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events_module, "ORDERED_AT_ONCE", at_once)
        patch.setattr(events_module, "PIECE_BYTES", at_once)
        columns = columns_of(batch, SETTINGS)
    assert isinstance(columns, ArrowColumns)
    assert list(columns.tags) == [tuple(sorted(set(tags))) for tags in rows]


@given(st.lists(st.text(st.sampled_from("aé馬🐎\u00a0"), min_size=1, max_size=9), min_size=1), st.integers(1, 5))
def test_texts_of_any_script_are_counted_piece_by_piece(texts: list[str], at_once: int) -> None:
    batch = pa.record_batch({"type": texts, "data": [b""] * len(texts), "id": [str(n) for n in range(len(texts))]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events_module, "PIECE_BYTES", at_once)
        columns = columns_of(batch, SETTINGS)
    assert isinstance(columns, ArrowColumns)
    assert columns.bytes == check_append([Event(text, id=str(n)) for n, text in enumerate(texts)], 1024).bytes


@pytest.mark.parametrize(
    "tags",
    [
        pa.ListArray.from_arrays(pa.array([0, 0, 2**24], pa.int32()), pa.nulls(2**24)),
        pa.FixedSizeListArray.from_arrays(pa.nulls(2**24), 2**23),
        pa.ListArray.from_arrays(pa.array([0, 0, 129], pa.int32()), pa.array([""] * 129)),
    ],
    ids=["nulls", "nulls of a fixed size", "texts"],
)
def test_of_a_list_that_is_too_long_few_elements_become_objects(tags: pa.Array) -> None:
    batch = pa.record_batch({"type": ["a", "b"], "data": [b"", b""], "tags": tags})
    tracemalloc.start()
    try:
        with pytest.raises(InvalidEvent, match=r"events\[[01]\].tags"):
            columns_of(batch, LogSettings())
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_map", [True, False])
def test_attributes_are_counted_before_they_are_objects(is_map: bool) -> None:
    names, offsets = pa.array(["a"] * 100_000), pa.array([0, 0, 100_000], pa.int32())
    pairs = pa.StructArray.from_arrays([names, names], names=["name", "value"])
    column = pa.MapArray.from_arrays(offsets, names, names) if is_map else pa.ListArray.from_arrays(offsets, pairs)
    batch = pa.record_batch({"type": ["a", "b"], "data": [b"", b""], "attributes": column})
    with pytest.raises(InvalidEvent, match=r"events\[1\].attributes: 100000 attributes given, at most 64 are allowed"):
        columns_of(batch, LogSettings())


def test_an_attribute_that_is_null_is_refused() -> None:
    kind = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
    batch = pa.record_batch({"type": ["a"], "data": [b""], "attributes": pa.array([[None]], kind)})
    with pytest.raises(InvalidEvent, match="attributes"):
        columns_of(batch, LogSettings())
