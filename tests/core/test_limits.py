"""Limits: whatever a caller gives is taken as it should be, or refused with its place."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import ALL, NO_ATTRIBUTES, AppendCondition, Encoding, Event, LogSettings, Query
from headwater.core.errors import InvalidEvent, InvalidPosition, TooLarge
from headwater.core.limits import (
    APPEND_BYTES_MAX,
    METADATA_BYTES,
    SEQUENCE_NUMBER_MAX,
    EventColumns,
    check_append,
    check_tag,
    check_tag_key,
    check_type,
    plain_bytes,
    show,
)
from headwater.storage.memory import MemoryLog
from tests.every import every

from ..builders import event, refusal
from ..odd_tags import ODD_TAGS

SETTINGS = LogSettings()


def columns_of(*events: Event) -> EventColumns:
    return check_append(events, SETTINGS.event_bytes_max)


def test_columns_hold_the_events() -> None:
    one = event(
        "A", "x:1", data=b"1", id="i", source="s", group_key="g", envelope=b"\0Su\xa0\1", attributes={"subject": "t"}
    )
    two = event("B", id="j", data=b"\0Sw@", encoding=Encoding.AMQP)
    columns = columns_of(one, two)
    assert columns.count == 2
    assert list(map(Event, columns.types, columns.data, columns.tags, columns.ids, columns.sources, columns.attributes,
                    columns.group_keys, columns.envelopes, columns.encodings)) == [one, two]  # fmt: skip


def test_bytes_count_texts_and_payloads() -> None:
    columns = columns_of(event("Type", "k:v", data=b"12345", id="id", source="src", attributes={"ab": "cd"}))
    assert columns.bytes == METADATA_BYTES + len("Type" + "k:v" + "12345" + "id" + "src" + "abcd")


def test_an_append_has_a_largest_size() -> None:
    settings = LogSettings(event_bytes_max=APPEND_BYTES_MAX)
    half = bytes(APPEND_BYTES_MAX // 2 - 200)
    assert check_append([event("A", data=half), event("A", data=half)], settings.event_bytes_max).count == 2
    with pytest.raises(TooLarge) as caught:
        check_append([event("A", data=half), event("A", data=half + bytes(300))], settings.event_bytes_max)
    assert (caught.value.allowed, caught.value.unit, caught.value.where) == (APPEND_BYTES_MAX, "bytes", "events")


@every(
    ("given", "where", "problem"),
    [
        (Event(["a"]), "type", "a type must be a string, got ['a']"),  # type: ignore[arg-type]
        (Event(None), "type", "a type must be a string, got None"),  # type: ignore[arg-type]
        (Event(b"a"), "type", "a type must be a string, got b'a'"),  # type: ignore[arg-type]
        (Event("a\ud800"), "type", "a type must not contain control characters, got '\\ud800'"),
        (event(data="text"), "data", "expected bytes, got 'text'"),
        (event(data=bytearray(b"x")), "data", "expected bytes, got bytearray(b'x')"),
        (event(envelope=None), "envelope", "expected bytes, got None"),
        (Event("a", tags="room:1"), "tags", "tags must be a tuple of strings, got 'room:1'"),  # type: ignore[arg-type]
        (Event("a", tags=None), "tags", "tags must be a tuple of strings, got None"),  # type: ignore[arg-type]
        (Event("a", tags=(1, "b")), "tags[0]", "a tag must be a string, got 1"),  # type: ignore[arg-type]
        (Event("a", tags=("b", ["c"])), "tags[1]", "a tag must be a string, got ['c']"),  # type: ignore[arg-type]
        (event("a", "k:\ud800"), "tags[0]", "a tag must not contain control characters, got '\\ud800'"),
        (event(encoding=7), "encoding", "an encoding must be Encoding.DATA or Encoding.AMQP, got 7"),
        (event(encoding=[]), "encoding", "an encoding must be Encoding.DATA or Encoding.AMQP, got []"),
        (event(attributes=None), "attributes", "attributes must be a mapping of strings to strings, got None"),
        (event(attributes=[("a", "b")]), "attributes",
         "attributes must be a mapping of strings to strings, got [('a', 'b')]"),
        (event(attributes={1: "b"}), "attributes", "an attribute's name must match [a-z0-9]{1,64}, got 1"),
    ],
)  # fmt: skip
def test_what_is_of_another_kind_is_refused_with_its_place(given: Event, where: str, problem: str) -> None:
    with refusal(InvalidEvent(problem, f"events[0].{where}")):
        columns_of(given)
    with refusal(InvalidEvent(problem, f"events[1].{where}")):
        columns_of(event("Fine"), given)
    with refusal(InvalidEvent(problem, f"events[99].{where}")):
        columns_of(*[event("Fine")] * 99, given)


@every("name", ["id", "source", "group_key"])
@every("value", [None, 1, b"x", ["x"], "\ud800"])
def test_labels_are_strings(name: str, value: Any) -> None:
    with pytest.raises(InvalidEvent) as caught:
        columns_of(event(**{name: "fine"}), event(**{name: value}))
    assert caught.value.where == f"events[1].{name}"


@pytest.mark.parametrize("given", ["text", [1], [("A", b"")], [None], [event("A"), "B"]])
def test_what_is_no_event_is_refused(given: Any) -> None:
    with refusal(InvalidEvent("every element must be a headwater.core.Event", "events")):
        check_append(given, SETTINGS.event_bytes_max)


def test_tags_in_an_iterator_are_refused() -> None:
    with pytest.raises(InvalidEvent, match="tags must be a tuple of strings") as caught:
        columns_of(event("A"), Event("A", tags=(tag for tag in ("a", "b"))))  # type: ignore[arg-type]
    assert caught.value.where == "events[1].tags"


@pytest.mark.parametrize("tags", [["b", "a"], {"a", "b"}, ("b", "a", "b")])
def test_other_collections_of_tags_are_taken(tags: Any) -> None:
    assert columns_of(event("A")._replace(tags=tags)).tags == (("a", "b"),)


def test_of_two_culprits_the_first_is_named() -> None:
    for _ in range(20):
        bad = [event(f"bad\n{number}", f"k:{number}\n") for number in range(10)]
        with pytest.raises(InvalidEvent) as caught:
            columns_of(event("Fine"), *bad)
        assert caught.value.where == "events[1].type"
        with pytest.raises(InvalidEvent) as caught:
            columns_of(event("Fine"), *(each._replace(type="Fine") for each in bad))
        assert caught.value.where == "events[1].tags[0]"


def test_what_was_refused_once_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(InvalidEvent):
            columns_of(event("bad\n"))
        with pytest.raises(InvalidEvent):
            columns_of(event("Fine", "bad\ntag"))


def test_more_types_and_tags_than_are_remembered_are_checked_all_the_same() -> None:
    for start in range(0, 140_000, 20_000):
        assert columns_of(*(event(f"T{n}", f"k:{n}") for n in range(start, start + 20_000))).count == 20_000
    with pytest.raises(InvalidEvent):
        columns_of(event("T\n"))


def test_missing_ids_are_filled_and_given_ones_kept() -> None:
    ids = columns_of(event(), event(id="mine"), event()).ids
    assert ids[1] == "mine" and len(set(ids)) == 3 and all(ids)


@pytest.mark.parametrize("after", ["1", None, 1.0, True, -1, SEQUENCE_NUMBER_MAX + 1])
def test_the_number_of_a_condition_is_checked(after: Any) -> None:
    problem = f"expected 0 to {SEQUENCE_NUMBER_MAX}, got {after!r}"
    with refusal(InvalidPosition(problem, "condition.after")):
        MemoryLog().append([event()], AppendCondition(ALL, after))


@pytest.mark.parametrize("partition", ["0", 0.0, True, -1, 1])
def test_the_partition_is_checked(partition: Any) -> None:
    log = MemoryLog()
    expected = InvalidPosition(f"expected 0 to 0, got {partition!r}", "partition")
    with refusal(expected):
        log.append([event()], partition=partition)
    with refusal(expected):
        log.read(partition=partition)


@pytest.mark.parametrize("value", ["1", 1.0, True])
@pytest.mark.parametrize("name", ["from_", "after", "limit"])
def test_the_numbers_of_a_read_are_checked(name: str, value: Any) -> None:
    with pytest.raises(InvalidPosition) as caught:
        MemoryLog().read(**{name: value})
    assert caught.value.where == name.strip("_")


@pytest.mark.parametrize("below", ["1", 1.0, True])
def test_the_number_of_a_trim_is_checked(below: Any) -> None:
    log = MemoryLog()
    log.append([event()])
    with refusal(InvalidPosition(f"expected 0 to 2 (the head + 1), got {below!r}", "below")):
        log.trim(below)


def test_show_is_short() -> None:
    assert show("x") == "'x'"
    assert len(show("x" * 1000)) == 80
    assert show("x" * 1000).endswith("...")


printable = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=256)
fit = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=275)
key = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=50)
tag_of_0_1_0 = st.one_of(key, st.tuples(key, printable).map(":".join))
tag = st.one_of(tag_of_0_1_0, fit)


@given(tag)
def test_a_short_text_without_control_characters_is_a_tag(tag: str) -> None:
    assert check_tag(tag) is None
    for other in ("", f"{tag}\n", f"\x7f{tag}", f"{tag}\ud800", tag + "\u00e9" * 551):
        assert check_tag(other) is not None


@every("tag", ["k" * 50 + ":" + "\U0001f680" * 256, *ODD_TAGS])
def test_odd_tags_are_taken_plainly_or_not(tag: str) -> None:
    """By the quick look at a few events, by columns, and when they were seen before."""
    for count in (1, 1, 99):
        assert columns_of(*[event("A", tag)] * count).tags == ((tag,),) * count


def test_the_key_of_a_tag_has_no_colon() -> None:
    assert check_tag_key("tenant.id") is None
    assert check_tag_key("a:b") == "a tag's key must not contain a colon, got 'a:b'"
    assert check_tag_key("") == "a tag must have 1 to 1100 bytes of UTF-8, got 0"


@given(st.text(max_size=300))
def test_a_type_is_taken_just_if_it_is_short_and_has_no_control_characters(type: str) -> None:
    fits = 1 <= len(type) <= 200 and not any(
        ord(each) < 32 or 127 <= ord(each) < 160 or 0xD800 <= ord(each) <= 0xDFFF for each in type
    )
    assert (check_type(type) is None) == fits


@given(st.lists(tag, max_size=20))
def test_checked_tags_are_sorted_and_distinct(tags: list[str]) -> None:
    assert columns_of(event("A", *tags)).tags == (tuple(sorted(set(tags))),)


def labels(chars_max: int) -> list[object]:
    """Texts about as long as a label may be, texts with odd characters, and what is no text."""
    return ["", "x" * chars_max, "x" * (chars_max + 1), "\u00e9", "\u00a0", "a\n", "\x7f", "\ud800", b"x", None, 1]


def many(count: int) -> dict[str, str]:
    """So many attributes."""
    return {f"a{number}": "v" * 100 for number in range(count)}


names = ["subject", "a" * 64, "a" * 65, "id", "type", "source", "specversion", "data", "tags", "A", "a-b", "", 1, b"a"]
payloads = [b"x", bytes(SETTINGS.event_bytes_max - 60), bytes(SETTINGS.event_bytes_max), "x", None, bytearray(b"x")]
odd_tags = ["v" * 1100, "v" * 1101, "\u00e9" * 551, "k:\n", "k:\u00a0", "k:\u00e9", "k:\ud800", "\u00e9:v", "", 1, b"k"]
of_any_kind: dict[str, list[Any]] = {
    "type": labels(200),
    "data": payloads,
    "tags": [*[("k", each) for each in odd_tags], *[tuple(f"k:{n:03}" for n in range(each)) for each in (8, 9, 128)],
             tuple(f"k:{n:03}" for n in range(129)), ("b", "a"), ("a", "a"), None, "tag", ["a"], 1],
    "id": labels(512),
    "source": labels(2048),
    "attributes": [*[{"subject": each} for each in labels(4096)], *[{name: "x"} for name in names], many(64), many(65),
                   {"a": "b" * 4096, "c": "d" * 4096}, {"a": "b" * 4096, "c": "d" * 4097}, None, "a", [("a", "b")]],
    "group_key": labels(512),
    "envelope": payloads,
    "encoding": [Encoding.DATA, Encoding.AMQP, 0, 7, None],
}  # fmt: skip
plain_events = st.builds(
    Event,
    type=key,
    data=st.binary(min_size=60, max_size=60),
    tags=st.lists(tag_of_0_1_0, max_size=3).map(tuple),
    id=printable,
    source=printable,
    attributes=st.just(NO_ATTRIBUTES) | st.just({"subject": "x"}),
    group_key=printable,
    envelope=st.just(b""),
    encoding=st.just(Encoding.DATA),
)


@settings(max_examples=20)
@pytest.mark.parametrize("field", Event._fields)
@given(plain=plain_events, drawn=st.text(max_size=20))
def test_what_is_plainly_fit_passes_the_whole_check(field: str, plain: Event, drawn: str) -> None:
    assert plain_bytes(plain, SETTINGS.event_bytes_max) is not None
    for value in [*of_any_kind[field], drawn, (drawn,), {"subject": drawn}, {drawn: "x"}]:
        given = plain._replace(**{field: value})
        size = plain_bytes(given, SETTINGS.event_bytes_max)
        if size is not None and field not in ("envelope", "encoding"):  # a message is looked at before
            assert check_type(given.type) is None  # the whole check remembers it as fit by now
            assert columns_of(given).bytes == size


@given(tag)
def test_what_an_event_may_carry_a_query_may_ask_for(tag: str) -> None:
    query = Query.where(tags=[tag])
    assert query.matches("A", (tag,))
    assert Query.where(tags=[tag.partition(":")[0]]).matches("A", (tag,))


def test_no_attributes_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        NO_ATTRIBUTES["subject"] = "x"  # type: ignore[index]
