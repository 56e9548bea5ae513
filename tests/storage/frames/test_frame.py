"""Frames: every column comes back as it was given, and any damage is noticed."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import Encoding, Event
from headwater.core.event import NO_ATTRIBUTES
from headwater.core.limits import EventColumns
from headwater.storage.frames import crc, encoding
from headwater.storage.frames.encoding import Chain, encode
from headwater.storage.frames.frame import BadFrame, Frame, UnknownFeature
from headwater.storage.frames.layout import FORMAT_VERSION, HEADER_BYTES, Column

from ...builders import as_message
from ..builders import CHAIN, SEED, columns, content, decoded, encoded, event

characters = st.characters(min_codepoint=0xA0, exclude_categories=["Cs"]) | st.characters(
    min_codepoint=0x20, max_codepoint=0x7E
)
texts = st.text(characters, max_size=12)
tags = st.lists(
    st.one_of(
        st.from_regex(r"[a-z]{1,5}:[a-z0-9]{1,5}", fullmatch=True),
        st.from_regex(r"[a-z_-]{1,5}", fullmatch=True),
        st.sampled_from(["town:Zürich", "town:東京", "emoji:🐟", "colons:a:b:c"]),
    ),
    max_size=5,
).map(tuple)
attributes: st.SearchStrategy[Mapping[str, str]] = st.dictionaries(
    st.sampled_from(["comment", "tenant", "other", "traceparent"]), texts, max_size=3
)
events = st.builds(
    Event,
    type=st.text(characters, min_size=1, max_size=12),
    data=st.binary(max_size=40),
    tags=tags,
    id=st.text(characters, min_size=1, max_size=12),
    source=texts,
    attributes=attributes,
    group_key=texts,
    envelope=st.binary(max_size=20),
    encoding=st.sampled_from(Encoding),
).map(as_message)
plain = st.tuples(st.binary(max_size=10), st.text("abc", min_size=1)).map(lambda each: Event("E", each[0], id=each[1]))


def given_back(batch: list[Event]) -> list[Event]:
    return [each._replace(tags=tuple(sorted(set(each.tags)))) for each in batch]


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.lists(events, min_size=1, max_size=80), st.lists(plain, min_size=1, max_size=80)), st.data())
def test_every_column_comes_back_in_bulk_in_part_and_one_by_one(batch: list[Event], data: st.DataObject) -> None:
    partitions = data.draw(st.lists(st.integers(0, 1023), min_size=len(batch), max_size=len(batch)))
    frame = decoded(encoded(batch, 5, partitions=partitions, at=123))
    frame.verify()
    found = frame.events()
    assert [each.event for each in found] == given_back(batch)
    assert [each.partition for each in found] == partitions
    assert [each.sequence_number for each in found] == list(range(5, 5 + len(batch)))
    assert {each.recorded_at for each in found} == {123}
    assert [frame.event(index) for index in range(len(batch))] == found
    low = data.draw(st.integers(0, len(batch) - 1))
    high = data.draw(st.integers(low + 1, len(batch)))
    assert frame.events(low, high) == found[low:high]
    assert all(type(each.data) is bytes and type(each.envelope) is bytes for each in found)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(events, min_size=1, max_size=10), min_size=1, max_size=5))
def test_the_groups_of_a_frame_are_one_run_of_events(groups: list[list[Event]]) -> None:
    flat = [each for group in groups for each in group]
    frame = decoded(encode(EventColumns.join([columns(group) for group in groups]), [0] * len(flat), 1, 9, CHAIN))
    assert [each.event for each in frame.events()] == given_back(flat)
    assert frame.ids() == [each.id for each in flat]
    assert frame.types() == [each.type for each in flat]
    assert frame.sources() == [each.source for each in flat]
    assert frame.tags() == [each.tags for each in given_back(flat)]
    sizes = [len(each.data) + len(each.envelope) for each in flat]
    assert frame.payload_bytes() == [sum(sizes[:index]) for index in range(len(sizes) + 1)]


def test_a_column_of_defaults_is_left_out() -> None:
    frame = decoded(encoded([Event("E", b"x", id="1"), Event("E", b"y", id="2")]))
    left_out = (Column.PARTITION, Column.ENCODING, Column.SOURCE, Column.TAG_LISTS, Column.GROUP_KEY,
                Column.ATTRIBUTE_LISTS, Column.ENVELOPE, Column.RECORDED_AT, Column.CONTROL, Column.ERASED)  # fmt: skip
    directory = struct.unpack_from("<28I", content(encoded([Event("E", b"x", id="1")])), HEADER_BYTES - 112)
    assert [directory[slot] for slot in left_out] == [0] * len(left_out)
    assert frame.events()[1].attributes is NO_ATTRIBUTES


def test_every_buffer_is_aligned_to_eight_bytes() -> None:
    batch = [event("Téléphone", "a:1", data=b"123", source="s", group_key="k", attributes={"subject": "x"})]
    buffer = content(encoded(batch, partitions=[3]))
    assert len(buffer) % 8 == 0
    assert all(offset % 8 == 0 for offset in struct.unpack_from("<28I", buffer, HEADER_BYTES - 112))


def test_the_header_keeps_the_chain() -> None:
    frame = decoded(encoded([event()], 42, at=77, chain=Chain(SEED, 3, 0xDEADBEEF, 41, 2**62)))
    assert (frame.epoch, frame.previous_crc, frame.durable_upto, frame.nonce) == (3, 0xDEADBEEF, 41, 2**62)
    assert (frame.first, frame.last, frame.count, frame.recorded_at) == (42, 42, 1, 77)


def test_a_frame_is_read_at_any_offset_of_a_larger_buffer() -> None:
    one, two = encoded([event("A", id="1")]), encoded([event("B", "t:1", id="2")], 2)
    buffer = memoryview(bytes(64) + content(one) + content(two) + bytes(100))
    assert Frame(buffer, 64, SEED).events()[0].type == "A"
    second = Frame(buffer, 64 + one.length, SEED)
    second.verify()
    assert second.event(0).tags == ("t:1",)


@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_any_changed_byte_is_noticed(flip: int) -> None:
    whole = content(encoded([event("A", "t:1", data=b"payload", source="s", attributes={"subject": "x"})]))
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= flip
        with pytest.raises(BadFrame):
            Frame(memoryview(bytes(damaged)), 0, SEED).verify()


def test_a_frame_that_is_cut_short_anywhere_is_noticed() -> None:
    whole = content(encoded([event("A", "t:1", data=b"payload")]))
    for length in range(len(whole)):
        with pytest.raises(BadFrame):
            Frame(memoryview(whole[:length]), 0, SEED)
        if not any(whole[length:]):  # only padding is gone
            continue
        with pytest.raises(BadFrame):
            Frame(memoryview(whole[:length] + bytes(len(whole) - length)), 0, SEED).verify()


@pytest.mark.parametrize(
    ("version", "required"), [(FORMAT_VERSION + 1, 0), (FORMAT_VERSION, 1), (FORMAT_VERSION, 1 << 15)]
)
def test_what_needs_an_unknown_feature_is_refused_by_name(version: int, required: int) -> None:
    rest = bytearray(content(encoded([event()])))[8:]
    struct.pack_into("<HH", rest, 8, version, required)
    buffer = b"HWF1" + struct.pack("<I", google_crc32c.extend(SEED, bytes(rest))) + bytes(rest)
    with pytest.raises(UnknownFeature, match=f"version {version}, required features {required:#x}"):
        Frame(memoryview(buffer), 0, SEED)


def test_an_unknown_version_with_a_wrong_checksum_is_damage_not_news() -> None:
    buffer = bytearray(content(encoded([event()])))
    struct.pack_into("<H", buffer, 16, 9)
    with pytest.raises(BadFrame):
        Frame(memoryview(bytes(buffer)), 0, SEED)


def test_unknown_optional_features_are_read_over() -> None:
    rest = bytearray(content(encoded([event("A")])))[8:]
    struct.pack_into("<H", rest, 12, 0xFFFF)
    buffer = b"HWF1" + struct.pack("<I", google_crc32c.extend(SEED, bytes(rest))) + bytes(rest)
    frame = Frame(memoryview(buffer), 0, SEED)
    frame.verify()
    assert frame.events()[0].type == "A"


def test_an_event_keeps_a_hundred_and_twenty_eight_tags() -> None:
    tags = tuple(f"k{number}:{'v' * 256}" for number in range(128))
    frame = decoded(encoded([Event("E", b"", tags, id="1"), Event("E", b"", (), id="2")]))
    assert frame.events()[0].tags == tuple(sorted(tags))
    assert frame.event(0).tags == tuple(sorted(tags))
    assert frame.event(1).tags == frame.events()[1].tags == ()


def test_a_frame_holds_the_largest_append() -> None:
    batch = [Event("E", bytes(1024), ("a:1", "b:2"), id=str(number)) for number in range(60_000)]
    frame = decoded(encoded(batch))
    frame.verify()
    assert frame.count == 60_000
    assert frame.event(59_999).id == "59999"
    assert frame.events(59_990)[-1] == frame.event(59_999)


def test_many_lists_are_written_in_parts_byte_by_byte_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [
        event("A", *(f"n:{index % 7}" for _ in range(index % 3)), *(["town:Zürich"] if index % 50 == 7 else []),
              id=str(index), attributes={"subject": f"é{index}"} if index % 5 else NO_ATTRIBUTES)
        for index in range(500)
    ]  # fmt: skip
    in_parts = content(encoded(batch, 5, at=123))
    monkeypatch.setattr(encoding, "PART_LISTS", len(batch))
    assert content(encoded(batch, 5, at=123)) == in_parts
    assert decoded(encoded(batch, 5, at=123)).tags() == [given.tags for given in given_back(batch)]


def test_no_call_joins_more_than_some_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []
    original = encoding._encoded

    def counting(texts: Sequence[str]) -> tuple[bytes, object]:
        joined.append(len(texts))
        return original(texts)

    monkeypatch.setattr(encoding, "_encoded", counting)
    encoded([event("A", *(f"t:{tag}" for tag in range(100)), id=str(index)) for index in range(1000)], 1)
    assert sum(joined) == 100_000 and max(joined) <= 128 * encoding.PART_LISTS


def test_the_checksum_of_parts_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [event("A", data=b"x" * 1000, id=str(index)) for index in range(100)]
    whole = content(encoded(batch, 1))
    monkeypatch.setattr(crc, "CRC_BYTES", 1000)
    assert content(encoded(batch, 1)) == whole
    decoded(encoded(batch, 1)).verify()


def test_the_checksum_of_what_is_cut_is_that_of_what_stays() -> None:
    whole = bytes(range(256)) * 100
    for size in (0, 1, 4095, len(whole)):
        left, last = whole[: len(whole) - size], whole[len(whole) - size :]
        assert crc.shortened_crc(google_crc32c.value(whole), google_crc32c.value(last), size) == google_crc32c.value(
            left
        )


def test_a_checksum_is_the_same_of_bytes_and_of_a_view_of_them() -> None:
    for size in (0, 1, 4095, 4096, 100_000):
        content = bytes(index % 251 for index in range(size))
        assert crc.extended_crc(7, memoryview(content)) == crc.extended_crc(7, content)
